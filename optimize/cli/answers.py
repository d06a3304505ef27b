"""`ragc answers`: the reviewed answers of a program listed, pinned and retired."""

from __future__ import annotations

import getpass
import hashlib
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from ragc.errors import DataError
from ragc.optimize.cli import show
from ragc.optimize.cli.ask import Groups, Target, open_target
from ragc.passage import split_groups

if TYPE_CHECKING:
    from ragc.knowledge.library import Library
    from ragc.loop.reviewed import ReviewedAnswers


def run_answers(
    target: Target,
    pin: Annotated[str, Option(metavar="QUESTION", help="Give the answer of --says to this question.")] = "",
    says: Annotated[str, Option(help="Beside --pin: the answer.")] = "",
    cites: Annotated[list[str] | None, Option(help="Beside --pin: the id of a passage; may be repeated.")] = None,
    readers: Groups = "",
    until: Annotated[str, Option(help="Beside --pin: the last day, as in 2026-12-31.")] = "",
    retire: Annotated[str, Option(metavar="ID", help="Give this one no more.")] = "",
    project: show.Moved = None,
    artifacts: show.Artifacts = show.DEFAULT_ARTIFACTS,
) -> None:
    """List the reviewed answers, and whether each is given; or pin or retire one."""
    from ragc.loop.reviewed import write_answer
    from ragc.serve.opening import find_project

    show.refuse_beside("--retire", retire, pin=pin)
    program = open_target(target, artifacts, project, "")
    reviewed, library = program.runtime.reviewed, program.runtime.library
    if reviewed is None:
        return
    if pin or retire:
        home = find_project(target, artifacts, project)
        with home.named():
            groups = split_groups(readers, ",")
            row = _pin(pin, says, cites or [], groups, until, library) if pin else _retire(retire, reviewed)
        write_answer(home, row)
    shapes = [
        {**one.model_dump(mode="json", exclude_defaults=True), "unused": reviewed.explain_disuse(one, library)}
        for one in reviewed.list_answers()
    ]
    rows = []
    for one in shapes:
        review = one.get("reviewed", {})
        by = " ".join(filter(None, (review.get("at", "")[:10], review.get("by", "")))) or "label"
        rows.append([one["id"], one["question"], one["unused"] or "given", by])
    columns = ["id", "question", "state", "reviewed"]
    show.print_result(shapes, lambda: show.print_table(f"reviewed answers: {len(rows)}", columns, rows))


def _pin(
    question: str, says: str, cites: list[str], readers: list[str], until: str, library: Library
) -> dict[str, Any]:
    """Return the row of a pinned answer. Raises `DataError` where it says or cites nothing that is there."""
    from ragc.loop.reviewed import Review, see_sources

    lacks = [id_ for id_ in cites if library.find_passage(id_) is None]
    if not says.strip() or not cites or lacks:
        what = f"There is no passage {lacks[0]}." if lacks else "A pinned answer needs its text and what it cites."
        raise DataError(what, "Give --says TEXT --cites ID; `ragc index PROJECT --list` prints the ids.")
    try:
        last = date.fromisoformat(until) if until else None
    except ValueError as error:
        raise DataError(f"{until!r} is no day.", "Write it as in 2026-12-31.") from error
    noted = Review(
        at=datetime.now(UTC).isoformat(timespec="seconds"),
        by=getpass.getuser(),
        until=last,
        seen=see_sources(cites, library),
    )
    return {
        "id": f"pin-{hashlib.sha256(question.strip().encode()).hexdigest()[:8]}",
        "question": question.strip(),
        **({"readers": readers} if readers else {}),
        "outcome": "answered",
        "evidence": cites,
        "answer": says.strip(),
        "tags": ["reviewed"],
        "reviewed": noted.model_dump(mode="json", exclude_defaults=True),
    }


def _retire(id_: str, reviewed: ReviewedAnswers) -> dict[str, Any]:
    """Return the row of an answer that is given no more. Raises `DataError` for one that is not known."""
    found = next((one for one in reviewed.list_answers() if one.id == id_), None)
    if found is None:
        raise DataError(f"There is no reviewed answer {id_}.", "`ragc answers` lists their ids.")
    row = found.model_dump(mode="json", exclude_defaults=True)
    review = {"at": datetime.now(UTC).isoformat(timespec="seconds"), **row.get("reviewed", {})}
    return {**row, "outcome": found.outcome.value, "reviewed": {**review, "retired": True}}


VERBS = (run_answers,)
