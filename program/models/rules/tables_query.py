"""A filled question as one SELECT."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from sqlglot import exp
from sqlglot.dialects.dialect import Dialect

from program.models.table_schema import Column, Schema, Table

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
class Measure:
    """What is added up, averaged or ordered by: a column, a product of two, or the days from one to another."""

    columns: tuple[Column, ...]
    days: bool = False

    @property
    def title(self) -> str:
        """How it is called in a sentence."""
        if self.days:
            return f"days from {self.columns[0].name} to {self.columns[1].name}"
        return " x ".join(c.name for c in self.columns)


@dataclass(frozen=True, slots=True)
class Query:
    """Everything a SELECT needs, and how well it accounts for the question.

    `order` is None, or True for the largest first. `share_of` are the filters of the whole that a share is
    taken of; `having` bounds the number of rows of a group. `confidence` is in [0, 1].
    """

    table: Table
    intent: Intent
    filters: tuple[Filter, ...] = ()
    share_of: tuple[Filter, ...] = ()
    measure: Measure | None = None
    group: Column | None = None
    part: Part = ""
    having: tuple[str, float] | None = None
    order: bool | None = None
    limit: int | None = None
    asked: tuple[Column, ...] = ()
    confidence: float = 0.0


def statement(query: Query, schema: Schema) -> str:
    """The SQL of a filled question, in the schema's dialect, names quoted where they must be."""
    used = [*(f.column for f in (*query.filters, *query.share_of)), *query.asked]
    used += [*(query.measure.columns if query.measure else ()), *([query.group] if query.group else [])]
    joined = dict.fromkeys(c.table for c in used if c.table != query.table.name)
    build = _Build(query, schema, bool(joined))
    select = build.select().from_(build.table(query.table.name))
    for name in joined:
        link = next(k for k in query.table.links if k.to_table == name)
        on = exp.EQ(this=build.name(query.table.name, link.column), expression=build.name(name, link.to_column))
        select = select.join(build.table(name), on=on, join_type="left")
    where = query.share_of if query.intent == "share" else query.filters
    conditions = [build.condition(f) for f in where]
    if query.intent in ("rows", "values") and query.measure and query.order is not None:
        conditions += [exp.Not(this=exp.Is(this=build.column(c), expression=exp.Null())) for c in query.measure.columns]
    if conditions:
        select = select.where(*conditions)
    return str(build.ordered(select).sql(dialect=schema.dialect))


class _Build:
    def __init__(self, query: Query, schema: Schema, qualified: bool) -> None:
        self.query, self.schema, self.qualified = query, schema, qualified
        self.keywords = {k.upper() for k in Dialect.get_or_raise(schema.dialect).tokenizer_class.KEYWORDS}

    def identifier(self, name: str) -> exp.Identifier:
        plain = re.fullmatch(r"[a-z_][a-z0-9_]*", name) and name.upper() not in self.keywords
        return exp.to_identifier(name, quoted=not plain)

    def table(self, name: str) -> exp.Table:
        return exp.Table(this=self.identifier(name))

    def name(self, table: str, column: str) -> exp.Column:
        return exp.Column(this=self.identifier(column), table=self.identifier(table) if self.qualified else None)

    def column(self, column: Column) -> exp.Column:
        return self.name(column.table, column.name)

    def measure(self, measure: Measure) -> exp.Expr:
        first, *rest = (self.column(c) for c in measure.columns)
        if measure.days:
            start, end = (exp.func("JULIANDAY", c) for c in (first, rest[0]))
            return exp.Sub(this=end, expression=start)
        return exp.Mul(this=first, expression=rest[0]) if rest else first

    def group(self) -> exp.Expr:
        assert self.query.group is not None
        column = self.column(self.query.group)
        if not self.query.part:
            return column
        length = exp.Literal.number(_PART_LENGTH[self.query.part])
        return exp.Substring(this=column, start=exp.Literal.number(1), length=length)

    def result(self) -> exp.Expr:
        query, count = self.query, exp.Count(this=exp.Star())
        if query.intent == "distinct count" and query.asked:
            return exp.Count(this=exp.Distinct(expressions=[self.column(query.asked[0])]))
        if query.intent == "share":
            met = exp.and_(*(self.condition(f) for f in query.filters))
            ones = exp.Case().when(met, exp.Literal.number(1)).else_(exp.Literal.number(0))
            percent = exp.Mul(this=exp.Literal.number("100.0"), expression=exp.Sum(this=ones))
            return exp.Round(this=exp.Div(this=percent, expression=count), decimals=exp.Literal.number(1))
        if query.measure and query.intent in ("sum", "avg"):
            node = exp.Sum if query.intent == "sum" else exp.Avg
            return node(this=self.measure(query.measure))
        return count

    def select(self) -> exp.Select:
        query = self.query
        if query.intent == "values":
            return exp.select(*(self.column(c) for c in query.asked)).distinct()
        if query.intent in ("rows", "lookup"):
            extra = []
            if query.measure and (len(query.measure.columns) > 1):
                extra = [exp.alias_(self.measure(query.measure), RESULT)]
            return exp.select(*(self.column(c) for c in query.asked), *extra)
        result = exp.alias_(self.result(), RESULT)
        if query.group is None:
            return exp.select(result)
        named = exp.alias_(self.group(), query.part) if query.part else self.group()
        return exp.select(named, result)

    def ordered(self, select: exp.Select) -> exp.Select:
        query = self.query
        if query.group is not None:
            select = select.group_by(self.group())
            if query.having:
                op, number = query.having
                select = select.having(_COMPARISONS[op](this=exp.Count(this=exp.Star()), expression=_literal(number)))
            if query.order is not None:
                return select.order_by(exp.Ordered(this=exp.column(RESULT), desc=query.order), self.group()).limit(
                    query.limit or 200
                )
            return select.order_by(self.group())
        if query.intent == "values":
            return select.order_by(*(self.column(c) for c in query.asked))
        if query.intent not in ("rows", "lookup"):
            return select
        if query.measure and query.order is not None:
            select = select.order_by(exp.Ordered(this=self.measure(query.measure), desc=query.order))
        key = next((c for c in query.table.columns if c.unique), query.table.columns[0])
        return select.order_by(self.column(key)).limit(query.limit or 200)

    def condition(self, filter_: Filter) -> exp.Expr:
        column, op, values = self.column(filter_.column), filter_.op, filter_.values
        if op in ("blank", "filled"):
            blank = exp.Is(this=column, expression=exp.Null())
            return blank if op == "blank" else exp.Not(this=blank)
        if op in ("contains", "lacks"):
            like = exp.Like(this=column, expression=exp.Literal.string(f"%{values[0]}%"))
            return like if op == "contains" else exp.Not(this=like)
        if op in ("in", "not in"):
            found = exp.In(this=column, expressions=[_literal(v) for v in values])
            return found if op == "in" else exp.Not(this=found)
        return _COMPARISONS[op](this=column, expression=_literal(values[0]))


def _literal(value: str | float | bool) -> exp.Expr:
    if isinstance(value, bool):
        return exp.Boolean(this=value)
    if isinstance(value, str):
        return exp.Literal.string(value)
    return exp.Literal.number(str(int(value)) if float(value).is_integer() else repr(float(value)))


def merged(filters: Sequence[Filter]) -> tuple[Filter, ...]:
    """The filters without repeats, equalities on one column as one `in`."""
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


def in_words(filters: Sequence[Filter]) -> str:
    """The filters as a clause: ` where country is France and status is not cancelled`; empty without any."""
    verbs = {"=": "is", "<>": "is not", "in": "is one of", "not in": "is none of", ">": "is over", ">=": "is at least",
             "<": "is under", "<=": "is at most", "blank": "is empty", "filled": "is not empty",
             "contains": "contains", "lacks": "does not contain"}  # fmt: skip
    parts = []
    for f in filters:
        verb = verbs[f.op]
        if f.column.kind == "date":
            verb = {">=": "is on or after", "<": "is before"}.get(f.op, verb)
        shown = ", ".join(v if isinstance(v, str) else f"{v:g}" for v in f.values)
        parts.append(f"{f.column.name} {verb}{' ' + shown if shown else ''}")
    return " where " + " and ".join(parts) if parts else ""
