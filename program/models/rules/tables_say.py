"""The result of a query in words: a sentence, or a small Markdown table, then the SQL on its own line."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from program.models.rules.tables_query import RESULT, Query, in_words

SHOWN_ROWS = 10
_COMPUTED = {
    "count": "count",
    "distinct count": "count of different",
    "avg": "average",
    "sum": "total",
    "share": "share",
}


def title(query: Query) -> str:
    """`orders > total quantity where country is France`."""
    return f"{query.table.name} > {_computed(query)}{in_words(query.filters)}"


def text(query: Query, names: Sequence[str], rows: Sequence[Sequence[Any]], sql: str) -> str:
    """The sentence or table, and the SQL on its last line."""
    subject = query.table.name.replace("_", " ")
    subject = subject[:1].upper() + subject[1:]
    if query.intent == "share":
        whole = in_words(query.share_of)
        said = f"{subject}{whole}: the share{in_words(query.filters)} is {shown(rows[0][0])} percent."
    elif query.group is None and query.intent not in ("rows", "lookup", "values"):
        said = f"{subject}{in_words(query.filters)}: {_computed(query)} {shown(rows[0][0])}."
    elif query.intent == "values":
        said = f"{subject}{in_words(query.filters)}: {names[0]} is one of {', '.join(shown(r[0]) for r in rows)}."
    else:
        said = _rows(query, subject, names, rows)
    return f"{said}\nSQL: {' '.join(sql.split())}"


def _rows(query: Query, subject: str, names: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    heads = [_computed(query) if n == RESULT else n for n in names]
    lead = f"{subject}{in_words(query.filters)}"
    if query.group is not None:
        lead += f", {_computed(query)} by {query.part or query.group.name}"
    if query.order is not None:
        what = query.measure.title if query.measure and query.group is None else _computed(query)
        dated = (
            query.measure is not None
            and query.group is None
            and query.measure.columns[0].kind == "date"
            and not query.measure.days
        )
        first = ("latest" if query.order else "earliest") if dated else ("highest" if query.order else "lowest")
        lead += f", {first} {what} first"
    if len(rows) == 1:
        return f"{lead}: {', '.join(f'{h} {shown(v)}' for h, v in zip(heads, rows[0], strict=True) if v is not None)}."
    cells = ([_cell(value) for value in row] for row in rows[:SHOWN_ROWS])
    lines = [f"| {' | '.join(line)} |" for line in (heads, ["---"] * len(heads), *cells)]
    more = f" (the first {SHOWN_ROWS} of {len(rows)})" if len(rows) > SHOWN_ROWS else ""
    return "\n".join([f"{lead}{more}:", "", *lines, ""])


def _computed(query: Query) -> str:
    word = _COMPUTED.get(query.intent, "rows")
    if query.intent == "distinct count" and query.asked:
        return f"{word} {query.asked[0].name}"
    return f"{word} {query.measure.title}" if query.measure and query.intent in ("sum", "avg") else word


def _cell(value: Any) -> str:
    return shown(value).replace("|", "\\|").replace("\n", " ")


def shown(value: Any) -> str:
    """A value as a reader sees it: figures to two decimals, a missing one as a dash."""
    if value is None:
        return "-"
    if isinstance(value, float | Decimal):
        return f"{value:.2f}".rstrip("0").rstrip(".")
    return str(value)
