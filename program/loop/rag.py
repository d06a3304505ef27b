"""The program: its modules and knobs, bound to a library and to models, asked one question at a time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import dspy

from program.answer import Answer
from program.errors import QuestionError
from program.knowledge.library import Library
from program.loop.budget import Budget
from program.loop.deciding import runs_here, tiers
from program.loop.decisions import Requests, is_direct
from program.loop.knobs import Policy, Tuning
from program.loop.modules import Classifier, Decomposer, Doubt, Generator, Grounder, Judge
from program.loop.presets import PLAIN
from program.loop.strategy import offered
from program.models.catalog import Models
from program.passage import SourceCard
from program.serve.trace import TraceLog

MAX_QUESTION = 10_000
_attribute = object.__getattribute__  # a `dspy.Module` looks at each attribute's name, in ten times as long


@dataclass(frozen=True, slots=True)
class Runtime:
    """What a program runs on; shared by its copies, never saved with it. Answers may link to the hosts in `links`."""

    library: Library
    models: Models
    budget: Budget = field(default_factory=Budget)
    log: TraceLog | None = None
    version: str = ""
    preset: str = ""
    links: tuple[str, ...] = ()

    def __deepcopy__(self, memo: dict[int, Any]) -> Runtime:
        return self


class AgenticRAG(dspy.Module):
    """Answers questions over a library of sources.

    A `dspy.Module`: `dspy.Evaluate` and any DSPy optimizer accept it. Everything learned about it lives in
    its predictors (instructions, demonstrations, thresholds) and in `policy`. Safe from many threads and
    asyncio tasks: a call keeps its state to itself.
    """

    def __init__(self, cards: Sequence[SourceCard], runtime: Runtime) -> None:
        super().__init__()
        self.sources = tuple(card.name for card in cards)
        self.strategies = offered(cards)
        self.classifier = Classifier(cards)
        self.decomposer = Decomposer()
        self.judge = Judge()
        self.generator = Generator()
        self.grounder = Grounder()
        self.policy = Policy()
        if runtime.models.doubts:
            self.doubt = Doubt()
        self.runtime = runtime
        self.requests = Requests()

    def forward(self, question: str) -> Answer:
        """The answer. Raises `QuestionError` when there is nothing to ask; never fails on a failed step."""
        from program.loop import drivers

        return drivers.run(self.checked(question), self)

    async def aforward(self, question: str) -> Answer:
        """As `forward`, the independent requests of a step in parallel."""
        from program.loop import drivers

        return await drivers.arun(self.checked(question), self)

    async def aask(self, question: str) -> Answer:
        """The answer, awaited."""
        answer: Answer = await self.acall(question)
        return answer

    def stream(self, question: str) -> AsyncIterator[Any]:
        """Events while the answer is made: `Progress` for each step, `Token` for text, the `Answer` last."""
        from program.loop import drivers

        return drivers.stream(self.checked(question), self)

    @property
    def vouches(self) -> bool:
        """True when an embedded decider says whether a draft gives what was asked: that costs no call and no prompt."""
        return all(runs_here(model) and is_direct(model) for model in tiers(self, self.grounder.responsive, {}))

    @property
    def links(self) -> tuple[str, ...]:
        """The hosts that answers may link to."""
        return self.runtime.links

    def tuning(self) -> Tuning:
        """The knobs now."""
        tuning: Tuning = self.policy.tuning()
        return tuning

    def threshold(self, predictor: str, field: str) -> float:
        """The probability from which a Noul output counts as true."""
        return float(self.predictor(predictor).fields.get(field, {}).get("threshold", 0.5))

    def predictor(self, name: str) -> dspy.Predict:
        """The predictor of that dotted name."""
        found: Any = self
        for part in name.split("."):
            found = _attribute(found, part)
        return found

    def plain(self) -> AgenticRAG:
        """Plain RAG over the same library and models: the control arm."""
        control = AgenticRAG(self.runtime.library.describe(), replace(self.runtime, preset="plain"))
        control.policy.turn(**PLAIN)
        return control

    def checked(self, question: str) -> str:
        """The question, stripped. Raises `QuestionError` when it is empty, too long or unreadable here."""
        text = asked(question)
        if self.runtime.models.english_only:
            from program.loop.language import foreign

            if language := foreign(text):
                raise QuestionError(
                    f"The question seems to be in {language}; the embedded models read English only.",
                    "Ask in English, or name language models in [models] decide and write.",
                )
        return text


def asked(question: object) -> str:
    """The question, stripped. Raises `QuestionError` when it is empty, too long or no text, whoever is to read it."""
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
