"""An evaluation from recorded replies: the figures of a language model without the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import asdict
from pathlib import Path

import orjson
from pydantic import TypeAdapter, ValidationError

from optimize.compiler.record import Entry, Record, open_record
from optimize.compiler.runs.replay import Replay
from optimize.compiler.study import Caps, Spending
from optimize.evaluation.evaluate import Asking, Evaluation, Grader, evaluate_side_by_side
from optimize.labelled.dataset import LabelledQuestion
from program.answer import Answer
from program.errors import BudgetStop, DataError
from program.knowledge.index.build import Advance
from program.knowledge.project import Project
from program.loop.rag import AgenticRAG
from program.models.requests import to_jsonable
from program.storage import write_whole


class NoCalls(Spending):
    """Refuses every call to a model that is not of this process."""

    def before_call(self, usd: float = 0.0, here: bool = False) -> None:
        """Raise `BudgetStop` for such a call."""
        if not here:
            raise BudgetStop("calls")
        super().before_call(usd, here)


def evaluate_recording(
    programs: Sequence[AgenticRAG],
    questions: Sequence[LabelledQuestion],
    project: Project,
    file: Path,
    most: int | None,
    progress: Advance,
) -> list[Evaluation]:
    """Return one evaluation each, and write every reply of a language model to `file`.

    What the project's record holds is not asked for again. With `most` calls made, the questions left are left out.
    """
    with closing(open_record(project)) as record:
        spending = Spending(Caps(most))
        asking = [Replay(program, record, spending).answer_all for program in programs]
        found = _evaluate(programs, asking, questions, project, progress)
        write_replies(file, record.heard)
    return found


def evaluate_replayed(
    programs: Sequence[AgenticRAG], asked: Sequence[LabelledQuestion], project: Project, file: Path, progress: Advance
) -> list[Evaluation]:
    """Return one evaluation each, of the questions whose replies are all in `file`; no language model is asked.

    Raises `DataError` when there is no such question, or the file cannot be read.
    """
    record = Record(replies=read_replies(file))
    replays = [Replay(program, record, NoCalls()) for program in programs]
    answers: dict[str, list[Answer]] = {}
    for n, question in enumerate(asked, 1):
        with suppress(BudgetStop):  # plain RAG, the last, finds soonest what was not recorded
            found = [replay.answer_all([question.question])[0] for replay in reversed(replays)]
            answers[question.question] = found[::-1]
        progress(n, len(asked))
    held = [question for question in asked if question.question in answers]
    if not held:
        what = f"{file} holds the replies of another program, or to other questions."
        raise DataError(what, "Record them anew: ragc eval REF --record FILE")
    recall = [lambda texts, n=n: [answers[text][n] for text in texts] for n in range(len(programs))]
    return _evaluate(programs, recall, held, project)


def _evaluate(
    programs: Sequence[AgenticRAG],
    asking: Sequence[Asking],
    questions: Sequence[LabelledQuestion],
    project: Project,
    progress: Advance = lambda done, of: None,
) -> list[Evaluation]:
    weights = project.settings.utility
    arms = [(Grader(program, weights), ask) for program, ask in zip(programs, asking, strict=True)]
    return evaluate_side_by_side(arms, questions, progress)


def read_replies(file: Path) -> dict[bytes, Entry]:
    """Return the replies in a file by the digests of their requests.

    Raises `DataError` when it cannot be read.
    """
    entry = TypeAdapter(Entry)
    try:
        rows = [orjson.loads(line) for line in file.read_bytes().splitlines()]
        return {bytes.fromhex(row.pop("request")): entry.validate_python(row) for row in rows}
    except (OSError, orjson.JSONDecodeError, ValidationError, KeyError, ValueError, AttributeError, TypeError) as error:
        what = f"{file} does not hold recorded replies: {type(error).__name__}."
        raise DataError(what, "Make it with: ragc eval REF --record FILE") from error


def write_replies(file: Path, replies: Mapping[bytes, Entry]) -> None:
    """Write replies as JSON Lines, in the order of their digests."""
    rows = [{"request": digest.hex(), **asdict(entry)} for digest, entry in sorted(replies.items())]
    lines = [orjson.dumps(row, default=to_jsonable, option=orjson.OPT_APPEND_NEWLINE) for row in rows]
    write_whole(file, b"".join(lines))
