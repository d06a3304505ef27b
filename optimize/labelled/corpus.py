"""The knowledge of a project as it lies on disk: passages by id and tables, without an index or a model."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from program.errors import KnowledgeError
from program.kindsettings import TablesSettings
from program.passage import Flaw, Passage
from program.settings import Project

if TYPE_CHECKING:
    from program.knowledge.tables import Tables


class ProjectTables:
    """Every table of the project's bases of kind "tables", to read from only."""

    def __init__(self, bases: Sequence[Tables]) -> None:
        self._bases = tuple(bases)

    @property
    def names(self) -> Collection[str]:
        """`<base>/<table>` of every table."""
        return {f"{base.name}/{table.name}" for base in self._bases for table in base.schema.tables}

    def select(self, sql: str) -> str:
        """The rows of one SELECT on the first base that can run it, a line each, column names first.

        Raises `KnowledgeError` when there is none, or it is anything but a SELECT.
        """
        from program.knowledge.tables import checked

        problem = KnowledgeError("The project has no tables.", 'Add a knowledge base of kind "tables".')
        for base in self._bases:
            try:
                names, rows = base.rows(checked(sql, base.schema))
                return _lines([names, *rows])
            except KnowledgeError as error:
                problem = error
        raise problem

    def text(self) -> str:
        """Every value of every table, a line a row."""
        return "\n".join(
            _lines(base.rows(f'SELECT * FROM "{table.name}"')[1])
            for base in self._bases
            for table in base.schema.tables
        )


def _lines(rows: Sequence[Sequence[Any]]) -> str:
    return "\n".join(" | ".join("" if value is None else str(value) for value in row) for row in rows)


@dataclass(frozen=True, slots=True)
class Corpus:
    """What a project knows: its passages by id, its tables, and what is wrong with its files."""

    passages: dict[str, Passage]
    tables: ProjectTables
    flaws: tuple[Flaw, ...] = ()


def read_corpus(project: Project) -> Corpus:
    """The passages and tables of every base. Raises `KnowledgeError` for one that cannot be read."""
    from program.knowledge.ingest.folder import link_superseded, read_spec
    from program.knowledge.kinds import folders

    whole = link_superseded([read_spec(spec) for spec in folders(project)])
    settings = project.settings.knowledge.items()
    tables = [_tables(project, name, base) for name, base in settings if isinstance(base, TablesSettings)]
    unread = [Flaw(f"was not read: {one.reason.rstrip('.')}", path=one.path) for one in whole.skipped]
    passages = {passage.id: passage for passage in whole.passages}
    return Corpus(passages, ProjectTables(tables), (*unread, *whole.flaws))


def _tables(project: Project, name: str, base: TablesSettings) -> Tables:
    """A base of tables; what reads it takes long to import, and many projects have none."""
    from program.knowledge.tables import Tables
    from program.models.embedded.encoder import shared_embedder
    from program.passage import SourceCard

    # The embedder loads its model at the first question asked in words, and none is asked here.
    return Tables(name, SourceCard(name, base.kind, base.about), project.place(base), shared_embedder())
