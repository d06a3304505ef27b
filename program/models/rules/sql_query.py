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
_COMPARISONS: dict[str, type[exp.Binary]] = {
    "=": exp.EQ, "<>": exp.NEQ, ">": exp.GT, ">=": exp.GTE, "<": exp.LT, "<=": exp.LTE,
}  # fmt: skip
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

    `order` is None, or True for the largest first. `share_of` are the filters of the whole that a share is taken of;
    `having` bounds the number of rows of a group.
    """

    table: TableSchema
    intent: Intent
    filters: tuple[Filter, ...] = ()
    share_of: tuple[Filter, ...] = ()
    measure: MeasureExpression | None = None
    group: Column | None = None
    part: Part = ""
    having: tuple[str, float] | None = None
    order: bool | None = None
    limit: int | None = None
    asked: tuple[Column, ...] = ()
    confidence: float = 0.0


def write_sql(query: Query, schema: Schema) -> str:
    """Return the SELECT of a query in the schema's dialect, names quoted where they must be."""
    used = [*(f.column for f in (*query.filters, *query.share_of)), *query.asked]
    used += [*(query.measure.columns if query.measure else ()), *([query.group] if query.group else [])]
    joined = dict.fromkeys(c.table for c in used if c.table != query.table.name)
    build = _SelectBuilder(query, schema, bool(joined))
    select = build.select_columns().from_(build.table_node(query.table.name))
    for name in joined:
        key = next(k for k in query.table.foreign_keys if k.to_table == name)
        own, other = build.name_node(query.table.name, key.column), build.name_node(name, key.to_column)
        select = select.join(build.table_node(name), on=own.eq(other), join_type="left")
    where = query.share_of if query.intent == "share" else query.filters
    conditions = [build.condition_node(f) for f in where]
    if query.intent in ("rows", "values") and query.measure and query.order is not None:
        conditions += [build.column_node(c).is_(exp.null()).not_() for c in query.measure.columns]
    if conditions:
        select = select.where(*conditions)
    return str(build.group_and_order(select).sql(dialect=schema.dialect))


class _SelectBuilder:
    """The parts of one SELECT as sqlglot's nodes."""

    def __init__(self, query: Query, schema: Schema, qualified: bool) -> None:
        self.query, self.qualified = query, qualified
        self.keywords = {k.upper() for k in Dialect.get_or_raise(schema.dialect).tokenizer_class.KEYWORDS}

    def quote_name(self, name: str) -> exp.Identifier:
        plain = re.fullmatch(r"[a-z_][a-z0-9_]*", name) and name.upper() not in self.keywords
        return exp.to_identifier(name, quoted=not plain)

    def table_node(self, name: str) -> exp.Table:
        return exp.Table(this=self.quote_name(name))

    def name_node(self, table: str, column: str) -> exp.Column:
        return exp.Column(this=self.quote_name(column), table=self.quote_name(table) if self.qualified else None)

    def column_node(self, column: Column) -> exp.Column:
        return self.name_node(column.table, column.name)

    def measure_node(self, measure: MeasureExpression) -> exp.Expr:
        first, *rest = (self.column_node(c) for c in measure.columns)
        if measure.days:
            start, end = (exp.func("JULIANDAY", c) for c in (first, rest[0]))
            return exp.Sub(this=end, expression=start)
        return exp.Mul(this=first, expression=rest[0]) if rest else first

    def group_node(self, group: Column) -> exp.Expr:
        column = self.column_node(group)
        if not self.query.part:
            return column
        length = exp.Literal.number(_PART_LENGTH[self.query.part])
        return exp.Substring(this=column, start=exp.Literal.number(1), length=length)

    def result_node(self) -> exp.Expr:
        query, count = self.query, exp.Count(this=exp.Star())
        if query.intent == "distinct count" and query.asked:
            return exp.Count(this=exp.Distinct(expressions=[self.column_node(query.asked[0])]))
        if query.intent == "share":
            met = exp.and_(*(self.condition_node(f) for f in query.filters))
            ones = exp.Case().when(met, exp.Literal.number(1)).else_(exp.Literal.number(0))
            percent = exp.Mul(this=exp.Literal.number("100.0"), expression=exp.Sum(this=ones))
            return exp.Round(this=exp.Div(this=percent, expression=count), decimals=exp.Literal.number(1))
        if query.measure and query.intent in ("sum", "avg"):
            node = exp.Sum if query.intent == "sum" else exp.Avg
            return node(this=self.measure_node(query.measure))
        return count

    def select_columns(self) -> exp.Select:
        query = self.query
        if query.intent in ("rows", "lookup", "values"):
            columns: list[exp.Expr] = [self.column_node(c) for c in query.asked]
            if query.intent == "values":
                return exp.select(*columns).distinct()
            if query.measure and len(query.measure.columns) > 1:
                columns.append(exp.alias_(self.measure_node(query.measure), RESULT))
            return exp.select(*columns)
        result = exp.alias_(self.result_node(), RESULT)
        if query.group is None:
            return exp.select(result)
        group = self.group_node(query.group)
        return exp.select(exp.alias_(group, query.part) if query.part else group, result)

    def group_and_order(self, select: exp.Select) -> exp.Select:
        query = self.query
        if query.group is not None:
            group = self.group_node(query.group)
            select = select.group_by(group)
            if query.having:
                op, number = query.having
                select = select.having(_COMPARISONS[op](this=exp.Count(this=exp.Star()), expression=_literal(number)))
            if query.order is None:
                return select.order_by(group)
            first = exp.Ordered(this=exp.column(RESULT), desc=query.order)
            return select.order_by(first, group).limit(query.limit or 200)
        if query.intent == "values":
            return select.order_by(*(self.column_node(c) for c in query.asked))
        if query.intent not in ("rows", "lookup"):
            return select
        if query.measure and query.order is not None:
            select = select.order_by(exp.Ordered(this=self.measure_node(query.measure), desc=query.order))
        key = next((c for c in query.table.columns if c.unique), query.table.columns[0])
        return select.order_by(self.column_node(key)).limit(query.limit or 200)

    def condition_node(self, filter_: Filter) -> exp.Expr:
        column, op, values = self.column_node(filter_.column), filter_.op, filter_.values
        if op in ("blank", "filled"):
            met: exp.Expr = column.is_(exp.null())
        elif op in ("contains", "lacks"):
            met = column.like(exp.Literal.string(f"%{values[0]}%"))
        elif op in ("in", "not in"):
            met = exp.In(this=column, expressions=[_literal(v) for v in values])
        else:
            met = _COMPARISONS[op](this=column, expression=_literal(values[0]))
        return met.not_() if op in ("filled", "lacks", "not in") else met


def _literal(value: str | float | bool) -> exp.Expr:
    if isinstance(value, bool):
        return exp.Boolean(this=value)
    if isinstance(value, str):
        return exp.Literal.string(value)
    return exp.Literal.number(str(int(value)) if float(value).is_integer() else repr(float(value)))


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
