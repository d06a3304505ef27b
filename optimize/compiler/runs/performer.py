"""The calls that a record lacks, performed: searches, decisions and texts, counted, capped and kept at once."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import dspy

from ragc.errors import BudgetStop, RagcError
from ragc.loop.evidence import Pool
from ragc.loop.meter import explain_error
from ragc.loop.rag import AgenticRAG
from ragc.loop.state import Ask, Find, Request, StepFailed, search_arguments
from ragc.models.catalog import is_decision, is_local, price_call, read_prediction, traits_of
from ragc.models.language.adapter import use_adapter
from ragc.models.language.spending import ModelSpending, count_used_tokens, track_spending
from ragc.models.language.transport import CallFailed
from ragc.optimize.compiler.record import Entry, Record
from ragc.optimize.compiler.spending import Spending
from ragc.signatures import to_prompt_inputs
from ragc.threads import share_in_threads

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
        return [results[at] for at in range(len(calls))]

    def _perform_group(self, calls: Sequence[PendingCall]) -> list[Entry | StepFailed]:
        """Perform calls of one kind to one model; what goes through at once is kept at once."""
        model, request = calls[0].model, calls[0].request
        if not (self._spending.pays or all(map(self._needs_no_server, calls))):
            raise BudgetStop("calls")
        if isinstance(request, Find):
            found = self._search([call.request for call in calls if isinstance(call.request, Find)])
            return self._keep(calls, found, self._program.runtime.library.pack_pool)
        here, traits = is_local(model), traits_of(model)
        if here and traits.decides and is_decision(self._program.predictor(request.predictor)):
            asks = [call.request for call in calls if isinstance(call.request, Ask)]
            return self._keep(calls, self._decide(model, asks), lambda value: value)
        if here:
            return [self._make_call(call) for call in calls]
        most = model.endpoint.terms.concurrency if traits.metered else PARALLEL_CALLS
        return share_in_threads(self._make_call, calls, most)

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
                found.append(StepFailed("search", *explain_error(error)))
                continue
            found.append(Entry(Pool(pool), time.perf_counter() - started))
        return found

    def _decide(self, model: Any, asks: Sequence[Ask]) -> list[Entry | StepFailed]:
        started = time.perf_counter()
        try:
            evidence = self._ask_client(model, asks)
        except RagcError as error:
            return [StepFailed(asks[0].predictor, *explain_error(error))] * len(asks)
        seconds = (time.perf_counter() - started) / len(asks)
        return [Entry(found, seconds) for found in evidence]

    def _make_call(self, call: PendingCall) -> Entry | StepFailed:
        """Ask one model, again where that fails; the reply is kept at once."""
        ask, model, digest = cast(Ask, call.request), call.model, call.digest
        self._record.require_models(str(model.model))
        if digest is not None and digest in self._record.refused:
            return StepFailed(ask.predictor, self._record.refused[digest])
        here = is_local(model)
        # A project's models ask the cap before each request; a model of this process takes no call.
        counts_itself = here or traits_of(model).metered
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
                failure, _ = explain_error(error)
                refusals += _is_refusal(error)
                continue
            finally:
                if not counts_itself:
                    self._spending.after_call(0.0, usd or spent.usd)
            if not here:
                why = next((str(note.values["why"]) for note in spent.handed_over.values()), "")
                self._record.note_call(model.model, why)
            if spent.notes:  # another model stood in, or a default was taken
                self._record.stand_ins += 1
                return replace(entry, stand_in=True, other=bool(spent.handed_over))
            if digest is not None:
                self._record.write({digest: entry})
            return entry
        if digest is not None and refusals == ATTEMPTS:
            self._record.refused[digest] = failure
        if not here:
            self._record.note_call(model.model, failure)
        return StepFailed(ask.predictor, failure)

    def _ask_client(self, model: Any, asks: Sequence[Ask]) -> list[Any]:
        name, inputs = asks[0].predictor, [to_prompt_inputs(ask.inputs) for ask in asks]
        return self._program.requests.ask(name, self._program.predictor(name), model, inputs)

    def _ask(self, ask: Ask, model: Any) -> Any:
        """Return a text's fields, or a decision's evidence."""
        predictor = self._program.predictor(ask.predictor)
        if is_decision(predictor) and traits_of(model).decides:
            return self._ask_client(model, [ask])[0]
        reply = predictor(lm=model, **to_prompt_inputs(ask.inputs))
        return read_prediction(reply) if is_decision(predictor) else dict(reply)


def _entry_of(value: Any, model: Any, seconds: float, spent: ModelSpending, usage: Mapping[str, Any]) -> Entry:
    if traits_of(model).metered:
        return Entry(value, seconds, spent.tokens_in, spent.tokens_out, spent.usd)
    tokens_in, tokens_out = count_used_tokens(usage)
    return Entry(value, seconds, tokens_in, tokens_out, price_call(model, tokens_in, tokens_out))


def _is_refusal(error: BaseException | None) -> bool:
    """Return True for a provider's word that it will not answer this prompt."""
    while error is not None and not isinstance(error, CallFailed):
        error = error.__cause__
    return error is not None and (error.cut or error.status in REFUSING)
