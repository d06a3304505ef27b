"""Rows of a table that a question names, counted, added up, averaged or ranked, without a language model.

Columns and cells are matched by their text, what is added up or ranked by the embedder's cosine. Five operations over
rows selected by cells, dates and numbers are attempted; a question beyond them gets the rows alone, or nothing.
"""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any, Literal

from sqlglot import exp

from program.models.embedded.encoder import Embedder
from program.models.table_schema import Column, Schema, TableSchema
from program.text.words import STOP_WORDS, stem_word

Operation = Literal["count", "sum", "avg", "min", "max", ""]
UNTELLING = STOP_WORDS | {"many", "much"}  # words that name no column and no cell
SHOWN_ROWS = 10
"""Rows that are shown, and up to which a question without an operation can mean them all."""
ALIKE, LONG = 0.85, 6  # likeness of spelling, and length, from which a word is a misspelt cell
MARGIN = 0.1  # cosine by which a superlative must be nearer to one end than to the other
NEAR = 0.2  # cosine of a question and a column's name from which the column may be added up or ranked
NEARBY = 6  # words from a superlative on, in which what it is of is looked for
COVERED, ALL_COVERED = 0.4, 0.75  # share of the words accounted for: of selected rows, and of a whole table
NAMES = {"count": "count", "sum": "total", "avg": "average", "min": "smallest", "max": "largest", "": "rows"}
_ENDS = ("smallest, lowest, least, minimum", "largest, highest, most, maximum")
_CUES: Mapping[str, Operation] = {
    "average": "avg", "mean": "avg", "most": "max", "maximum": "max", "least": "min", "minimum": "min",
    "total": "sum", "sum": "sum", "add": "sum", "adding": "sum", "altogether": "sum",
}  # fmt: skip
_COUNTED = re.compile(r"(?i)\b(?:how many|number of)\b")
_BEYOND = re.compile(r"(?i)\b(?:per|share|percent\w*|proportion|ratio|differ\w*|compar\w*|versus|than)\b|%")
_EXCLUDED = re.compile(r"(?i)\b(?:not|no|never|without|except\w*|exclud\w+|other than|leav\w+ [\w ]*out)\b|n['’]t\b")
_TOKEN = re.compile(r"[^\W_]+(?:[-.,:/](?=\d)[^\W_]+)*")
_BOUND = re.compile(
    r"(?ia)\b((?:more|less|fewer) than|over|above|under|below|at least|at most) [£$€]?(\d{1,15}(?:,\d{3})*(?:\.\d+)?)\b"
)
_SIGNS = {"more than": ">", "over": ">", "above": ">", "at least": ">=", "at most": "<="}  # any other: <
_MONTHS = "January February March April May June July August September October November December".split()
_PERIOD = re.compile(
    r"(?a)\b(?:(?P<side>(?i:since|from|between|after|before|until))\s+)?(?:the (?:start|beginning) of\s+)?"
    r"(?:(?P<iso>(?:19|20)\d\d(?:-\d\d){0,2})\b|(?P<relative>this|last) year\b|"
    rf"(?:(?P<before>\d\d?)(?:st|nd|rd|th)? (?:of )?)?(?P<month>(?i:{'|'.join(_MONTHS)}))\b(?<!\bmay)(?<!\bmarch)"
    r"(?: (?P<behind>\d\d?)(?:st|nd|rd|th)?\b)?(?:,? (?:of )?(?P<year>(?:19|20)\d\d|(?:this|last) year)\b)?)"
)


@dataclass(frozen=True, slots=True)
class RowQuery:
    """One operation over the rows of a table that meet conditions; without an operation, those rows."""

    table: str
    operation: Operation
    measure: str
    """The column that the operation is of; empty for a count, or none."""
    where: str
    """The conditions in words: ` where country is France`; empty for all rows."""
    sql: str
    """The SELECT of the figure; of the rows where they are ranked or shown."""
    rows_sql: str
    """The SELECT of the rows to show, the extreme ones first, and of one more."""
    confidence: float
    """How much of the question is accounted for, 0 to 1."""

    @property
    def computed(self) -> str:
        """The operation in words: `total quantity`."""
        return f"{NAMES[self.operation]} {self.measure}".strip()


class _Token:
    """A word of a question; `capital` is one inside a sentence, `telling` a word with a meaning of its own."""

    def __init__(self, match: re.Match[str]) -> None:
        self.text, self.start, self.low = match.group(), match.start(), match.group().casefold()
        self.number = self.low[0].isdigit()
        self.stem = self.low.replace(",", "") if self.number else stem_word(_drop_accents(self.low))
        before = match.string[: self.start].rstrip(" \"'“(")
        self.capital = self.text[0].isupper() and bool(before) and before[-1] not in ".?!:;-\n"
        self.telling = self.number or (self.low not in UNTELLING and len(self.low) > 1)


def _split(text: str) -> list[_Token]:
    return [_Token(match) for match in _TOKEN.finditer(text)]


def _name_stems(*named: Column | TableSchema) -> set[str]:
    return {stem_word(_drop_accents(word)) for one in named for word in one.words}


def _drop_accents(word: str) -> str:
    return "".join(c for c in unicodedata.normalize("NFKD", word) if not unicodedata.combining(c))


class RowReader:
    """Reads questions about a schema; `select` runs a SELECT and returns its rows. Safe from many threads."""

    def __init__(self, schema: Schema, embedder: Embedder, select: Callable[[str], Sequence[Sequence[Any]]]) -> None:
        self.dialect, self.embedder, self.select = schema.dialect, embedder, select
        self._tables = [_TableWords(table, schema) for table in schema.tables]

    def read(self, question: str) -> RowQuery | None:
        """Return the query that accounts best for a question, None without a named table."""
        readings = [_Reading(words, question, self) for words in self._tables]
        found = [(query, reading.weight) for reading in readings if (query := reading.read())]
        return max(found, key=lambda pair: pair[1])[0] if found else None


class _TableWords:
    """What questions can name of a table: its columns, and cells by their stems."""

    def __init__(self, table: TableSchema, schema: Schema) -> None:
        self.table, self.columns = table, list(schema.reachable_columns(table))
        self.measures = [column for column in table.columns if column.number]
        self.dates = [column for column in table.columns if column.high and (column.kind == "date" or column.year)]
        self.own, self.named = _name_stems(table), _name_stems(*table.columns)
        self.cells: dict[tuple[str, ...], list[tuple[Column, str]]] = defaultdict(list)
        for column, value in ((c, value) for c in self.columns if c.kind == "text" for value in c.values):
            stems = tuple(token.stem for token in _split(value))
            # A cell such as `site` is taken for the column `active_sites`, where there is one.
            if stems and not (len(stems) == 1 and (stems[0] in self.own | self.named or value.lower() in UNTELLING)):
                self.cells[stems].append((column, value))


class _Reading:
    """One question while one table is tried on it; `weight` is how much of it was found in the table."""

    def __init__(self, words: _TableWords, question: str, reader: RowReader) -> None:
        self.words, self.question, self.reader, self.tokens = words, question, reader, _split(question)
        self.used: set[int] = set()
        self.met: list[tuple[Column, str, str]] = []  # columns, and the conditions on them in words and as SQL
        self.weight = 0.0

    def read(self) -> RowQuery | None:
        """Return the query that accounts for the question, if any does."""
        self._find_identifiers()
        identified = bool(self.met)
        if _EXCLUDED.search(self.question) and not identified:
            return None
        self._find_cells()
        self._find_bounds()
        self._find_periods()
        named = {n for n in self._left() if self.tokens[n].stem in self.words.own}
        asked = {n for n in self._left() if self.tokens[n].stem in self.words.named}
        for n in (n for n in self._left() if n not in named | asked):
            token = self.tokens[n]
            if self._find_number(token) if token.number else self._find_part(token):
                self.used.add(n)
            elif token.number or token.capital:
                return None  # what the table lacks is not passed over
        grouped = any(self.tokens[n - 1].low == "by" for n in asked - named if n)
        beyond = grouped or _BEYOND.search(_BOUND.sub("", self.question))
        operation, measure = ("", None) if beyond else self._find_operation(named)
        self.used |= named
        self.weight = len(self.used) + len(named) + len(asked) / 2
        own = _name_stems(*(met[0] for met in self.met), *([measure] if measure else []))
        own = own if operation else self.words.named
        telling = [n for n, token in enumerate(self.tokens) if token.telling]
        covered = sum(n in self.used or self.tokens[n].stem in own for n in telling) / max(len(telling), 1)
        some = self.met and (named or operation)
        enough = covered >= (COVERED if some or (named and operation in ("min", "max")) else ALL_COVERED)
        enough = enough and (bool(self.met) or bool(operation)) and bool(named or asked or some)
        return self._make_query(operation, measure, (1 + covered) / 2) if identified or enough else None

    def _make_query(self, operation: Operation, measure: Column | None, confidence: float) -> RowQuery:
        of = self._quote(measure.name) if measure else "*"
        figure = self._write_select(f"{operation.upper()}({of}) AS result")
        order = f" ORDER BY {of} {'DESC' if operation == 'max' else 'ASC'}" if operation in ("min", "max") else ""
        rows = self._write_select("*", [f"NOT {of} IS NULL"] if measure else []) + order + f" LIMIT {SHOWN_ROWS + 1}"
        where = " where " + " and ".join(f"{column.name} {words}" for column, words, _ in self.met) if self.met else ""
        sql = figure if operation in ("count", "sum", "avg") else rows
        name = measure.name if measure else ""
        return RowQuery(self.words.table.name, operation, name, where, sql, rows, confidence)

    def _write_select(self, what: str, further: Sequence[str] = ()) -> str:
        met = [*(sql for _, _, sql in self.met), *further]
        return f"SELECT {what} FROM {self._quote(self.words.table.name)}" + (" WHERE " + " AND ".join(met)) * bool(met)

    def _add(self, column: Column, words: str, sql: str) -> bool:
        """Add a condition on a column, which is `{}` in the SQL, of this table or of one it points at."""
        sql = sql.replace("{}", self._quote(column.name))
        if column.table != self.words.table.name:
            key = next(key for key in self.words.table.foreign_keys if key.to_table == column.table)
            mine, theirs, table = map(self._quote, (key.column, key.to_column, key.to_table))
            sql = f"{mine} IN (SELECT {theirs} FROM {table} WHERE {sql})"
        self.met.append((column, words, sql))
        return True

    def _add_values(self, column: Column, values: Sequence[str], sql: str = "{}") -> bool:
        kept = [*dict.fromkeys(values)]
        listed = ", ".join(_literal(value if sql == "{}" else value.lower()) for value in kept)
        shown = {_drop_accents(value).casefold(): value for value in reversed(kept)}
        return self._add(column, f"is {' or '.join(reversed(shown.values()))}", f"{sql} IN ({listed})")

    def _quote(self, name: str) -> str:
        return str(exp.to_identifier(name, quoted=True).sql(dialect=self.reader.dialect))

    def _left(self) -> list[int]:
        return [n for n, token in enumerate(self.tokens) if n not in self.used and token.telling]

    def _use(self, start: int, end: int) -> bool:
        """Use the words between two characters of the question; False when some are used already."""
        places = {n for n, token in enumerate(self.tokens) if start <= token.start < end}
        free = bool(places) and self.used.isdisjoint(places)
        self.used |= places if free else set()
        return free

    def _find_identifiers(self) -> None:
        for column in (column for column in self.words.columns if column.shapes):
            matches = re.finditer(rf"(?i)\b(?:{'|'.join(column.shapes)})\b", self.question)
            if found := [match.group() for match in matches if self._use(*match.span())]:
                self._add_values(column, found, "LOWER({})")

    def _find_cells(self) -> None:
        """Add a condition a column, the longest cells first; several cells of a column are alternatives."""
        found: dict[Column, list[str]] = defaultdict(list)
        stems = tuple(token.stem for token in self.tokens)
        for length in range(min(max(map(len, self.words.cells), default=0), len(stems)), 0, -1):
            for at in range(len(stems) - length + 1):
                hits = self.words.cells.get(stems[at : at + length])
                if hits and self._use(self.tokens[at].start, self.tokens[at + length - 1].start + 1):
                    column, _ = max(hits, key=lambda hit: not _name_stems(hit[0]).isdisjoint(stems))
                    found[column] += [value for other, value in hits if other == column]
        for column, values in found.items():
            self._add_values(column, values)

    def _find_part(self, token: _Token) -> bool:
        """Add the one cell that has a name as a part, or that a word misspells."""
        cells = self.words.cells
        hits = [hit for stems, found in cells.items() if token.capital and token.stem in stems for hit in found]
        if not hits and len(token.low) >= LONG:
            near = difflib.get_close_matches(token.stem, [stems[0] for stems in cells if len(stems) == 1], 1, ALIKE)
            hits = [hit for stem in near for hit in cells[stem,]]
        alike = {(column, tuple(one.stem for one in _split(value))) for column, value in hits}
        return len(alike) == 1 and self._add_values(hits[0][0], [value for _, value in hits])

    def _find_bounds(self) -> None:
        column = self._choose_measure([self.question], 0.0)
        for match in _BOUND.finditer(self.question):
            if column and self._use(*match.span()):
                words, number = match[1].lower(), match[2].replace(",", "")
                self._add(column, f"is {words} {number}", f"{{}} {_SIGNS.get(words, '<')} {number}")

    def _find_number(self, token: _Token) -> bool:
        """Add the one number column that holds this number in the rows selected so far."""
        if not re.fullmatch(r"(?a)\d{1,15}(?:\.\d+)?", token.stem):
            return False
        numbers = [column for column in self.words.table.columns if column.kind in ("integer", "real")]
        tried = {c: self._write_select("*", [f"{self._quote(c.name)} = {token.stem}"]) + " LIMIT 1" for c in numbers}
        held = [column for column, sql in tried.items() if self.reader.select(sql)]
        return len(held) == 1 and self._add(held[0], f"is {token.stem}", f"{{}} = {token.stem}")

    def _find_periods(self) -> None:
        if not self.words.dates:
            return
        stems, years = {token.stem for token in self.tokens}, set(re.findall(r"\b(?:19|20)\d\d\b", self.question))
        column = max(self.words.dates, key=lambda one: not _name_stems(one).isdisjoint(stems))
        only, latest = years.pop() if len(years) == 1 else "", str(column.high)
        matches = [(m, days) for m in _PERIOD.finditer(self.question) if (days := _read_days(m, latest, only))]
        found = [((match["side"] or "").lower(), *days, match.span()) for match, days in matches]
        if len(found) == 2 and found[0][0] in ("between", "from") and not found[1][0]:
            (_, label, first, _, span), (_, until, _, after, last) = found
            found = [("", f"{label} to {until}", first, after, (span[0], last[1]))]
        for side, label, first, after, span in found:
            low = {"before": "", "until": "", "after": after}.get(side, first)
            high = {"": after, "until": after, "before": first}.get(side, "")
            if self._use(*span):
                words = f"in {label}" if low and high else f"from {low}" if low else f"before {high}"
                bounds = [(sign, day) for sign, day in ((">=", low), ("<", high)) if day]
                sql = [f"{{}} {sign} {day[:4] if column.year else _literal(day)}" for sign, day in bounds]
                self._add(column, words, " AND ".join(sql))

    def _find_operation(self, named: Collection[int]) -> tuple[Operation, Column | None]:
        """Return the operation asked for and what it is of; neither where it is beyond the five."""
        free = [n for n in range(len(self.tokens)) if n not in self.used]
        left = " ".join(self.tokens[n].text for n in free)
        cues: dict[Operation, int] = {cue: n for n in reversed(free) if (cue := self._read_cue(self.tokens[n].low))}
        operation: Operation = next((cue for cue in cues if cue != "sum"), "sum")
        counted = _COUNTED.search(self.question)
        if counted and operation == "sum":
            nouns = [n for n in self._left() if self.tokens[n].start >= counted.end()][:1]
            if not nouns or nouns[0] in named:
                return "count", None
            noun = self.tokens[nouns[0]]
            if "sum" not in cues and not self._choose_measure([noun.text], 2 * NEAR):
                return ("count" if noun.stem in self.words.named else "", None)
            measure = self._choose_measure([noun.text, left])
        else:
            at = cues.get(operation, len(self.tokens))
            if operation not in cues or (at + 1 in named and self.tokens[at].low in ("most", "least")):
                return "", None  # "the most orders" are of a group of rows
            self.used.add(at)
            measure = self._choose_measure(
                [left, *[" ".join(self.tokens[n].text for n in free if at <= n < at + NEARBY)]]
            )
        return (operation, measure) if measure else ("", None)

    def _read_cue(self, word: str) -> Operation:
        """Return the operation that a word stands for; a superlative stands for the end that it is nearer to."""
        if word in _CUES or not word.endswith("est") or len(word) < LONG:
            return _CUES.get(word, "")
        vector, low, high = self.reader.embedder.encode([word, *_ENDS])
        lead = float(vector @ high - vector @ low)
        return "max" if lead >= MARGIN else "min" if lead <= -MARGIN else ""

    def _choose_measure(self, texts: Sequence[str], least: float = NEAR) -> Column | None:
        """Return the column whose name is nearest to a text, by cosine and by words in common; None if none is near."""
        columns = self.words.measures
        if not columns:
            return None
        vectors = self.reader.embedder.encode([*texts, *(" ".join(column.words) for column in columns)])
        near = (vectors[: len(texts)] @ vectors[len(texts) :].T).max(axis=0)
        stems = {token.stem for text in texts for token in _split(text)}
        shares = [len(stems & _name_stems(column)) / len(column.words) for column in columns]
        scores = [float(cosine) + (share if share >= 0.5 else 0) for cosine, share in zip(near, shares, strict=True)]
        best = max(range(len(columns)), key=scores.__getitem__)
        return columns[best] if scores[best] >= least else None


def _read_days(match: re.Match[str], latest: str, only: str) -> tuple[str, str, str] | None:
    """Return a period as `2026-05`, its first day and the day after it; None where there is no such day.

    A month without a year is in the `only` year that is named, else the last that had begun on the day `latest`.
    """
    year, month, day = [*map(int, (match["iso"] or "0").split("-")), 0, 0][:3]
    if match["month"]:
        month, day = _MONTHS.index(match["month"].title()) + 1, int(match["before"] or match["behind"] or 0)
    named = match["relative"] or match["year"] or only
    if not year:
        past = named.startswith("last") if named else f"{month:02}-{day or 1:02}" > (latest[5:10] or "12-31")
        year = int(named) if named.isdigit() else int(latest[:4]) - past
    try:
        first = date(year, month or 1, day or 1)
        after = date(year + (month in (0, 12)), month % 12 + 1 if month else 1, 1)
    except ValueError:
        return None
    after = first + timedelta(days=1) if day else after
    return first.isoformat()[: 10 if day else 7 if month else 4], first.isoformat(), after.isoformat()


def _literal(text: str) -> str:
    return str(exp.Literal.string(text).sql())
