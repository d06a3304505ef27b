"""The program: its predictors and knobs, bound to a library and to models, asked one question at a time."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace
from datetime import date
from functools import partial
from operator import attrgetter
from typing import Any, Literal

import dspy

from ragc import signatures
from ragc.answer import Answer
from ragc.errors import QuestionError
from ragc.loop import runner
from ragc.loop.policy import PLAIN, Policy, Risk, offer_strategies
from ragc.loop.state import DRAFT, Runtime, View
from ragc.models.catalog import client_of, is_decision, traits_of
from ragc.models.language.layout import Layout, PromptLayout
from ragc.models.requests import RequestCache
from ragc.passage import Readers, SourceCard, hide_readers, to_groups
from ragc.text.history import Asked, History, read_history

MAX_QUESTION = 10_000
Role = Literal["write", "decide", "judge"]


class Predictors(dspy.Module):
    """The predictors of one part of the loop, by name."""

    def __init__(self, **asked: type[dspy.Signature]) -> None:
        super().__init__()
        for name, signature in asked.items():
            setattr(self, name, dspy.Predict(signature))


def _leave_out_empty(**given: Any) -> dict[str, Any]:
    return {name: value for name, value in given.items() if value}


class AgenticRAG(dspy.Module):
    """Answers questions over a library of sources.

    It is a program like any other of DSPy's. Everything learned about it lives in its predictors and in `policy`. Safe
    from many threads and asyncio tasks: a call keeps its state to itself. As a `dspy.Tool` it is named `ask_knowledge`
    and described by its sources.
    """

    def __init__(self, cards: Sequence[SourceCard], runtime: Runtime) -> None:
        super().__init__()
        self.__name__ = "ask_knowledge"
        about = " ".join(f"{card.name}: {card.describe()}" for card in cards)
        self.__doc__ = f"Answer a question from these knowledge bases, with citations. {about}"
        self.sources = tuple(card.name for card in cards)
        self.strategies = offer_strategies(cards)
        self.conversation = Predictors(follows_on=signatures.FollowsOn, standalone=signatures.Standalone)
        self.classifier = Predictors(route=signatures.route_signature(cards))
        self.decomposer = Predictors(split=signatures.Decompose, follow=signatures.FollowUp)
        self.judge = Predictors(sufficiency=signatures.Sufficiency, missing=signatures.Missing)
        self.retriever = Predictors(sql=signatures.WriteSql)
        self.generator = Predictors(answer=signatures.Generate, states=signatures.States)
        self.generator.answer_layout = Layout()
        self.grounder = Predictors(support=signatures.Support, responsive=signatures.Responsive)
        self.policy = Policy()
        self.runtime = runtime
        self.risk: Risk | None = None
        """The stated risk of the version at this operating point, if one was asked for."""
        self.requests = RequestCache()
        self.readers: frozenset[str] | None = None
        """The groups that it was restricted to by `readable_by`, if it was."""
        self.requests_of: dict[tuple[str, ...], RequestCache] = {}
        self.own_lms: dict[str, Any] = {}
        """The models that `set_lm` gave, by role."""
        self._bind_deciders()

    @hide_readers
    def __call__(
        self, question: str, history: History = None, readers: Readers = (), today: date | None = None
    ) -> Answer:
        """Return the answer to a question, which may follow on from a conversation before it.

        It is of what somebody in the groups `readers` may read, else of what all may, and of what is in force on the
        day `today`, else on that of the clock. A failed step never fails it. Raises `QuestionError` when there is
        nothing to ask, or for a history that is no conversation.
        """
        answer: Answer = super().__call__(
            question=question, **_leave_out_empty(history=history, readers=readers, today=today)
        )
        return answer

    async def acall(
        self, question: str, history: History = None, readers: Readers = (), today: date | None = None
    ) -> Answer:
        """Return the answer, awaited."""
        answer: Answer = await super().acall(
            question=question, **_leave_out_empty(history=history, readers=readers, today=today)
        )
        return answer

    aask = acall

    def forward(self, **given: Any) -> Answer:
        """Return the answer, waited for by the thread that asks."""
        return runner.run(*self._read(**given))

    async def aforward(self, **given: Any) -> Answer:
        """Return the answer, independent requests performed in parallel."""
        # A part that is made anew, or a question that is compared, would hold up the event loop.
        return await runner.arun(*(await asyncio.to_thread(self._read, **given)))

    def stream(
        self, question: str, history: History = None, readers: Readers = (), today: date | None = None
    ) -> AsyncIterator[Any]:
        """Yield `Progress`, `Token` and `Withdrawn` events, then the `Answer`."""
        return runner.stream(partial(self.acall, question, history, readers, today))

    def readable_by(self, readers: Readers = ()) -> AgenticRAG:
        """Return the program for these groups, which reads nothing else, whoever asks it.

        It shares what is learned. One that is restricted already is asked by its own groups, or by those of them that
        are given.
        """
        groups = to_groups(readers)
        if self.readers is not None:
            groups = groups & self.readers if groups else self.readers
        library = self.runtime.library.readable_by(groups)
        if library is self.runtime.library and groups == (self.readers or frozenset()):
            return self
        twin = copy.copy(self)
        twin.readers, twin.runtime = groups, replace(self.runtime, library=library)
        if lacks := tuple(name for name in self.sources if name not in library.sources):
            cards = library.describe()
            twin.sources, twin.strategies = tuple(card.name for card in cards), offer_strategies(cards)
            twin.classifier, route = copy.copy(self.classifier), copy.copy(self.classifier.route)
            twin.classifier.route, route.signature = route, signatures.drop_sources(route.signature, lacks)
            twin.requests = self.requests_of.setdefault(lacks, RequestCache())
        return twin

    def get_lm(self, role: Role = "write") -> Any:
        """Return the model of a role; the writer may be the one DSPy is configured with."""
        models = self._take_configured_writer().models
        return models.judge or models.decide if role == "judge" else getattr(models, role)

    def set_lm(self, lm: Any, role: Role = "write") -> None:
        """Give this program a model for a role; no saved state holds it."""
        for predictor in filter(self._is_bound, self.predictors()):
            predictor.lm = None
        self.own_lms[role] = lm
        self.runtime = replace(self.runtime, models=self.runtime.models.with_client(role, lm))
        self._bind_deciders()

    def dump_state(self, json_mode: bool = True) -> dict[str, Any]:
        """Return what was learned; the program's own models are no part of it."""
        state = {}
        for name, parameter in self.named_parameters():
            kept = copy.copy(parameter)
            if isinstance(kept, dspy.Predict) and self._is_bound(kept):
                kept.lm = None
            state[name] = kept.dump_state(json_mode=json_mode)
        return state

    def load_state(self, state: dict[str, Any], *, allow_unsafe_lm_state: bool = False) -> None:
        """Take over what was learned."""
        super().load_state(state, allow_unsafe_lm_state=allow_unsafe_lm_state)
        self._bind_deciders()

    def __deepcopy__(self, memo: dict[int, Any]) -> AgenticRAG:
        twin = copy.copy(self)
        memo.update({id(self): twin, **{id(lm): lm for lm in self.own_lms.values()}})
        twin.__setstate__(copy.deepcopy(self.__getstate__(), memo))
        return twin

    def __copy__(self) -> AgenticRAG:
        twin = object.__new__(type(self))
        twin.__setstate__(self.__getstate__())
        return twin

    def __reduce__(self) -> tuple[Any, ...]:
        """Save what was learned and where the project is, not what it runs on."""
        return _reopen, (self.runtime.reopen, self.dump_state(json_mode=False), self.own_lms, self.readers)

    def _read(
        self, question: str, history: History = None, readers: Readers = (), today: date | None = None
    ) -> tuple[Asked, View]:
        """Return what is asked, and what the loop reads for it, with the reviewed answer if there is one."""
        program = self.readable_by(readers)
        asked = read_asked(question, history, today)._replace(readers=program.readers or frozenset())
        view, reviewed = program.view(runtime=program._take_configured_writer()), program.runtime.reviewed
        known = reviewed.find(asked, program.runtime.library) if reviewed else None
        return asked, view if known is None else replace(view, known=known)

    def _take_configured_writer(self) -> Runtime:
        """Return what it runs on, DSPy's language model as writer where neither project nor caller names one."""
        lm, models = dspy.settings.lm, self.runtime.models
        if not isinstance(lm, dspy.BaseLM) or "write" in models.names.model_fields_set:
            return self.runtime
        return replace(self.runtime, models=models.with_client("write", lm), configured=str(lm.model))

    def _bind_deciders(self) -> None:
        """Bind predictors of decisions to a client that repeats an answer without a request: `ReAnchor` wants one."""
        for predictor in self.predictors():
            if predictor.lm is None and is_decision(predictor):
                client = self.runtime.models.decider(predictor.signature)
                predictor.lm = client if getattr(client, "cache", False) else None

    def _is_bound(self, predictor: dspy.Predict) -> bool:
        return is_decision(predictor) and predictor.lm is self.runtime.models.decider(predictor.signature)

    def view(self, runtime: Runtime | None = None) -> View:
        """Return what the loop reads of the program as it is now."""
        runtime = runtime or self.runtime
        stages = {name: vars(stage) for name, stage in vars(self).items() if isinstance(stage, Predictors)}
        parts = {f"{name}.{part}": value for name, stage in stages.items() for part, value in stage.items()}
        predictors = {name: part for name, part in parts.items() if isinstance(part, dspy.Predict)}
        decider = traits_of(client_of(runtime.models, predictors["grounder.responsive"]))
        return View(
            runtime,
            self.requests,
            predictors,
            self.sources,
            self.strategies,
            self.policy.tuning(),
            layout=self.generator.answer_layout.value,
            vouches=decider.embedded and decider.decides,
        )

    def predictor(self, name: str) -> dspy.Predict:
        """Return the predictor of that dotted name."""
        found: dspy.Predict = attrgetter(name)(self)
        return found

    def layout_of(self, predictor: str) -> PromptLayout:
        """Return how the prompt of a predictor is laid out."""
        return self.generator.answer_layout.value if predictor == DRAFT else PromptLayout.FULL

    def plain(self) -> AgenticRAG:
        """Return plain RAG over the same library and models: the control arm."""
        control = AgenticRAG(
            self.runtime.library.describe(), replace(self.runtime, preset="plain", withholds=False, reviewed=None)
        )
        control.policy.turn(**PLAIN)
        control.generator.answer.signature = signatures.GeneratePlainly
        return control


def _reopen(
    opened: Callable[[], AgenticRAG],
    state: dict[str, Any],
    own_lms: Mapping[Role, Any],
    readers: frozenset[str] | None,
) -> AgenticRAG:
    program = opened() if readers is None else opened().readable_by(readers)
    for role, lm in own_lms.items():
        program.set_lm(lm, role)
    program.load_state(state, allow_unsafe_lm_state=True)
    return program


def read_asked(question: object, history: History = None, today: date | None = None) -> Asked:
    """Return what is asked, checked. Raises `QuestionError`."""
    return Asked(check_question(question), read_history(history), today=today)


def check_question(question: object) -> str:
    """Return the question, stripped.

    Raises `QuestionError` when it is empty, too long or no text.
    """
    if not isinstance(question, str):
        raise QuestionError(f"A question is text, not {type(question).__name__}.", "Ask something in a sentence.")
    text = question.strip()
    if not text:
        raise QuestionError("The question is empty.", "Ask something in a sentence.")
    if len(text) > MAX_QUESTION:
        raise QuestionError(
            f"The question has {len(text):,} characters; at most {MAX_QUESTION:,} are read.",
            "Put long material into a knowledge base and ask about it.",
        )
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise QuestionError("The question holds bytes that are not UTF-8 text.", "Send it as UTF-8.") from error
    return text
