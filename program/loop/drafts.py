"""Drafts of labelled questions, each to be kept or dropped by a person.

A draft that is kept is a labelled question. A file of the project's private folder holds what became of each, the last
line of an id counts, so that nobody is asked again of what was kept or dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from ragc.errors import DataError
from ragc.knowledge.project import Project
from ragc.loop.reviewed import Review, write_answer
from ragc.passage import Passage
from ragc.storage import append_row, read_json_rows
from ragc.text.facts import states

FILE, TAG = "drafts.jsonl", "draft"
Row = dict[str, Any]
FindPassage = Callable[[str], Passage | None]


class Drafts:
    """The drafts of a project."""

    def __init__(self, project: Project) -> None:
        self._project, self._file = project, project.private / FILE

    def list_all(self) -> dict[str, Row]:
        """Return every draft by its id; what was decided has a `state`, kept or dropped."""
        rows = read_json_rows(self._file) if self._file.is_file() else ()
        return {str(row["id"]): row for row in rows if row and "id" in row}

    def list_waiting(self, find: FindPassage) -> list[Row]:
        """Return those that nobody decided on and whose passages state their facts."""
        return [row for row in self.list_all().values() if "state" not in row and not find_fault(row, find)]

    def add(self, rows: Iterable[Row]) -> None:
        """Add drafts of new ids."""
        known = self.list_all()
        self._file.parent.mkdir(parents=True, exist_ok=True)
        for row in rows:
            if row["id"] not in known:
                append_row(self._file, row)

    def keep(
        self,
        id_: str,
        find: FindPassage,
        changes: Mapping[str, Any] | None = None,
        *,
        by: str = "",
        seconds: float = 0.0,
    ) -> Row:
        """Add a draft to the labelled questions, and return that label.

        `changes` are to its question and facts. Raises `DataError` for a draft that is not known, and for facts that
        its passages do not state.
        """
        draft = self._require_draft(id_)
        label = {**draft, **(changes or {})}
        if fault := "It asks nothing." if not label["question"].strip() else find_fault(label, find):
            raise DataError(fault, "Take its words from the passage, or drop the draft.")
        at = datetime.now(UTC).isoformat(timespec="seconds")
        review = Review(at=at, seconds=round(seconds, 1), by=by).model_dump(mode="json", exclude_defaults=True)
        label |= {"tags": [*(tag for tag in label["tags"] if tag != TAG), "reviewed"], "reviewed": review}
        write_answer(self._project, label, file=self._project.labelled)
        append_row(self._file, {**draft, "state": "kept"})
        return label

    def drop(self, id_: str) -> None:
        """Drop a draft. Raises `DataError` for one that is not known."""
        append_row(self._file, {**self._require_draft(id_), "state": "dropped"})

    def reopen(self, id_: str) -> None:
        """Take back what was decided on a draft, or raise `DataError`."""
        append_row(self._file, self._require_draft(id_))
        write_answer(self._project, {}, id_, file=self._project.labelled)

    def _require_draft(self, id_: str) -> Row:
        """Return a draft as it was before it was decided on."""
        found = self.list_all().get(id_)
        if found is None:
            raise DataError(f"There is no draft {id_}.", "`ragc data draft PROJECT --json` lists their ids.")
        return {name: value for name, value in found.items() if name != "state"}


def find_fault(row: Row, find: FindPassage) -> str:
    """Return in a sentence why a draft cannot be a label, or an empty text."""
    passages: Sequence[Passage | None] = [find(id_) for id_ in row["evidence"]]
    text = "\n\n".join(passage.whole for passage in passages if passage)
    if not passages or None in passages or not row["facts"]:
        return "Its passage is not there." if row["facts"] else "It states no fact."
    return next((f"Its passage does not state “{fact}”." for fact in row["facts"] if not states(text, fact)), "")
