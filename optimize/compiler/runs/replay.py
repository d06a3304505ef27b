"""A program run on questions from a record of its evidence.

A decision is recorded as its probabilities, a search as its pool of scored candidates, a text as itself. Another
threshold, fusion weight or round cap is then arithmetic; only a branch that was never taken is performed, once.
"""

from __future__ import annotations

import contextvars
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, cast

import dspy

from ragc.answer import Answer, Usage
from ragc.errors import BudgetStop, RagcError
from ragc.loop.decisions import ask_client, client_of, is_decision, to_prompt_inputs, traits_of
from ragc.loop.evidence import Pool
from ragc.loop.question_meter import account
from ragc.loop.rag import AgenticRAG
from ragc.loop.state import Ask, Find, Flow, Reply, Request, Result, StepFailed, search_arguments
from ragc.loop.steps import steps
from ragc.models.catalog import is_local, price_call
from ragc.models.language.adapter import use_adapter
from ragc.models.language.spending import ModelSpending, count_used_tokens, track_spending
from ragc.models.language.transport import CallFailed
from ragc.models.requests import decode
from ragc.optimize.compiler.record import Entry, Record, RequestKeys
from ragc.optimize.compiler.runs.runner import Arm, Decided
from ragc.optimize.compiler.spending import Spending
from ragc.optimize.labelled.dataset import LabelledQuestion
from ragc.text.history import Asked

ATTEMPTS = 4
PARALLEL_CALLS = 8  # calls under way at once to a model whose provider states no number
REFUSING = (400, 413, 422)  # HTTP statuses by which a provider refuses this very prompt


@dataclass(frozen=True, slots=True)
class PendingCall:
    """A search, or a request to one model; `digest` names its reply on disk, where that may be kept."""

    request: Request
    model: Any = None
    digest: bytes | None = None

    @property
    def heard_as(self) -> bytes | None:
        """The digest of a language model's reply."""
        return None if self.model is None or is_local(self.model) else self.digest


@dataclass(slots=True)
class _Run:
    """A flow under way: the pending requests and the replies to those that have one; then what it came to."""

    flow: Flow[Any]
    requests: list[Request] = field(default_factory=list)
    said: list[Entry | None] = field(default_factory=list)
    done: bool = False
    result: Any = None
    failure: StepFailed | None = None
    entries: list[Entry] = field(default_factory=list)
    asked: list[tuple[Ask, Reply]] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def resume(self, told: list[Reply] | StepFailed | None) -> None:
        """Tell the flow the replies, or the failure of one; without either begin it."""
        try:
            self.requests = self.flow.throw(told) if isinstance(told, StepFailed) else self.flow.send(told)  # type: ignore[arg-type]
            self.said = [None] * len(self.requests)
        except StopIteration as stop:
            self.done, self.result = True, stop.value
        except StepFailed as failure:
            self.done, self.failure = True, failure

    def require_result(self) -> Any:
        """Return what the flow came to. Raises `StepFailed` where a failed call ended it."""
        if self.failure is not None:
            raise self.failure
        return self.result


class Replay:
    """Answers questions as `program` would, from a record where it can.

    Reads thresholds and knobs anew for each batch of questions. Without `vouches` the confidence of unchecked drafts is
    not asked for. A question is asked by its own readers, a request by those given. Raises `BudgetStop` when a call
    that is needed would pass a cap.
    """

    replays = True

    def __init__(
        self,
        program: AgenticRAG,
        record: Record,
        spending: Spending | None = None,
        vouches: bool = True,
        readers: frozenset[str] = frozenset(),
    ) -> None:
        self.program = program
        self.record = record
        self._vouches = vouches
        self._readers = readers
        self._others: dict[frozenset[str], Replay] = {}
        self._spending = spending or Spending()
        self._read_as(program.readable_by(readers))
        self._deciders = {name for name, predictor in program.named_predictors() if is_decision(predictor)}
        self._models: dict[tuple[str, bool], tuple[Any, int]] = {}
        self._failed: dict[Hashable, StepFailed] = {}

    def __call__(self, question: Asked) -> Answer:
        """Return the answer, with its cost when it was performed."""
        return self.answer_all([question])[0]

    def answer_all(self, questions: Sequence[Asked]) -> list[Answer]:
        """Return the answers, in order; what several of them lack is performed together."""
        return [answer for answer, _ in self.trace_all(questions)]

    def decide_all(self, questions: Sequence[Asked]) -> list[list[Decided]]:
        """Return the decisions on the way to each answer."""
        return [
            [
                Decided(ask.predictor, output, one.probability if one.probabilities is None else one.probabilities)
                for ask, reply in asked
                if ask.predictor in self._deciders
                for output, one in reply.items()
                if not one.undecided
            ]
            for _, asked in self.trace_all(questions)
        ]

    def trace_all(self, questions: Sequence[Asked]) -> list[tuple[Answer, list[tuple[Ask, Reply]]]]:
        """Return each answer with the requests on the way to it and their replies."""
        traced: dict[int, tuple[Answer, list[tuple[Ask, Reply]]]] = {}
        for readers in {one.readers for one in questions}:
            asked = {n: one for n, one in enumerate(questions) if one.readers == readers}
            if readers != self._readers and readers not in self._others:
                self._others[readers] = Replay(self.program, self.record, self._spending, self._vouches, readers)
            traced |= zip(asked, self._others.get(readers, self)._trace([*asked.values()]), strict=True)
        return [traced[n] for n in range(len(questions))]

    def _trace(self, questions: Sequence[Asked]) -> list[tuple[Answer, list[tuple[Ask, Reply]]]]:
        view = self.program.readable_by(self._readers).view(self._vouches)  # the knobs are read once for all questions
        paths: list[list[str]] = [[] for _ in questions]
        rounds = view.runtime.budget.max_rounds
        runs = self._run_all([steps(q, view, rounds, path=path) for q, path in zip(questions, paths, strict=True)])
        return [(_finish_answer(run, path), run.asked) for run, path in zip(runs, paths, strict=True)]

    def reply(self, request: Request) -> Reply:
        """Return the reply to one request. Raises `StepFailed` when it cannot be had."""
        (run,) = self._run_all([_ask_for(request)])
        return cast(Reply, run.require_result())

    def reply_all(self, requests: Sequence[Request]) -> list[Reply | None]:
        """Return the replies, None for one that cannot be had."""
        return self.finish_flows([_ask_for(request) for request in requests])

    def finish_flows(self, flows: Sequence[Flow[Result]]) -> list[Result | None]:
        """Return what flows come to that are run together, None for a failed one."""
        return [run.result for run in self._run_all(flows)]

    def _run_all(self, flows: Sequence[Flow[Any]]) -> list[_Run]:
        reading = self.program.readable_by(self._readers)
        if reading.sources != self.program.sources:  # its router is a copy of the program's as it is now
            self._read_as(reading)
        self._view = reading.view(self._vouches)
        self._keys.read_program()
        runs = [_Run(flow) for flow in flows]
        for run in runs:
            run.resume(None)
        self._failed = {}
        while lacking := dict(call for run in runs for call in self._advance_run(run)):
            self._obtain_replies(lacking)
        return runs

    def _read_as(self, reading: AgenticRAG) -> None:
        self._keys = RequestKeys(reading)
        self._performer = Performer(reading, self.record, self._spending)

    def _advance_run(self, run: _Run) -> list[tuple[Hashable, PendingCall]]:
        """Run a flow as far as the record goes, and return the calls it lacks."""
        while not run.done:
            places = [at for at, said in enumerate(run.said) if said is None]
            lacking = [call for at in places if (call := self._look_up(run, at)) is not None]
            failures = [self._failed[key] for key, _ in lacking if key in self._failed]
            if lacking and not failures:
                return lacking
            run.resume(failures[0] if failures else self._tell_replies(run))
        return []

    def _look_up(self, run: _Run, at: int) -> tuple[Hashable, PendingCall] | None:
        """Note what the record holds as the reply to a request, or return the call that is lacking."""
        request = run.requests[at]
        model, _ = self._model_for(request)
        key = self._keys.memory_key(request, model)
        run.said[at] = self.record.kept.get(key)
        return (key, PendingCall(request, model)) if run.said[at] is None else None

    def _model_for(self, request: Request) -> tuple[Any, int]:
        """Return the model that is asked, and the calls that it counts for: none for one of this process."""
        if isinstance(request, Find):
            return None, 0
        key = request.predictor, request.inputs.get("options") == []
        if key not in self._models:
            model = client_of(self._view.runtime.models, self._view.predictors[request.predictor])
            self._models[key] = model, int(not is_local(model))
        return self._models[key]

    def _tell_replies(self, run: _Run) -> list[Reply]:
        replies = []
        for request, said in zip(run.requests, run.said, strict=True):
            assert said is not None
            run.entries.append(said)
            reply = self._decode_reply(request, said.value)
            run.counts.update(account(self._view, request, reply))
            run.counts["calls"] += self._model_for(request)[1]
            if isinstance(request, Ask):
                run.asked.append((request, reply))
            replies.append(reply)
        return replies

    def _obtain_replies(self, wanted: Mapping[Hashable, PendingCall]) -> None:
        """Bring replies into memory: read from the store, else performed; or note how they failed."""
        self._failed = {}
        calls = {k: replace(call, digest=self._keys.digest(call.request, call.model)) for k, call in wanted.items()}
        held = self.record.read(call.digest for call in calls.values() if call.digest is not None)
        lacking = {}
        for key, call in calls.items():
            if (entry := held.get(call.digest or b"")) is None:
                lacking[key] = call
                continue
            is_pool = isinstance(call.request, Find)
            value = Pool(self._view.runtime.library.unpack_pool(entry.value)) if is_pool else entry.value
            self.record.keep(key, replace(entry, value=value), call.heard_as)
            self.record.reused += call.heard_as is not None
        for key, found in zip(lacking, self._performer.perform_calls([*lacking.values()]), strict=True):
            if isinstance(found, Entry):
                self.record.keep(key, found, calls[key].heard_as)
            else:
                self._failed[key] = found

    def _decode_reply(self, request: Request, said: Any) -> Reply:
        if isinstance(request, Ask) and request.predictor in self._deciders:
            return decode(said, self._view.predictors[request.predictor].fields)
        return said


def _ask_for(request: Request) -> Flow[Reply]:
    (reply,) = yield [request]
    return reply


def _finish_answer(run: _Run, path: Sequence[str]) -> Answer:
    """Return the answer of a run, with its cost when it was performed."""
    answer: Answer = run.require_result()
    sums = ("tokens_in", "tokens_out", "usd", "seconds")
    totals = {name: sum(getattr(one, name) for one in run.entries) for name in sums}
    return Answer(answer, usage=Usage(**run.counts, **totals), trace=replace(answer.trace, path=tuple(path)))


ReplayArm = Arm[Replay, LabelledQuestion]


class Performer:
    """Performs the calls that a record lacks, counted and capped; a failed one is tried again, then told."""

    def __init__(self, program: AgenticRAG, record: Record, spending: Spending) -> None:
        self._program = program
        self._record = record
        self._spending = spending

    def perform_calls(self, calls: Sequence[PendingCall]) -> list[Entry | StepFailed]:
        """Return the replies, in order. Raises `BudgetStop` at a cap."""
        results: dict[int, Entry | StepFailed] = {}
        groups: dict[tuple[str, int], list[int]] = defaultdict(list)
        for at, call in enumerate(calls):
            name = "" if isinstance(call.request, Find) else call.request.predictor
            groups[name, id(call.model)].append(at)
        for places in groups.values():
            self._spending.check()
            results |= zip(places, self._perform_group([calls[at] for at in places]), strict=True)
        self._record.performed += len(calls)
        return [results[at] for at in range(len(calls))]

    def _perform_group(self, calls: Sequence[PendingCall]) -> list[Entry | StepFailed]:
        """Perform calls of one kind to one model; what goes through at once is kept at once."""
        model, request = calls[0].model, calls[0].request
        if not (self._spending.pays or all(map(self._needs_no_server, calls))):
            raise BudgetStop("calls")
        if isinstance(request, Find):
            found = self._search([call.request for call in calls if isinstance(call.request, Find)])
            return self._keep(calls, found, self._program.runtime.library.pack_pool)
        here = is_local(model)
        if here and traits_of(model).decides and is_decision(self._program.predictor(request.predictor)):
            asks = [call.request for call in calls if isinstance(call.request, Ask)]
            return self._keep(calls, self._decide(model, asks), lambda value: value)
        if here:
            return [self._make_call(call) for call in calls]
        endpoint = getattr(model, "endpoint", None)
        pool = ThreadPoolExecutor(endpoint.terms.concurrency if endpoint else PARALLEL_CALLS)
        try:
            made = [pool.submit(contextvars.copy_context().run, self._make_call, call) for call in calls]
            return [one.result() for one in made]
        finally:
            pool.shutdown(cancel_futures=True)  # after a stop, calls under way are waited for, and none is begun

    def _needs_no_server(self, call: PendingCall) -> bool:
        library = self._program.runtime.library
        if isinstance(call.request, Find):
            return call.digest is not None and (library.index is None or library.searches_here(()))
        return is_local(call.model)

    def _keep(
        self, calls: Sequence[PendingCall], found: Sequence[Entry | StepFailed], pack: Callable[[Any], Any]
    ) -> list[Entry | StepFailed]:
        pairs = zip((call.digest for call in calls), found, strict=True)
        new = {digest: entry for digest, entry in pairs if digest is not None and isinstance(entry, Entry)}
        self._record.write({digest: replace(entry, value=pack(entry.value)) for digest, entry in new.items()})
        return list(found)

    def _search(self, finds: Sequence[Find]) -> list[Entry | StepFailed]:
        library = self._program.runtime.library
        library.embedder.encode([find.query for find in finds])  # in one batch; each search finds its vector kept
        found: list[Entry | StepFailed] = []
        for find in finds:
            self._spending.check()
            started = time.perf_counter()
            try:
                pool = library.candidates(*search_arguments(find))
            except RagcError as error:
                found.append(StepFailed("search", error.what[:200], error.mend))
                continue
            found.append(Entry(Pool(pool), time.perf_counter() - started))
        return found

    def _decide(self, model: Any, asks: Sequence[Ask]) -> list[Entry | StepFailed]:
        started = time.perf_counter()
        try:
            evidence = ask_client(self._program.view(), model, asks)
        except RagcError as error:
            return [StepFailed(asks[0].predictor, error.what[:200], error.mend)] * len(asks)
        seconds = (time.perf_counter() - started) / len(asks)
        return [Entry(found, seconds) for found in evidence]

    def _make_call(self, call: PendingCall) -> Entry | StepFailed:
        """Ask one model, again where that fails; the reply is kept at once."""
        ask, model, digest = cast(Ask, call.request), call.model, call.digest
        if digest is not None and digest in self._record.refused:
            return StepFailed(ask.predictor, self._record.refused[digest])
        here = is_local(model)
        # A project's models ask the cap before each request; a model of this process takes no call.
        counts_itself = here or hasattr(model, "endpoint")
        failure, refusals = "", 0
        for _ in range(ATTEMPTS):
            if not counts_itself:
                self._spending.before_call()
            self._record.calls += not here
            started, spent, usd = time.perf_counter(), ModelSpending(), 0.0
            try:
                adapter = use_adapter(model, self._program.layout_of(ask.predictor))
                with track_spending(cap=self._spending) as spent, adapter, dspy.track_usage() as tracker:
                    value = self._ask(ask, model)
                entry = _entry_of(value, model, time.perf_counter() - started, spent, tracker.get_total_tokens())
                usd = entry.usd
            except Exception as error:
                failure = error.what if isinstance(error, RagcError) else f"{type(error).__name__}: {error}"
                refusals += _is_refusal(error)
                continue
            finally:
                if not counts_itself:
                    self._spending.after_call(0.0, usd or spent.usd)
            if spent.notes:  # another model stood in, or a default was taken
                self._record.stand_ins += 1
                return replace(entry, stand_in=True)
            if digest is not None:
                self._record.write({digest: entry})
            return entry
        if digest is not None and refusals == ATTEMPTS:
            self._record.refused[digest] = failure[:200]
        return StepFailed(ask.predictor, failure[:200])

    def _ask(self, ask: Ask, model: Any) -> Any:
        """Return a text's fields, or a decision's evidence."""
        predictor = self._program.predictor(ask.predictor)
        if is_decision(predictor):
            return ask_client(self._program.view(), model, [ask])[0]
        return dict(predictor(lm=model, **to_prompt_inputs(ask.inputs)))


def _entry_of(value: Any, model: Any, seconds: float, spent: ModelSpending, usage: Mapping[str, Any]) -> Entry:
    if hasattr(model, "endpoint"):
        return Entry(value, seconds, spent.tokens_in, spent.tokens_out, spent.usd)
    tokens_in, tokens_out = count_used_tokens(usage)
    return Entry(value, seconds, tokens_in, tokens_out, price_call(model, tokens_in, tokens_out))


def _is_refusal(error: BaseException | None) -> bool:
    """Return True for a provider's word that it will not answer this prompt."""
    while error is not None and not isinstance(error, CallFailed):
        error = error.__cause__
    return error is not None and (error.cut or error.status in REFUSING)
