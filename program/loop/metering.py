"""The books of one question: what its requests take and cost, its path and its steps, until the answer is there."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from textwrap import shorten
from typing import Any

import dspy
from dspy.utils.exceptions import LMError

from program.answer import Answer, Outcome, Step, StoppedBy, Trace, Usage, new_trace_id
from program.errors import KnowledgeError, RagcError
from program.loop import decisions
from program.loop.state import DRAFT, Ask, Find, Program, Reply, Request, StepFailed
from program.loop.steps import steps
from program.models.language.spending import ModelSpending, count_used_tokens, deadline_after, track_spending
from program.models.requests import decode
from program.passage import Passage

FOR_WRITING = 1 / 3  # the share of the seconds that is kept for writing the answer, or for the fallback
WRITING = ("generator.", "grounder.")  # the predictors that may use it
CALLED_OFF = 1.0  # seconds at most until a request that was called off is in the books
DOCUMENTS = 10  # of a search that a step shows
SHOWN = 200  # characters of a text that a step shows


@dataclass(frozen=True, slots=True)
class Progress:
    """A step of the path, as soon as it is taken."""

    note: str


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of the draft. All since the last `Withdrawn` are, but for spaces, the text of the `Answer` in the end."""

    text: str


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """The word that the draft told so far does not count; another text follows."""


Event = Progress | Token | Withdrawn | Answer
Tell = Callable[[Event], None]


@dataclass(frozen=True, slots=True)
class PreparedRequest:
    """A request with all that performing it takes."""

    request: Request
    started: float
    may_hang: bool  # whether it goes to a network, so that it is waited for no longer than there is time
    predictor: Any = None
    inputs: Mapping[str, Any] = field(default_factory=dict)
    client: Any = None
    stand_in: Any = None  # who judges, decision by decision, when a chat model cannot be reached
    direct: bool = False  # whether a decision client is asked as such, not by way of DSPy

    @property
    def model(self) -> str:
        return str(self.client.model) if self.client is not None else ""

    @property
    def batched(self) -> bool:
        """Whether an embedded client decides, which takes several inputs at once."""
        return self.direct and decisions.is_embedded(self.client)


class Driver:
    """One question on its way: the loop's generator, what it has spent so far, its path and its steps."""

    def __init__(
        self, question: str, program: decisions.RunnableProgram, tell: Tell | None = None, parallel: bool = False
    ) -> None:
        self.parallel = parallel
        self.id = new_trace_id()
        self.question = question
        self.program = program
        self.tell = tell
        self.budget = program.runtime.budget
        self.totals = Usage()
        self.started = time.perf_counter()
        configured = program.runtime.configured
        self.path: list[str] = [f"{configured} writes, as DSPy is configured"] if configured else []
        self.steps: list[Step] = []
        self._told = 0
        self._failed = False
        self._missed: dict[str, str] = {}
        self._degraded: dict[Hashable, str] = {}
        self._unreachable: set[str] = set()
        self.loop = steps(question, program, self.budget.max_rounds, self.tripped_cap, self.path)

    def send_replies(self, replies: list[Reply] | None = None) -> list[Request]:
        """Return the next requests, or the first; `StopIteration` carries the answer."""
        return self._told_path(self.loop.send(replies))  # type: ignore[arg-type]  # None starts a generator

    def throw_failure(self, requests: Sequence[Request], error: BaseException) -> list[Request]:
        """Throw a failure into the loop, and return the next requests."""
        failure = StepFailed(name_step(requests[0]), *explain_error(error))
        self._failed = True
        self._degraded[str(failure)] = f"failed: {failure}"
        return self._told_path(self.loop.throw(failure))

    def finish_answer(self, answer: Answer) -> Answer:
        """Return the answer with trace and usage, and tell the observers of it."""
        runtime = self.program.runtime
        answer, degraded = self._tell_missed(answer), tuple(self._degraded.values())
        self._told_path([])
        trace = Trace(self.id, tuple(self.path), tuple(self.steps))
        usage = replace(self.totals, seconds=time.perf_counter() - self.started)
        answer = Answer(answer, degraded=degraded, trace=trace, usage=usage, version=runtime.version)
        for observer in runtime.observers:
            observer(answer, self.question, runtime.preset)
        return answer

    def seconds_for(self, requests: Sequence[Request]) -> float:
        """Return how long a step may take; after a failure, all that is left."""
        writing = all(isinstance(r, Ask) and r.predictor.startswith(WRITING) for r in requests)
        return self.seconds_left(writing=writing or self._failed)

    def seconds_left(self, writing: bool) -> float:
        """Return the seconds left until writing must begin, or else the deadline."""
        share = 1.0 if writing else 1.0 - FOR_WRITING
        return self.budget.max_seconds * share - (time.perf_counter() - self.started)

    def tripped_cap(self) -> StoppedBy | None:
        """Return the first cap that is reached, or None."""
        if self.seconds_left(writing=False) <= 0:
            return StoppedBy.SECONDS
        if self.totals.tokens_in + self.totals.tokens_out >= self.budget.max_tokens:
            return StoppedBy.TOKENS
        if self.totals.usd and self.totals.usd >= self.budget.max_usd:
            return StoppedBy.USD
        return None

    def add(self, **counts: float) -> None:
        """Add to the totals, by the names of `Usage`."""
        self.totals = replace(self.totals, **{n: getattr(self.totals, n) + count for n, count in counts.items()})

    def prepare_request(self, request: Request) -> PreparedRequest:
        """Resolve what a request needs: its predictor, inputs, client and time."""
        started = time.perf_counter()
        if isinstance(request, Find):
            here = self.program.runtime.library.searches_here(request.sources)
            return PreparedRequest(request, started, not here)
        predictor, inputs = self.program.predictor(request.predictor), decisions.to_prompt_inputs(request.inputs)
        client = decisions.client_of(self.program, predictor, inputs)
        stand_in = getattr(client, "stand_in", None)
        if stand_in is not None and client.model in self._unreachable and decisions.is_decision(predictor):
            client = stand_in
        direct = decisions.is_untraced() and decisions.is_decision(predictor) and decisions.is_direct(client)
        may_hang = not decisions.is_embedded(client)
        return PreparedRequest(request, started, may_hang, predictor, inputs, client, stand_in, direct)

    @contextmanager
    def spending(self, call: PreparedRequest) -> Iterator[ModelSpending]:
        """Meter what language models cost, also on failure.

        The deadline leaves an embedded model time to step in.
        """
        with track_spending(deadline_after(self.seconds_for([call.request]))) as spent:
            try:
                yield spent
            except BaseException as error:
                self._note_step(call, error, spent)
                raise
            finally:
                self.add(calls=spent.calls, tokens_in=spent.tokens_in, tokens_out=spent.tokens_out, usd=spent.usd)
                self.path += spent.notes
                for handed, note in list(spent.handed_over.items()):  # what was called off may yet add to it
                    self._degraded.setdefault(handed, note)

    def note_decision(self, call: PreparedRequest, said: Sequence[Mapping[str, Any]], spent: ModelSpending) -> Reply:
        """Return the decision that the last client's evidence stands for, kept as a step."""
        self.add(decisions=1)
        if hasattr(call.client, "second"):
            self.add(second_calls=len(said) - 1, second_avoided=2 - len(said))
        if (tracker := dspy.settings.usage_tracker) is not None and spent.tokens_in:  # of texts DSPy keeps it itself
            counts = {"prompt_tokens": spent.tokens_in, "completion_tokens": spent.tokens_out}
            tracker.add_usage(call.model, {**counts, "total_tokens": sum(counts.values())})
        return self._note_step(call, decode(said[-1], call.predictor.fields), spent)

    def note_reply(self, call: PreparedRequest, reply: Reply, spent: ModelSpending, usage: Mapping[str, Any]) -> Reply:
        """Return the reply of a search or a text, kept as a step."""
        tokens = None
        if isinstance(call.request, Find):
            self.add(searches=1)
        elif decisions.is_decision(call.predictor):
            self.add(decisions=1)
        elif decisions.judges_many(call.predictor):
            self.add(decisions=sum(len(value) for value in (reply or {}).values() if isinstance(value, list)))
        elif not hasattr(call.client, "endpoint"):
            tokens = count_used_tokens(usage)
            self.add(calls=1, tokens_in=tokens[0], tokens_out=tokens[1])
        if is_draft(call.request):
            self.add(**count_second_drafts(self.program, strict=bool(call.inputs["strict"])))
        return self._note_step(call, reply, spent, tokens)

    def replace_judge(self, call: PreparedRequest, spent: ModelSpending, error: LMError) -> None:
        """Let the stand-in judge from here on, or raise the error without one."""
        if call.stand_in is None:
            raise error
        spent.hand_over(error.message, call.model, call.stand_in, "decided")
        self._unreachable.add(call.model)

    def note_missed(self, source: str, error: KnowledgeError) -> None:
        """Note that a source was left out of a search, on the path at its first time."""
        if source not in self._missed:
            self._missed[source] = StepFailed("search", error.what, error.mend).text
            self._degraded[source] = f"not searched: {source} ({error.what.rstrip('.')})"
            self.path.append(self._degraded[source])

    def _tell_missed(self, answer: Answer) -> Answer:
        """Return the answer; what is not supported is a failure where no source that was wanted was searched."""
        abstains = answer.outcome is Outcome.ABSTAIN
        unsupported = abstains or answer.stopped_by is StoppedBy.FALLBACK
        if unsupported and answer.sources and self._missed.keys() >= {*answer.sources}:
            failed = {"outcome": Outcome.FAILED, "stopped_by": StoppedBy.FALLBACK, "confidence": 0.0, "citations": ()}
            return Answer(answer, text=self._missed[answer.sources[0]], **failed)
        told = " ".join(f"N{self._degraded[source][1:]}." for source in self._missed)
        return Answer(answer, text=f"{answer.text} {told}") if abstains and told else answer

    def _note_step(
        self, call: PreparedRequest, reply: Reply, spent: ModelSpending, tokens: Sequence[int] | None = None
    ) -> Reply:
        """Keep the request as a step, and return the reply: of one that failed, what it raised."""
        request, seconds = call.request, time.perf_counter() - call.started
        tokens_in, tokens_out = tokens or (spent.tokens_in, spent.tokens_out)
        scores: dict[str, float] = {}
        documents: tuple[tuple[str, float], ...] = ()
        error, model = "", spent.answering(call.model)
        if isinstance(reply, BaseException):
            output, error, model = f"failed: {explain_error(reply)[0]}", type(reply).__name__, call.model
        elif isinstance(request, Find):
            output = f"{len(reply)} candidates"
            found = ((passage.id, float(passage.scores.get("dense", passage.score))) for passage in reply)
            documents = tuple(sorted(found, key=lambda pair: -pair[1])[:DOCUMENTS])
        else:
            output, scores = _show_reply(reply or {})
        shown = repr(_show_input([*request.inputs.values()])) if isinstance(request, Ask) else request.query
        digest = hashlib.sha256(shown.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        began = time.time() - seconds
        spent_on = (seconds * 1000, tokens_in, tokens_out)
        step = Step(name_step(request), digest, output, *spent_on, scores, began, model, error, documents)
        self.steps.append(step)
        return reply

    def _told_path(self, requests: list[Request]) -> list[Request]:
        """Tell of the notes that are new on the path, and return the requests."""
        if self.tell is not None:
            for note in self.path[self._told :]:
                self.tell(Progress(note))
            self._told = len(self.path)
        return requests


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


def count_second_drafts(program: Program, strict: bool) -> dict[str, int]:
    """Return the calls of a second writer that a draft makes, and those that it avoids.

    A first draft avoids one, unless it is quoted; a strict draft makes that call after all.
    """
    if program.runtime.models.rewrite is None:
        return {}
    return {"second_calls": strict, "second_avoided": 0 if program.quotes(strict=False) else -1 if strict else 1}


def is_draft(request: Request) -> bool:
    """Tell whether a request is for the text of the answer."""
    return isinstance(request, Ask) and request.predictor == DRAFT


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
        if decisions.is_undecided(value):
            shown[name] = "undecided"
        elif probability is not None:
            scores[name] = float(probability)
            shown[name] = f"{chosen} {probability:.3f}" if isinstance(chosen, str) else f"{probability:.3f}"
    return " ".join(f"{name}={text}" for name, text in shown.items()), scores
