"""The meter of one question: the time and money that its requests take, its path and its steps."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from textwrap import shorten
from typing import Any

import dspy
from dspy.utils.exceptions import LMError

from ragc.answer import Answer, Event, Outcome, Progress, Step, StoppedBy, Trace, Usage, new_trace_id
from ragc.errors import KnowledgeError, RagcError
from ragc.loop.state import Ask, Find, Reply, Request, StepFailed, View
from ragc.loop.steps import steps
from ragc.models.catalog import NO_CLIENT, Traits, client_of, is_decision, traits_of
from ragc.models.language.adapter import is_traced, use_adapter
from ragc.models.language.spending import ModelSpending, count_used_tokens, deadline_after, track_spending
from ragc.models.requests import is_undecided
from ragc.notes import Note, NoteKind
from ragc.passage import Passage
from ragc.signatures import to_prompt_inputs
from ragc.text.history import Asked

FOR_WRITING = 1 / 3  # the share of the seconds that is kept for writing the answer, or for the fallback
WRITING = ("generator.", "grounder.")  # the predictors that may use it
SHOWN = 200  # characters of a text that a step shows
METERED = ("calls", "tokens_in", "tokens_out", "usd")  # what is booked of language models as they are asked
Send = Callable[[Event], None]


@dataclass(slots=True)
class PreparedRequest:
    """A request with all that performing it takes."""

    request: Request
    here: bool  # whether this process does it by itself, so that it cannot hang
    predictor: Any = None
    inputs: Mapping[str, Any] = field(default_factory=dict)
    client: Any = None
    traits: Traits = NO_CLIENT
    direct: bool = False  # whether a decision client is asked as such, not by way of DSPy
    began: float = 0.0

    @property
    def model(self) -> str:
        """The name of the model that is asked, if any is."""
        return str(self.client.model) if self.client is not None else ""

    @contextmanager
    def asking(self, view: View) -> Iterator[None]:
        """Have DSPy ask the client of a predictor, and count what that uses."""
        if not isinstance(self.request, Ask) or self.direct:
            yield
            return
        layout = view.layout_of(self.request.predictor)
        with use_adapter(self.client, layout), dspy.context(lm=self.client), dspy.track_usage():
            yield


class Meter:
    """One question on its way: the loop's generator, what it has spent so far, its path and its steps."""

    def __init__(self, asked: Asked, view: View, send: Send | None = None) -> None:
        self.id = new_trace_id()
        self.asked = asked
        self.view = view
        self.send = send
        self.budget = view.runtime.budget
        self.counts: Counter[str] = Counter()
        """What was spent so far, by the names of `Usage`."""
        self.started = time.perf_counter()
        configured = view.runtime.configured
        self.path: list[Note] = [NoteKind.CONFIGURED(model=configured)] if configured else []
        self.steps: list[Step] = []
        self._answer = view.known
        self._asked_for: Sequence[Request] = ()
        self._notes_sent = 0
        self._failed = False
        self._missed: dict[str, str] = {}
        self._degraded: dict[Hashable, Note] = {}
        self._loop = steps(asked, view, self.budget.max_rounds, self.tripped_cap, self.path)

    def advance(self, outcome: Sequence[Reply] | Exception | None = None) -> list[PreparedRequest] | None:
        """Return what the loop asks for next; None once it has the answer.

        `outcome` is the replies to what it asked for last, or why that failed.
        """
        if self.view.known is not None:
            self.path.append(NoteKind.REVIEWED(share=self.view.known.confidence))
            return None
        try:
            if isinstance(outcome, Exception):
                failure = StepFailed(name_step(self._asked_for[0]), *explain_error(outcome))
                self._failed = True
                self._degraded[str(failure)] = NoteKind.FAILED(why=failure)
                self._asked_for = self._loop.throw(failure)
            else:
                self._asked_for = self._loop.send(outcome)  # type: ignore[arg-type]  # None starts a generator
        except StopIteration as stop:
            self._answer = stop.value
            return None
        self._send_notes()
        return [self._prepare(request) for request in self._asked_for]

    def finish_answer(self) -> Answer:
        """Return the answer with trace and usage, and hand it to the observers."""
        assert self._answer is not None
        runtime = self.view.runtime
        answer, degraded = self._mention_missed(self._answer), tuple(self._degraded.values())
        self._send_notes()
        trace = Trace(self.id, tuple(self.path), tuple(self.steps))
        usage = Usage(**self.counts, seconds=time.perf_counter() - self.started)
        answer = Answer(answer, degraded=degraded, trace=trace, usage=usage, version=runtime.version)
        for observer in runtime.observers:
            observer(answer, self.asked, runtime.preset)
        return answer

    def seconds_for(self, calls: Sequence[PreparedRequest]) -> float:
        """Return how long a step may take; after a failure, all that is left."""
        requests = [call.request for call in calls]
        writing = all(isinstance(one, Ask) and one.predictor.startswith(WRITING) for one in requests)
        return self.seconds_left(writing=writing or self._failed)

    def seconds_left(self, writing: bool) -> float:
        """Return the seconds left until writing must begin, or else the deadline."""
        share = 1.0 if writing else 1.0 - FOR_WRITING
        return self.budget.max_seconds * share - (time.perf_counter() - self.started)

    def tripped_cap(self) -> StoppedBy | None:
        """Return the first cap that is reached, or None."""
        if self.seconds_left(writing=False) <= 0:
            return StoppedBy.SECONDS
        if self.counts["tokens_in"] + self.counts["tokens_out"] >= self.budget.max_tokens:
            return StoppedBy.TOKENS
        if self.counts["usd"] and self.counts["usd"] >= self.budget.max_usd:
            return StoppedBy.USD
        return None

    def _prepare(self, request: Request) -> PreparedRequest:
        """Resolve what a request needs: its predictor, inputs and client."""
        runtime = self.view.runtime
        if isinstance(request, Find):
            return PreparedRequest(request, runtime.library.searches_here(request.sources))
        predictor, inputs = self.view.predictors[request.predictor], to_prompt_inputs(request.inputs)
        client = client_of(runtime.models, predictor)
        traits = traits_of(client)
        direct = traits.decides and is_decision(predictor) and not is_traced()
        return PreparedRequest(request, traits.embedded, predictor, inputs, client, traits, direct)

    @contextmanager
    def spending(self, calls: Sequence[PreparedRequest]) -> Iterator[ModelSpending]:
        """Meter what language models cost, also on failure, for calls made at once.

        The deadline leaves an embedded model time to step in.
        """
        call, began = calls[0], time.perf_counter()
        for one in calls:
            one.began = began
        with track_spending(deadline_after(self.seconds_for([call]))) as spent, call.asking(self.view):
            try:
                yield spent
            except BaseException as error:
                self._note_step(call, error, spent, (spent.tokens_in, spent.tokens_out))
                raise
            finally:
                self.counts.update({name: getattr(spent, name) for name in METERED})
                self.path += spent.notes
                for handed, note in list(spent.handed_over.items()):  # what was called off may yet add to it
                    self._degraded.setdefault(handed, note)

    def note_reply(self, call: PreparedRequest, reply: Reply, spent: ModelSpending) -> Reply:
        """Return a reply, kept as a step."""
        tokens = spent.tokens_in, spent.tokens_out
        self.counts.update(counted := account(self.view, call.request))
        tracker = dspy.settings.usage_tracker
        if not (counted or call.traits.metered or call.traits.embedded):
            tokens = count_used_tokens(tracker.get_total_tokens())
            self.counts.update({"calls": 1, "tokens_in": tokens[0], "tokens_out": tokens[1]})
        elif call.direct and spent.tokens_in and tracker is not None:  # of texts DSPy keeps it itself
            used = {"prompt_tokens": tokens[0], "completion_tokens": tokens[1], "total_tokens": sum(tokens)}
            tracker.add_usage(call.model, used)
        self._note_step(call, reply, spent, tokens)
        return reply

    def note_missed(self, source: str, error: KnowledgeError) -> None:
        """Note that a source was left out of a search, on the path at its first time."""
        if source not in self._missed:
            self._missed[source] = StepFailed("search", error.what, error.mend).text
            self._degraded[source] = NoteKind.NOT_SEARCHED(source=source, why=error.what.rstrip("."))
            self.path.append(self._degraded[source])

    def _mention_missed(self, answer: Answer) -> Answer:
        """Return the answer; what is not supported is a failure where no source that was wanted was searched."""
        abstains = answer.outcome is Outcome.ABSTAIN
        unsupported = abstains or answer.stopped_by is StoppedBy.FALLBACK
        if unsupported and answer.sources and self._missed.keys() >= {*answer.sources}:
            failed = {"outcome": Outcome.FAILED, "stopped_by": StoppedBy.FALLBACK, "confidence": 0.0, "citations": ()}
            return Answer(answer, text=self._missed[answer.sources[0]], **failed)
        missed = " ".join(f"N{self._degraded[source][1:]}." for source in self._missed)
        return Answer(answer, text=f"{answer.text} {missed}") if abstains and missed else answer

    def _note_step(self, call: PreparedRequest, reply: Reply, spent: ModelSpending, tokens: tuple[int, int]) -> None:
        """Keep the request as a step, with its reply or what it raised."""
        request, seconds = call.request, time.perf_counter() - call.began
        scores: dict[str, float] = {}
        error, model = "", spent.answering(call.model)
        if isinstance(reply, BaseException):
            output, error, model = f"failed: {explain_error(reply)[0]}", type(reply).__name__, call.model
        elif isinstance(request, Find):
            output = f"{len(reply)} candidates"
        else:
            output, scores = _show_reply(reply or {})
        shown = repr(_show_input([*request.inputs.values()])) if isinstance(request, Ask) else request.query
        digest = hashlib.sha256(shown.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        spent_on, began = (seconds * 1000, *tokens), time.time() - seconds
        self.steps.append(Step(name_step(request), digest, output, *spent_on, scores, began, model, error))

    def _send_notes(self) -> None:
        """Send the notes that are new on the path as events."""
        if self.send is not None:
            for note in self.path[self._notes_sent :]:
                self.send(Progress(note))
            self._notes_sent = len(self.path)


def name_step(request: Request) -> str:
    """Return the predictor of a request, or `search`."""
    return request.predictor if isinstance(request, Ask) else "search"


def explain_error(error: BaseException) -> tuple[str, str]:
    """Return in a line why a request failed, and how to mend that where it is known."""
    if isinstance(error, TimeoutError | asyncio.CancelledError):  # what is under way at the deadline is called off
        return "no reply in time", "Ask again, or raise max_seconds under [budget] in ragc.toml."
    own = error.what if isinstance(error, RagcError) else error.message if isinstance(error, LMError) else ""
    why = shorten(own or f"{type(error).__name__}: {error}", SHOWN, placeholder="…")
    return why, error.mend if isinstance(error, RagcError) else ""


def account(view: View, request: Request) -> Mapping[str, int]:
    """Return what a request counts for beside its calls, by the names of `Usage`."""
    if isinstance(request, Find):
        return {"searches": 1}
    return {"decisions": 1} if is_decision(view.predictors[request.predictor]) else {}


def _show_input(value: Any) -> Any:
    if isinstance(value, list):
        return [_show_input(one) for one in value]
    return value.id if isinstance(value, Passage) else value


def _show_reply(reply: Mapping[str, Any]) -> tuple[str, dict[str, float]]:
    """Return what came back in a line, and the probability of each decision in it."""
    shown, scores = {}, {}
    for name, value in reply.items():
        chosen = getattr(value, "value", value)
        probability = getattr(value, "probability", (getattr(value, "probabilities", None) or {}).get(str(chosen)))
        shown[name] = str(chosen)[:SHOWN]
        if is_undecided(value):
            shown[name] = "undecided"
        elif probability is not None:
            scores[name] = float(probability)
            shown[name] = f"{chosen} {probability:.3f}" if isinstance(chosen, str) else f"{probability:.3f}"
    return " ".join(f"{name}={text}" for name, text in shown.items()), scores
