"""A project's labelled questions against its own knowledge and tables."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from optimize.datacheck import Report, check
from optimize.dataset import LabelledQuestion
from program.errors import DataError, RagcError
from program.knowledge.library import Library
from program.knowledge.tables import Tables, checked

SHOWN = 3


class LibraryTables:
    """The tables of a library as the check of the labels wants them."""

    def __init__(self, library: Library) -> None:
        self._sources = [source for source in library.sources.values() if isinstance(source, Tables)]

    @property
    def names(self) -> Collection[str]:
        """`<base>/<table>` of every table."""
        return {f"{source.name}/{table.name}" for source in self._sources for table in source.schema.tables}

    def select(self, sql: str) -> str:
        """The rows of a SELECT as text. Raises `RagcError` when no source of tables can run it."""
        problem: RagcError = DataError("The project has no tables.", 'Add a base of kind "tables".')
        for source in self._sources:
            try:
                return _text(*source.rows(checked(sql, source.schema)))
            except RagcError as error:
                problem = error
        raise problem

    def text(self) -> str:
        """Every value of every table."""
        return "\n".join(
            _text(*source.rows(f'SELECT * FROM "{table.name}"'))
            for source in self._sources
            for table in source.schema.tables
        )


def _text(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    return "\n".join(" | ".join(str(value) for value in row) for row in [columns, *rows])


def check_labels(library: Library, questions: Sequence[LabelledQuestion]) -> Report:
    """What is wrong with the labels, given what the library holds."""
    return check(questions, {p.id: p for p in library.passages()}, LibraryTables(library))


def require_sound_labels(library: Library, questions: Sequence[LabelledQuestion]) -> None:
    """Raises `DataError`, with the first findings, when the labels contradict the knowledge or each other."""
    report = check_labels(library, questions)
    if report.passed:
        return
    first = "; ".join(f"line {f.line} ({f.id}): {f.what}" for f in report.errors[:SHOWN])
    raise DataError(
        f"{len(report.errors)} labels are not in order: {first}", "See them all with: ragc data check PROJECT"
    )
