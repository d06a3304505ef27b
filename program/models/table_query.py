"""A question about tables as one SELECT, and its result in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from program.models.rules.query_parser import parse_question
from program.models.rules.scoring import Encoder
from program.models.rules.sql_query import RESULT, Filter, Query, write_sql
from program.models.table_schema import Schema

LOOKUP_ROWS = 10
"""Rows up to which a question that names no operation can have meant to look them up."""
SHOWN_ROWS = 10
_COMPUTED = {
    "count": "count", "distinct count": "count of different", "avg": "average", "sum": "total", "share": "share"
}  # fmt: skip
_VERBS = {
    "=": "is", "<>": "is not", "in": "is one of", "not in": "is none of", ">": "is over", ">=": "is at least",
    "<": "is under", "<=": "is at most", "blank": "is empty", "filled": "is not empty", "contains": "contains",
    "lacks": "does not contain",
}  # fmt: skip
_DATE_VERBS = {">=": "is on or after", "<": "is before"}


@dataclass(frozen=True, slots=True)
class TableQuery:
    """A query that answers a question over a schema."""

    query: Query
    schema: Schema

    @property
    def sql(self) -> str:
        """The SELECT, in the schema's dialect."""
        return write_sql(self.query, self.schema)

    @property
    def confidence(self) -> float:
        """How much of the question the query accounts for, 0 to 1."""
        return self.query.confidence

    @property
    def table(self) -> str:
        """The name of the table whose rows are counted or shown."""
        return self.query.table.name

    @property
    def title(self) -> str:
        """The query in words: `orders > total quantity where country is France`."""
        return f"{self.table} > {_computed_name(self.query)}{_filters_in_words(self.query.filters)}"

    @property
    def ranked(self) -> int | None:
        """How many of the first rows are asked for; None when they have no order."""
        return None if self.query.order is None else self.query.limit

    def with_limit(self, limit: int) -> TableQuery:
        """Return the same query for so many rows."""
        return replace(self, query=replace(self.query, limit=limit))

    def rank_column(self, names: Sequence[str]) -> int:
        """Return the place of the column that the rows of a result are ordered by."""
        measure = self.query.measure
        return list(names).index(measure.columns[0].name if measure and RESULT not in names else RESULT)

    def is_answered_by(self, rows: Sequence[Sequence[Any]]) -> bool:
        """Tell whether the rows are an answer.

        None, only NULL, or too many to be meant are no answer.
        """
        if not rows or all(value is None for value in rows[0]):
            return False
        return self.query.intent != "lookup" or len(rows) <= LOOKUP_ROWS

    def say_result(self, names: Sequence[str], rows: Sequence[Sequence[Any]], sql: str) -> str:
        """Write the result as a sentence or Markdown table, and the SQL on its last line."""
        query = self.query
        subject = query.table.name.replace("_", " ")
        subject = subject[:1].upper() + subject[1:]
        where = _filters_in_words(query.filters)
        if query.intent == "share":
            whole = _filters_in_words(query.share_of)
            said = f"{subject}{whole}: the share{where} is {show_value(rows[0][0])} percent."
        elif query.group is None and query.intent not in ("rows", "lookup", "values"):
            said = f"{subject}{where}: {_computed_name(query)} {show_value(rows[0][0])}."
        elif query.intent == "values":
            said = f"{subject}{where}: {names[0]} is one of {', '.join(show_value(row[0]) for row in rows)}."
        else:
            said = _say_rows(query, subject + where, names, rows)
        return f"{said}\nSQL: {' '.join(sql.split())}"


def write_table_query(question: str, schema: Schema, encoder: Encoder) -> TableQuery | None:
    """Return the query that accounts best for a question, if any does.

    No model is asked: the query is filled from the question's words, the schema and its values. None when the question
    names nothing of the tables.
    """
    query = parse_question(question, schema, encoder)
    return TableQuery(query, schema) if query else None


def show_value(value: Any) -> str:
    """Write a value for a reader: figures to two decimals, a missing one as a dash."""
    if value is None:
        return "-"
    if isinstance(value, float | Decimal):
        return f"{value:.2f}".rstrip("0").rstrip(".")
    return str(value)


def _say_rows(query: Query, lead: str, names: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    heads = [_computed_name(query) if n == RESULT else n for n in names]
    if query.group is not None:
        lead += f", {_computed_name(query)} by {query.part or query.group.name}"
    if query.order is not None:
        measure = query.measure if query.group is None else None
        dated = measure is not None and measure.columns[0].kind == "date" and not measure.days
        first = ("latest" if query.order else "earliest") if dated else ("highest" if query.order else "lowest")
        lead += f", {first} {measure.title if measure else _computed_name(query)} first"
    if len(rows) == 1:
        told = (f"{head} {show_value(v)}" for head, v in zip(heads, rows[0], strict=True) if v is not None)
        return f"{lead}: {', '.join(told)}."
    cells = ([show_value(v).replace("|", "\\|").replace("\n", " ") for v in row] for row in rows[:SHOWN_ROWS])
    lines = [f"| {' | '.join(line)} |" for line in (heads, ["---"] * len(heads), *cells)]
    more = f" (the first {SHOWN_ROWS} of {len(rows)})" if len(rows) > SHOWN_ROWS else ""
    return "\n".join([f"{lead}{more}:", "", *lines, ""])


def _computed_name(query: Query) -> str:
    word = _COMPUTED.get(query.intent, "rows")
    if query.intent == "distinct count" and query.asked:
        return f"{word} {query.asked[0].name}"
    return f"{word} {query.measure.title}" if query.measure and query.intent in ("sum", "avg") else word


def _filters_in_words(filters: Sequence[Filter]) -> str:
    """Write filters as ` where country is France and status is not cancelled`; none give an empty text."""
    parts = []
    for f in filters:
        verb = _DATE_VERBS.get(f.op, _VERBS[f.op]) if f.column.kind == "date" else _VERBS[f.op]
        shown = ", ".join(v if isinstance(v, str) else f"{v:g}" for v in f.values)
        parts.append(f"{f.column.name} {verb}{' ' + shown if shown else ''}")
    return " where " + " and ".join(parts) if parts else ""
