"""A program run on questions from a record of its evidence.

A decision is recorded as its probabilities, a search as its pool of scored candidates, a text as itself. Another
threshold, fusion weight or round cap is then arithmetic; only a branch that was never taken is performed, once. Nor is
a question run again under other thresholds where all decisions on its way fall as they did.

An evaluation from a record opened on a file has the figures of a language model without the model.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

import orjson
from pydantic import TypeAdapter

from ragc.answer import Answer, Usage
from ragc.errors import DataError
from ragc.knowledge.index.build import Advance
from ragc.knowledge.project import Project
from ragc.loop.evidence import Pool
from ragc.loop.meter import account
from ragc.loop.rag import AgenticRAG
from ragc.loop.state import STATES, Ask, Find, Flow, Reply, Request, StepFailed, View
from ragc.loop.steps import steps
from ragc.models.catalog import client_of, is_decision, is_local
from ragc.models.requests import Decision, decode, decode_output, to_jsonable
from ragc.notes import Note
from ragc.optimize.compiler.record import Entry, Record, RequestKeys, open_record
from ragc.optimize.compiler.runs.performer import PendingCall, Performer
from ragc.optimize.compiler.runs.runner import Arm, Decided
from ragc.optimize.compiler.spending import Caps, Spending
from ragc.optimize.evaluation.evaluate import Evaluation, Grader, evaluate_side_by_side
from ragc.optimize.labelled.dataset import LabelledQuestion
from ragc.storage import keep_last, write_whole
from ragc.text.history import Asked

STATES_KEPT = 4  # states of a program, its thresholds aside, whose answers are remembered

Found = TypeVar("Found")


class _Known(NamedTuple):
    """An answer, and the decisions on the way to it with what each fell on; those of single pieces are left out."""

    answer: Answer
    decided: Sequence[tuple[Decided, Decision]]


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
    whole: bool = True  # false once a call on the way failed

    def resume(self, told: list[Reply] | StepFailed | None) -> None:
        """Tell the flow the replies, or the failure of one; without either begin it."""
        try:
            self.whole &= not isinstance(told, StepFailed)
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

    Reads thresholds and knobs anew for each batch of questions. A question is asked by its own readers, a request by
    those given. Raises `BudgetStop` when a call that is needed would pass a cap.
    """

    replays = True

    def __init__(
        self,
        program: AgenticRAG,
        record: Record,
        spending: Spending | None = None,
        readers: frozenset[str] = frozenset(),
    ) -> None:
        self.program = program
        self.record = record
        self._readers = readers
        self._others: dict[frozenset[str], Replay] = {}
        self._spending = spending or Spending()
        self._read_as(program.readable_by(readers))
        self._deciders = {name for name, predictor in program.named_predictors() if is_decision(predictor)}
        self._models: dict[str, tuple[Any, int]] = {}
        self._failed: dict[Hashable, StepFailed] = {}
        self._known: OrderedDict[Hashable, tuple[list[Any], dict[Asked, list[_Known]]]] = OrderedDict()

    def __call__(self, question: Asked) -> Answer:
        """Return the answer, with its cost when it was performed."""
        return self.answer_all([question])[0]

    def answer_all(self, questions: Sequence[Asked]) -> list[Answer]:
        """Return the answers, in order; what several of them lack is performed together."""
        return [known.answer for known in self._by_readers(Replay._recall, questions)]

    def decide_all(self, questions: Sequence[Asked]) -> list[list[Decided]]:
        """Return the decisions on the way to each answer, but those on single pieces."""
        return [[at for at, _ in known.decided] for known in self._by_readers(Replay._recall, questions)]

    def trace_all(self, questions: Sequence[Asked]) -> list[tuple[Answer, Sequence[tuple[Ask, Reply]]]]:
        """Return each answer with the requests on the way to it and their replies."""
        return [(answer, run.asked) for answer, run in self._by_readers(Replay._trace, questions)]

    def _by_readers(
        self, work: Callable[[Replay, Sequence[Asked]], Sequence[Found]], questions: Sequence[Asked]
    ) -> list[Found]:
        """Return what a method finds for each question, by the replay of its own readers."""
        found: dict[int, Found] = {}
        for readers in {one.readers for one in questions}:
            asked = {n: one for n, one in enumerate(questions) if one.readers == readers}
            if readers != self._readers and readers not in self._others:
                self._others[readers] = Replay(self.program, self.record, self._spending, readers)
            found |= zip(asked, work(self._others.get(readers, self), [*asked.values()]), strict=True)
        return [found[n] for n in range(len(questions))]

    def _recall(self, questions: Sequence[Asked]) -> list[_Known]:
        """Return what is known of each question; one is run only where a decision on its way falls otherwise now."""
        view = self.program.readable_by(self._readers).view()
        kept = self._answers_of(view)
        found = [next((one for one in kept[asked] if _fall_alike(one, view)), None) for asked in questions]
        lacking = [n for n, one in enumerate(found) if one is None]
        for n, (answer, run) in zip(lacking, self._trace([questions[n] for n in lacking]), strict=True):
            found[n] = known = _Known(answer, [*self._list_decisions(run)])
            kept[questions[n]] += [known] if run.whole else []  # what failed may be had the next time
        return [one for one in found if one is not None]

    def _answers_of(self, view: View) -> dict[Asked, list[_Known]]:
        """Return what is known of questions under the knobs, prompts and demonstrations of now."""
        parts = [part for one in view.predictors.values() for part in (one.signature, one.demos)]
        key: Hashable = view.tuning, view.threshold(STATES, "states"), view.layout, (*map(id, parts),)
        _, kept = self._known.get(key) or (parts, defaultdict[Asked, list[_Known]](list))
        keep_last(self._known, {key: (parts, kept)}, STATES_KEPT)  # with the parts, so that no others take their ids
        return kept

    def _list_decisions(self, run: _Run) -> Iterator[tuple[Decided, Decision]]:
        for ask, reply in run.asked:
            if ask.predictor in self._deciders and ask.predictor != STATES:
                for output, one in reply.items():
                    if not one.undecided:
                        chances = one.probability if one.probabilities is None else one.probabilities
                        yield Decided(ask.predictor, output, chances), one

    def _trace(self, questions: Sequence[Asked]) -> list[tuple[Answer, _Run]]:
        view = self.program.readable_by(self._readers).view()  # the knobs are read once for all questions
        paths: list[list[Note]] = [[] for _ in questions]
        rounds = view.runtime.budget.max_rounds
        runs = self._run_all([steps(q, view, rounds, path=path) for q, path in zip(questions, paths, strict=True)])
        if self.record.stand_ins:
            asked = zip(questions, runs, strict=True)
            self.record.stood_for |= {one for one, run in asked if any(entry.other for entry in run.entries)}
        return [(_finish_answer(run, path), run) for run, path in zip(runs, paths, strict=True)]

    def reply(self, request: Request) -> Reply:
        """Return the reply to one request. Raises `StepFailed` when it cannot be had."""
        (run,) = self._run_all([_ask_for(request)])
        return cast(Reply, run.require_result())

    def reply_all(self, requests: Sequence[Request]) -> list[Reply | None]:
        """Return the replies, None for one that cannot be had."""
        return [run.result for run in self._run_all([_ask_for(request) for request in requests])]

    def _run_all(self, flows: Sequence[Flow[Any]]) -> list[_Run]:
        reading = self.program.readable_by(self._readers)
        if reading.sources != self.program.sources:  # its router is a copy of the program's as it is now
            self._read_as(reading)
        self._view = reading.view()
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
        if (name := request.predictor) not in self._models:
            model = client_of(self._view.runtime.models, self._view.predictors[name])
            self._models[name] = model, int(not is_local(model))
        return self._models[name]

    def _tell_replies(self, run: _Run) -> list[Reply]:
        replies = []
        for request, said in zip(run.requests, run.said, strict=True):
            assert said is not None
            run.entries.append(said)
            reply = self._decode_reply(request, said.value)
            run.counts.update(account(self._view, request))
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


def _fall_alike(known: _Known, view: View) -> bool:
    """Tell whether each decision on the way to an answer falls as it did."""
    for (predictor, output, chances), before in known.decided:
        found = chances if before.level is None else [*chances.values()]  # type: ignore[union-attr]
        if decode_output(found, view.predictors[predictor].fields.get(output, {})) != before:
            return False
    return True


def _ask_for(request: Request) -> Flow[Reply]:
    (reply,) = yield [request]
    return reply


def _finish_answer(run: _Run, path: Sequence[Note]) -> Answer:
    """Return the answer of a run, with its cost when it was performed."""
    answer: Answer = run.require_result()
    sums = ("tokens_in", "tokens_out", "usd", "seconds")
    totals = {name: sum(getattr(one, name) for one in run.entries) for name in sums}
    return Answer(answer, usage=Usage(**run.counts, **totals), trace=replace(answer.trace, path=tuple(path)))


ReplayArm = Arm[Replay, LabelledQuestion]


def evaluate_by_record(
    programs: Sequence[AgenticRAG],
    questions: Sequence[LabelledQuestion],
    project: Project,
    record: Path | None,
    replay: Path | None,
    max_calls: int | None,
    progress: Advance,
) -> list[Evaluation]:
    """Return one evaluation each, of the questions for which replies suffice.

    They are those of the file `replay`, and no language model is asked; or those of the project's record and of
    `max_calls` more, and every one that was used is written to the file `record`. Raises `DataError` when there is no
    such question, or the file cannot be read.
    """
    with closing(Record(replies=read_replies(replay)) if replay else open_record(project)) as replies:
        weights, spending = project.settings.utility, Spending(Caps(0 if replay else max_calls))
        arms = [(Grader(one, weights), Replay(one, replies, spending).answer_all) for one in programs]
        sides = evaluate_side_by_side(arms, questions, progress, patient=True)
        if record is not None:
            write_replies(record, replies.heard)
    if not (sides[0].grades or sides[0].failed):
        what = "The record holds the replies of another program, or to other questions, and no call was allowed."
        raise DataError(what, "Record them anew: ragc eval REF --record FILE")
    return sides


def read_replies(file: Path) -> dict[bytes, Entry]:
    """Return the replies in a file by the digests of their requests.

    Raises `DataError` when it cannot be read.
    """
    entry = TypeAdapter(Entry)
    try:
        rows = [orjson.loads(line) for line in file.read_bytes().splitlines()]
        return {bytes.fromhex(row.pop("request")): entry.validate_python(row) for row in rows}
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        what = f"{file} does not hold recorded replies: {type(error).__name__}."
        raise DataError(what, "Make it with: ragc eval REF --record FILE") from error


def write_replies(file: Path, replies: Mapping[bytes, Entry]) -> None:
    """Write replies as JSON Lines, in the order of their digests."""
    rows = [{"request": digest.hex(), **asdict(entry)} for digest, entry in sorted(replies.items())]
    lines = [orjson.dumps(row, default=to_jsonable, option=orjson.OPT_APPEND_NEWLINE) for row in rows]
    write_whole(file, b"".join(lines))
