"""An evaluation from a record opened on a file: the figures of a language model without the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import asdict
from pathlib import Path

import orjson
from pydantic import TypeAdapter

from ragc.answer import Answer
from ragc.errors import BudgetStop, DataError
from ragc.knowledge.index.build import Advance
from ragc.knowledge.project import Project
from ragc.loop.rag import AgenticRAG
from ragc.models.requests import to_jsonable
from ragc.optimize.compiler.record import Entry, Record, open_record
from ragc.optimize.compiler.runs.replay import Replay
from ragc.optimize.compiler.spending import Caps, Spending
from ragc.optimize.evaluation.evaluate import TOGETHER, Evaluation, Grader, evaluate_side_by_side
from ragc.optimize.labelled.dataset import LabelledQuestion
from ragc.optimize.labelled.split import order_stratified
from ragc.storage import write_whole
from ragc.text.history import Asked


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
        spending = Spending(Caps(0 if replay else max_calls))
        replays = [Replay(program, replies, spending) for program in programs]
        answers = _answer_all(replays, [questions[n].asked for n in order_stratified(questions)], progress)
        if record is not None:
            write_replies(record, replies.heard)
    held = [question for question in questions if question.asked in answers]
    if not held:
        what = "The record holds the replies of another program, or to other questions, and no call was allowed."
        raise DataError(what, "Record them anew: ragc eval REF --record FILE")
    recall = [lambda texts, n=n: [answers[text][n] for text in texts] for n in range(len(programs))]
    graders = [Grader(program, project.settings.utility) for program in programs]
    return evaluate_side_by_side(list(zip(graders, recall, strict=True)), held)


def _answer_all(replays: Sequence[Replay], texts: Sequence[Asked], progress: Advance) -> dict[Asked, list[Answer]]:
    """Return the answers of every program to each question for which all have them."""
    answers: dict[Asked, list[Answer]] = {}
    for first in range(0, len(texts), TOGETHER):
        together = texts[first : first + TOGETHER]
        for part in (together, *([text] for text in together)):  # one by one where a call was refused
            with suppress(BudgetStop):
                if part[0] not in answers:  # plain RAG, the last, finds soonest what was not recorded
                    found = [replay.answer_all(part) for replay in reversed(replays)]
                    answers |= {text: list(row[::-1]) for text, *row in zip(part, *found, strict=True)}
        progress(first + len(together), len(texts))
    return answers


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
