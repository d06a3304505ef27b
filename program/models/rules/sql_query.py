"""A query over one table and those it points at, and its SELECT statement."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from sqlglot import exp
from sqlglot.dialects.dialect import Dialect

from program.models.table_schema import Column, Schema, TableSchema

Op = Literal["=", "<>", "in", "not in", ">", ">=", "<", "<=", "blank", "filled", "contains", "lacks"]
Intent = Literal["count", "distinct count", "sum", "avg", "share", "rows", "values", "lookup"]
Part = Literal["", "month", "year", "day"]
_PART_LENGTH = {"year": 4, "month": 7, "day": 10}
RESULT = "result"


@dataclass(frozen=True, slots=True)
class Filter:
    """A condition on one column; `at` is the index of the word that asked for it."""

    column: Column
    op: Op
    values: tuple[str | float | bool, ...] = ()
    at: int = -1


@dataclass(frozen=True, slots=True)
class MeasureExpression:
    """What is added up, averaged or ordered by: a column, a product, or days between two."""

    columns: tuple[Column, ...]
    days: bool = False

    @property
    def title(self) -> str:
        """Its name in a sentence."""
        if self.days:
            return f"days from {self.columns[0].name} to {self.columns[1].name}"
        return " x ".join(c.name for c in self.columns)


@dataclass(frozen=True, slots=True)
class Query:
    """Everything a SELECT needs, and how well it accounts for the question (`confidence`, 0 to 1).

    `order` is None, or True for the largest first. `share_of` are the filters of the whole that a share is taken of.
    """

    table: TableSchema
    intent: Intent
    filters: tuple[Filter, ...] = ()
    share_of: tuple[Filter, ...] = ()
    measure: MeasureExpression | None = None
    group: Column | None = None
    part: Part = ""
    order: bool | None = None
    limit: int | None = None
    asked: tuple[Column, ...] = ()
    confidence: float = 0.0


def write_sql(query: Query, schema: Schema) -> str:
    """Return the SELECT statement of a query in the schema's dialect."""
    used = [*(f.column for f in (*query.filters, *query.share_of)), *query.asked]
    used += [*(query.measure.columns if query.measure else ()), *([query.group] if query.group else [])]
    joined = dict.fromkeys(c.table for c in used if c.table != query.table.name)
    writer = _SqlWriter(query, schema.dialect, bool(joined))
    sql = f"SELECT {writer.write_columns()} FROM {writer.write_name(query.table.name)}"
    for name in joined:
        key = next(k for k in query.table.foreign_keys if k.to_table == name)
        keys = [writer.write_name(part) for part in (query.table.name, key.column, name, key.to_column)]
        sql += f" LEFT JOIN {keys[2]} ON {keys[0]}.{keys[1]} = {keys[2]}.{keys[3]}"
    conditions = [writer.write_condition(f) for f in (query.share_of if query.intent == "share" else query.filters)]
    if query.intent in ("rows", "values") and query.measure and query.order is not None:
        conditions += [f"NOT {writer.write_column(c)} IS NULL" for c in query.measure.columns]
    if conditions:
        sql += f" WHERE {' AND '.join(conditions)}"
    return sql + writer.write_order()


class _SqlWriter:
    """The clauses of one SELECT as text."""

    def __init__(self, query: Query, dialect: str, qualified: bool) -> None:
        self.query, self.dialect, self.qualified = query, dialect, qualified
        self.keywords = {k.upper() for k in Dialect.get_or_raise(dialect).tokenizer_class.KEYWORDS}

    def write_name(self, name: str) -> str:
        plain = re.fullmatch(r"[a-z_][a-z0-9_]*", name) and name.upper() not in self.keywords
        return str(exp.to_identifier(name, quoted=not plain).sql(dialect=self.dialect))

    def write_column(self, column: Column) -> str:
        name = self.write_name(column.name)
        return f"{self.write_name(column.table)}.{name}" if self.qualified else name

    def write_measure(self, measure: MeasureExpression) -> str:
        columns = [self.write_column(c) for c in measure.columns]
        return f"JULIANDAY({columns[1]}) - JULIANDAY({columns[0]})" if measure.days else " * ".join(columns)

    def write_group(self, group: Column) -> str:
        part, column = self.query.part, self.write_column(group)
        return f"SUBSTRING({column}, 1, {_PART_LENGTH[part]})" if part else column

    def write_result(self) -> str:
        query = self.query
        if query.intent == "distinct count" and query.asked:
            return f"COUNT(DISTINCT {self.write_column(query.asked[0])})"
        if query.intent == "share":
            met = " AND ".join(self.write_condition(f) for f in query.filters)
            return f"ROUND(CAST(100.0 * SUM(CASE WHEN {met} THEN 1 ELSE 0 END) AS DOUBLE) / COUNT(*), 1)"
        if query.measure and query.intent in ("sum", "avg"):
            return f"{query.intent.upper()}({self.write_measure(query.measure)})"
        return "COUNT(*)"

    def write_columns(self) -> str:
        query = self.query
        if query.intent not in ("rows", "lookup", "values"):
            result = f"{self.write_result()} AS {RESULT}"
            if query.group is None:
                return result
            return f"{self.write_group(query.group)}{f' AS {query.part}' if query.part else ''}, {result}"
        columns = ", ".join(self.write_column(c) for c in query.asked)
        if query.intent == "values":
            return f"DISTINCT {columns}"
        if query.measure and len(query.measure.columns) > 1:
            columns += f", {self.write_measure(query.measure)} AS {RESULT}"
        return columns

    def write_order(self) -> str:
        query = self.query
        direction = "DESC" if query.order else "ASC NULLS LAST"
        if query.group is not None:
            group = self.write_group(query.group)
            ranked = "" if query.order is None else f"{RESULT} {direction}, "
            limit = "" if query.order is None else f" LIMIT {query.limit or 200}"
            return f" GROUP BY {group} ORDER BY {ranked}{group}{limit}"
        if query.intent == "values":
            return f" ORDER BY {', '.join(self.write_column(c) for c in query.asked)}"
        if query.intent not in ("rows", "lookup"):
            return ""
        ranked = (
            f"{self.write_measure(query.measure)} {direction}, " if query.measure and query.order is not None else ""
        )
        key = next((c for c in query.table.columns if c.unique), query.table.columns[0])
        return f" ORDER BY {ranked}{self.write_column(key)} LIMIT {query.limit or 200}"

    def write_condition(self, filter_: Filter) -> str:
        column, op, values = self.write_column(filter_.column), filter_.op, filter_.values
        if op in ("blank", "filled"):
            met = f"{column} IS NULL"
        elif op in ("contains", "lacks"):
            met = f"{column} LIKE {_write_literal(f'%{values[0]}%')}"
        elif op in ("in", "not in"):
            met = f"{column} IN ({', '.join(map(_write_literal, values))})"
        else:
            met = f"{column} {op} {_write_literal(values[0])}"
        return f"NOT {met}" if op in ("filled", "lacks", "not in") else met


def _write_literal(value: str | float | bool) -> str:
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, str):
        return str(exp.Literal.string(value).sql())
    return str(int(value)) if float(value).is_integer() else repr(float(value))


def merge_filters(filters: Sequence[Filter]) -> tuple[Filter, ...]:
    """Return the filters without repeats, equalities on one column as one `in`."""
    found: list[Filter] = []
    for f in dict.fromkeys(replace(f, at=-1) for f in filters):
        alike = next((sides for sides in ({"=", "in"}, {"<>", "not in"}) if f.op in sides), None)
        same = next((i for i, g in enumerate(found) if alike and g.column == f.column and g.op in alike), None)
        if same is None:
            found.append(f)
            continue
        together = tuple(dict.fromkeys([*found[same].values, *f.values]))
        op: Op = f.op if len(together) == 1 else "in" if f.op in ("=", "in") else "not in"
        found[same] = replace(found[same], op=op, values=together)
    return tuple(found)
