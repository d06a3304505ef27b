"""An evaluation from a record opened on a file: the figures of a language model without the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path

import orjson
from pydantic import TypeAdapter

from ragc.errors import DataError
from ragc.knowledge.index.build import Advance
from ragc.knowledge.project import Project
from ragc.loop.rag import AgenticRAG
from ragc.models.requests import to_jsonable
from ragc.optimize.compiler.record import Entry, Record, open_record
from ragc.optimize.compiler.runs.replay import Replay
from ragc.optimize.compiler.spending import Caps, Spending
from ragc.optimize.evaluation.evaluate import Evaluation, Grader, evaluate_side_by_side
from ragc.optimize.labelled.dataset import LabelledQuestion
from ragc.storage import write_whole


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
