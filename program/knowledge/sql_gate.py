"""The check of every SQL statement before it is run: one SELECT over known tables, within limits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from types import MappingProxyType
from typing import NamedTuple

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.qualify import qualify

from ragc.errors import KnowledgeError

MOST_ROWS = 200
MOST_CHARACTERS = 8_000
MOST_TABLES = 6
NO_GUARDS: Mapping[str, RowGuard] = MappingProxyType({})
ALIKE = 0.8  # of `difflib` at least, for a value that is taken for another
_MEND = "Ask for one SELECT over the tables and columns of this knowledge base."
_NODES = (
    exp.And, exp.Or, exp.Xor, exp.Case, exp.If, exp.Cast, exp.Count, exp.Sum, exp.Avg, exp.Min, exp.Max, exp.Round,
    exp.Abs, exp.Lower, exp.Upper, exp.Length, exp.Coalesce, exp.Nullif, exp.Substring, exp.Trim, exp.Date,
    exp.Extract, exp.TimeToStr, exp.Exists, exp.DateTrunc, exp.TimestampTrunc, exp.Year, exp.Month, exp.Day,
    exp.TsOrDsToDate, exp.TsOrDsToTimestamp, exp.Ceil, exp.Floor,
)  # fmt: skip
_NAMES = frozenset({"JULIANDAY", "STRFTIME", "IFNULL"})
_SETS = (exp.SetOperation, exp.Into, exp.Lock, exp.Command, exp.DDL, exp.DML, exp.Pragma, exp.Attach, exp.Placeholder,
         exp.Parameter, exp.SessionParameter, exp.Lateral, exp.Unnest, exp.Values)  # fmt: skip


class RowGuard(NamedTuple):
    """The rows of a table that are read: those with one of the `values` in a `column`, or nothing."""

    column: str
    collation: str
    """By which values are compared; empty for the column's own."""
    values: Sequence[str]

    def write(self) -> exp.Condition:
        """Return the condition in SQL."""
        held = exp.column(self.column, quoted=True)
        spelt: exp.Expression = exp.cast(held, "TEXT")
        if self.collation:
            spelt = exp.Collate(this=spelt, expression=exp.column(self.collation, quoted=True))
        listed = exp.In(this=spelt, expressions=[*map(exp.Literal.string, self.values)])
        return exp.or_(held.is_(exp.null()), *([listed] if self.values else []))


def check_sql(
    sql: str, columns: Mapping[str, Sequence[str]], dialect: str, guards: Mapping[str, RowGuard] = NO_GUARDS
) -> str:
    """Return the statement written afresh, limited to 200 rows, safe to run.

    Of a table in `guards` (in lower case) it reads only the rows that its guard admits.

    Raises `KnowledgeError` unless it is exactly one SELECT, without recursion or set operations, that reads only the
    `columns` of these tables and calls only allowed functions.
    """
    with _telling_faults():
        select = _parse_select(sql, dialect)
        for problem in _find_problems(select, columns):
            raise KnowledgeError(f"The SQL is refused: {problem}.", _MEND)
        typed = {table: dict.fromkeys(names, "TEXT") for table, names in columns.items()}
        qualify(select.copy(), dialect=dialect, schema=typed, validate_qualify_columns=True)
        for table in [one for one in select.find_all(exp.Table) if one.name.lower() in guards]:
            table.replace(_select_readable(table, columns, guards[table.name.lower()]))
        return str(_limit_rows(select).sql(dialect=dialect, comments=False))


@contextmanager
def _telling_faults() -> Iterator[None]:
    """Raise `KnowledgeError` for what sqlglot cannot read or write."""
    try:
        yield
    except SqlglotError as error:
        first = str(error).splitlines()[0].rstrip(".")
        raise KnowledgeError(f"The SQL cannot be understood: {first}.", _MEND) from error
    except RecursionError as error:
        raise KnowledgeError("The SQL is nested too deeply.", _MEND) from error


def _parse_select(sql: str, dialect: str) -> exp.Select:
    if len(sql) > MOST_CHARACTERS:
        raise KnowledgeError(f"The SQL is longer than {MOST_CHARACTERS} characters.", _MEND)
    statements = [one for one in sqlglot.parse(sql, dialect=dialect) if one is not None]
    if len(statements) != 1 or not isinstance(statements[0], exp.Select):
        raise KnowledgeError("The SQL is not exactly one SELECT statement.", _MEND)
    return statements[0]


def align_values(sql: str, values: Mapping[str, Mapping[str, Sequence[str]]], dialect: str) -> str:
    """Return the statement with values spelt as in the data.

    `values` are those of each column of each table. A text that is compared with a column gives way to the value that
    differs in case alone, or else to the one most like it. A text like none stays. Raises `KnowledgeError` for what is
    not exactly one SELECT.
    """
    with _telling_faults():
        select = _parse_select(sql, dialect)
        read = {table.name.lower() for table in select.find_all(exp.Table)}
        known: dict[str, dict[str, str]] = {}
        for table, columns in values.items():
            for column, held in columns.items() if table.lower() in read else ():
                known.setdefault(column.lower(), {}).update({value.casefold(): value for value in held})
        for compared in [*select.find_all(exp.EQ, exp.NEQ, exp.In)]:
            listed = compared.expressions if isinstance(compared, exp.In) else [compared.expression]
            sides = [compared.this, *listed]
            spelt = known.get(next((side.name.lower() for side in sides if isinstance(side, exp.Column)), ""), {})
            for literal in [side for side in sides if spelt and isinstance(side, exp.Literal) and side.is_string]:
                near = get_close_matches(literal.name.casefold(), spelt, 1, ALIKE)
                if near and literal.name not in spelt.values():
                    literal.replace(exp.Literal.string(spelt[near[0]]))
        return str(select.sql(dialect=dialect))


def _select_readable(table: exp.Table, columns: Mapping[str, Sequence[str]], guard: RowGuard) -> exp.Subquery:
    """Return what stands in a table's place: its known columns, of the rows that may be read."""
    name, known = next(pair for pair in columns.items() if pair[0].lower() == table.name.lower())
    rows = exp.select(*(exp.column(one, quoted=True) for one in known)).from_(exp.to_identifier(name, quoted=True))
    alias = table.args.get("alias") or exp.TableAlias(this=table.this.copy())
    return exp.Subquery(this=rows.where(guard.write()), alias=alias, joins=table.args.get("joins"))


def _find_problems(select: exp.Select, columns: Mapping[str, Sequence[str]]) -> Iterator[str]:
    own = {table.lower() for table in columns}
    known = own | {c.alias_or_name.lower() for c in select.find_all(exp.CTE)}
    tables = list(select.find_all(exp.Table))
    if not tables:
        yield "it reads no table"
    if len(tables) > MOST_TABLES:
        yield f"it names more than {MOST_TABLES} tables"
    for table in tables:
        if not isinstance(table.this, exp.Identifier) or table.db or table.catalog:
            yield f"{table.sql()} is no table of this knowledge base"
        elif table.name.lower() not in known:
            yield f"there is no table {table.name}"
    for node in select.walk():
        if isinstance(node, exp.With) and node.recursive:
            yield "a recursive expression is not allowed"
        elif isinstance(node, exp.CTE) and node.alias_or_name.lower() in own:
            yield f"{node.alias_or_name} hides a table"
        elif isinstance(node, _SETS):
            yield f"{node.key.upper()} is not allowed"
        elif isinstance(node, exp.Func) and not isinstance(node, _NODES):
            name = node.name.upper() if isinstance(node, exp.Anonymous) else node.sql_name()
            if name not in _NAMES:
                yield f"the function {name} is not allowed"


def _limit_rows(select: exp.Select) -> exp.Select:
    limit = select.args.get("limit")
    count = limit.expression if isinstance(limit, exp.Limit) else None
    if isinstance(count, exp.Literal) and count.name.isdigit() and int(count.name) <= MOST_ROWS:
        return select
    select.set("limit", None)
    return select.limit(MOST_ROWS)
