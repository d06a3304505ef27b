"""A question about tables as slots: what to compute, of what, where, by what, in which order. No model call."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from program.knowledge.embedder import Embedder
from program.knowledge.tables_filters import dates, flags, identifiers, numbers, phrases, values
from program.knowledge.tables_query import Filter, Intent, Measure, Part, Query
from program.knowledge.tables_reading import Reading
from program.knowledge.tables_schema import Column, Schema, Table
from program.knowledge.tables_words import ADJECTIVES, DIMENSIONS, SUPERLATIVES, Word, alike, squash, stem

SYNONYM = 0.6
"""Cosine from which a word stands for a table's or column's name."""
GUESS = 0.5
"""What a word counts that was matched by meaning only."""
_COUNT = re.compile(r"\bhow many\b|\bhow often\b|\bnumber of\b|\bcount\b|\b(?:are|were|is|was|have|has|did) (?:there |we |they )*any\b", re.I)
_TOTAL = re.compile(r"\btotal(?:s|ling)?\b|\bin all\b|\baltogether\b|\bsum\b|\bcombined\b|\bcumulative\b|\boverall\b", re.I)
_AVERAGE = re.compile(r"\baverages?\b|\bmean\b(?! by)|\bon average\b|\btypically\b", re.I)
_SHARE = re.compile(r"\b(?:share|percentage|percent|per cent|proportion|fraction) of\b|\b(?:what|which) (?:share|percentage|proportion|fraction)\b|% of", re.I)
_SPENT = re.compile(r"\bhow much\b.*\b(?:did|has|have|had|was|were)\b|\b(?:revenue|turnover|spent|spend|takings|earned)\b", re.I)
_LISTED = re.compile(r"^\W*(?:please )?(?:list|show|give|display|name|which|what (?:are|were)|find|get|whose)\b", re.I)
_POLICY = re.compile(
    r"\b(?:can|could|may|should|must|shall|would|will) (?:i|we|you|my|our|they|someone|a|an|the)\b|\bhow (?:do|can|should|would|could) (?:i|we|you)\b"
    r"|\bif\b|\bwhat happens\b|\bwhy\b|\bhow does\b|\bam i\b|\bdo i\b|\bdo you\b|\ballowed\b|\b(?:my|your)\b|\bi(?:'m|'ve|'d|’m|’ve| am| have| want| need)\b",
    re.I,
)
_EACH = re.compile(r"\b(?:per|by|for each|for every|in each|each|every|across|grouped by|(?:broken|split) (?:down )?by) (?:of )?(?:the )?(?:different )?$", re.I)
_PARTS: dict[str, Part] = {"month": "month", "year": "year", "day": "day"}
_TOP = re.compile(r"\b(?:top|first|last|latest|biggest|largest|longest|highest|lowest|newest|oldest|cheapest) (\d{1,3}|two|three|four|five|ten)\b"
                  r"|\b(\d{1,3}|two|three|four|five|ten) (?:most|fewest|latest|biggest|largest|longest|shortest|highest|lowest|newest|oldest|cheapest|\w+ with the (?:most|fewest|highest|lowest))", re.I)  # fmt: skip
_TOPS = {"two": 2, "three": 3, "four": 4, "five": 5, "ten": 10}


def fill(question: str, schema: Schema, embedder: Embedder) -> Query | None:
    """The best reading of a question over the tables, or None when nothing of them is named in it.

    Every table is tried, with the columns of the tables it points at; the one that accounts for most of the
    question's content words wins, then the one with fewer joins, then the first. Deterministic.
    """
    best: Query | None = None
    for table in schema.tables:
        query = _Filling(Reading(question), table, tuple(schema.reachable(table)), schema, embedder).query()
        if query and (best is None or _rank(query) > _rank(best)):
            best = query
    return best


def _rank(query: Query) -> tuple[float, int]:
    columns = [f.column for f in query.filters] + ([query.group] if query.group else [])
    return round(query.confidence, 6), -sum(c.table != query.table.name for c in columns)


@dataclass
class _Filling:
    """One question tried on one table."""

    reading: Reading
    table: Table
    columns: tuple[Column, ...]
    schema: Schema
    embedder: Embedder
    filters: list[Filter] = field(default_factory=list)
    having: tuple[str, float] | None = None
    nouns: list[int] = field(default_factory=list)

    def near(self, text: str, others: Sequence[str]) -> list[float]:
        """Cosines of a text with others."""
        rows = self.embedder.encode([text, *others])
        return [float(x) for x in rows[1:] @ rows[0]]

    def query(self) -> Query | None:
        """The slots filled, or None when the question names nothing of this table."""
        reading, text = self.reading, self.reading.text
        self.filters += identifiers(reading, self.columns, self.table)
        found_dates = list(dates(reading, self.columns))
        self.filters += values(reading, self.columns, self.near)
        for found in numbers(reading, self.table, self.columns):
            if isinstance(found, Filter):
                self.filters.append(found)
            else:
                self.having = found
        self.filters += found_dates
        self._own_nouns()
        self.filters += phrases(reading, self.columns)
        best = self._superlative()
        group, part, chosen = self._group(best is not None)
        self.filters += flags(reading, self.columns)
        query = self._computed(text, best, group, part, chosen)
        if query is None:
            return None
        asked = self._asked(query)
        return self._finished(query, asked)

    # ---- nouns

    def _own_nouns(self) -> None:
        """Marks the words that name the table; a word of like meaning counts less."""
        tables = [t.stems for t in self.schema.tables]
        for at, word in list(self.reading.free()):
            if any(alike(word.stem, s) for s in self.table.stems):
                self.nouns.append(at)
                self.reading.use(at, at + 1, strong=True)
        if self.nouns:
            return
        free = [(i, w) for i, w in self.reading.free() if w.content and not any(alike(w.stem, s) for t in tables for s in t)]
        free = [(i, w) for i, w in free if not any(alike(w.stem, s) for c in self.columns for s in c.stems)]
        names = [self.table.name, *(c.name for c in self.columns if c.key and c.table == self.table.name)]
        for i, word in free:
            if max(self.near(word.low, [" ".join(n.lower().split("_")) for n in names])) >= SYNONYM:
                self.nouns.append(i)
                self.reading.use(i, i + 1, GUESS + 0.3, strong=True)
                return

    def _named(self, word: Word, columns: Sequence[Column]) -> Column | None:
        """The column a word names: by its last telling word, then by any."""
        for column in columns:
            if alike(word.stem, column.stems[-1]) and (len(column.stems) == 1 or column.kind == "text"):
                return column
        return next((c for c in columns if any(alike(word.stem, s) for s in c.stems)), None)

    def _linked_label(self, word: Word) -> Column | None:
        """The naming column of a table this one points at, when the word names that table."""
        for link in self.table.links:
            other = self.schema.table(link.to_table)
            if any(alike(word.stem, s) for s in other.stems):
                return other.label if other.label.name != link.to_column else next(c for c in self.table.columns if c.name == link.column)
        return None

    # ---- superlatives

    def _superlative(self) -> tuple[str, bool, int] | None:
        """(dimension, largest first, index of the word): the first superlative no other slot has used."""
        for at, word in list(self.reading.free()):
            if word.low not in SUPERLATIVES:
                continue
            dimension, largest = SUPERLATIVES[word.low]
            following = self.reading.words[at + 1] if at + 1 < len(self.reading.words) else None
            if word.low in ("most", "least", "last") and self.reading.text[: word.start].lower().rstrip().endswith(("at", "for", "at the", "the very")) and word.low != "last":
                continue
            if word.low in ("last", "first") and (following is None or word.low == "last" and not self._noun_follows(at)):
                continue
            self.reading.use(at, at + 1)
            if word.low in ("most", "least") and following and following.stem in ADJECTIVES:
                self.reading.use(at + 1, at + 2)
                return ADJECTIVES[following.stem] or "count", largest, at
            return dimension, largest, at
        return None

    def _noun_follows(self, at: int) -> bool:
        return any(i in self.nouns for i in range(at + 1, at + 5))

    # ---- groups

    def _group(self, ranked: bool) -> tuple[Column | None, Part, bool]:
        """(column, part of its date, chosen): what rows are grouped by; `chosen` when one group is asked for."""
        reading = self.reading
        for at, word in enumerate(reading.words):
            before = reading.text[: word.start]
            each = bool(_EACH.search(before))
            which = bool(re.search(r"\b(?:which|what|top(?: \w+)?|in what|in which)\s+(?:\w+\s+)?$", before, re.I)) and (ranked or self.having is not None)
            common = ranked and at >= 2 and reading.words[at - 1].stem in ADJECTIVES and not ADJECTIVES[reading.words[at - 1].stem]
            if not (each or which or common) or (at in reading.used and at not in self.nouns):
                continue
            if word.stem in _PARTS and (dated := [c for c in self.columns if c.kind == "date"]) and self.schema.dialect == "sqlite":
                reading.use(at, at + 1, strong=True)
                return dated[0], _PARTS[word.stem], which
            if at in self.nouns:
                continue
            texts = [c for c in self.columns if c.kind in ("text", "boolean") and not (c.unique and c.table == self.table.name)]
            column = self._linked_label(word) or self._two_words(at, texts) or self._named(word, texts) or self._means(word, texts, each)
            if column and not (column.unique and column.table == self.table.name):
                reading.use(at, at + 1, strong=True)
                return column, "", not each
        return None, "", False

    def _two_words(self, at: int, columns: Sequence[Column]) -> Column | None:
        pair = self.reading.words[at : at + 2]
        column = next((c for c in columns if len(c.stems) > 1 and len(pair) == 2 and all(alike(w.stem, s) for w, s in zip(pair, c.stems, strict=False))), None)
        if column and self.reading.is_free(at, at + 2):
            self.reading.use(at, at + 2)
        return column

    def _means(self, word: Word, columns: Sequence[Column], wanted: bool) -> Column | None:
        """The column whose name is nearest in meaning to the word, if near enough."""
        if not columns or not word.content or not wanted:
            return None
        cosines = self.near(word.low, [" ".join(c.words) for c in columns])
        best = max(range(len(columns)), key=lambda i: cosines[i])
        return columns[best] if cosines[best] >= SYNONYM else None

    # ---- measures

    def _measure(self, dimension: str, after: int = -1) -> Measure | None:
        """The number column the question asks about: named, else by dimension, else by meaning."""
        numeric = [c for c in self.columns if c.number]
        scored: list[tuple[float, int, Column]] = []
        for order, column in enumerate(numeric):
            asks = DIMENSIONS[column.dimension].asks if column.dimension else frozenset()
            hits = 0.0
            for at, word in enumerate(self.reading.words):
                if at in self.reading.used and at not in self.nouns and at > after >= 0:
                    continue
                named = any(alike(word.stem, s) for s in column.stems) and at not in self.nouns
                weight = 3.0 if named else 1.0 if word.stem in asks else 0.0
                hits += weight * (1.5 if 0 <= after < at <= after + 3 else 1.0)
            hits += 2.0 * (bool(dimension) and column.dimension == dimension)
            if hits:
                scored.append((hits, -order, column))
        if not scored:
            return self._meant(numeric)
        _, _, column = max(scored, key=lambda s: s[:2])
        if dimension and column.dimension != dimension and not any(c.dimension == dimension for _, _, c in scored):
            return None
        self._use_measure(column)
        return Measure((column,))

    def _use_measure(self, column: Column) -> None:
        asks = DIMENSIONS[column.dimension].asks if column.dimension else frozenset()
        for at, word in list(self.reading.free()):
            if any(alike(word.stem, s) for s in column.stems):
                self.reading.use(at, at + 1, strong=True)
            elif word.stem in asks:
                self.reading.use(at, at + 1)

    def _meant(self, numeric: Sequence[Column]) -> Measure | None:
        free = [(i, w) for i, w in self.reading.free() if w.content]
        best: tuple[float, int, Column] | None = None
        for at, word in free if numeric else ():
            cosines = self.near(word.low, [" ".join(c.words) for c in numeric])
            top = max(range(len(numeric)), key=lambda i: cosines[i])
            if cosines[top] >= SYNONYM and (best is None or cosines[top] > best[0]):
                best = cosines[top], at, numeric[top]
        if best is None:
            return None
        self.reading.use(best[1], best[1] + 1, GUESS + 0.2)
        return Measure((best[2],))

    def _whole(self, measure: Measure | None) -> Measure | None:
        """Price times quantity, when the price is of one piece and a quantity is beside it."""
        if measure is None or len(measure.columns) != 1 or measure.columns[0].dimension != "money":
            return measure
        price = measure.columns[0]
        each = {"unit", "each", "price", "per"} & set(price.words)
        count = next((c for c in self.columns if c.dimension == "quantity" and c.kind == "integer" and c.table == self.table.name), None)
        return Measure((count, price)) if each and count and price.table == self.table.name else measure

    def _days(self) -> Measure | None:
        """The days between two date columns, when the question asks how long and nothing measures it."""
        dated = [c for c in self.table.columns if c.kind == "date"]
        return Measure((dated[0], dated[1]), days=True) if len(dated) == 2 and self.schema.dialect == "sqlite" else None

    # ---- what is computed

    def _computed(self, text: str, best: tuple[str, bool, int] | None, group: Column | None, part: Part, chosen: bool) -> Query | None:
        base = Query(self.table, "rows", tuple(self.filters), group=group, part=part, having=self.having)
        top = _TOP.search(text)
        limit = (int(n) if (n := (top[1] or top[2]).lower()).isdigit() else _TOPS[n]) if top else None
        if _SHARE.search(text) and self.filters:
            return self._share(base)
        average, total = bool(_AVERAGE.search(text)), bool(_TOTAL.search(text))
        long = bool(re.search(r"\bhow long\b|\bdays\b.*\b(?:between|take|took)\b", text, re.I))
        if best:
            return self._ranked(base, best, limit, chosen, average)
        counted = self._counted(text)
        if counted and counted.intent == "count" and not average:
            return replace(base, intent="count", asked=())
        if average or long and re.search(r"\btake|took\b", text, re.I):
            measure = self._measure("duration" if long else "") or (self._days() if long or re.search(r"\bdays\b|\btime\b", text, re.I) else None)
            if measure:
                return replace(base, intent="avg", measure=measure) if average else replace(base, intent="lookup", measure=measure)
        if counted:
            measure = counted.measure
            return replace(base, intent=counted.intent, measure=measure, asked=counted.asked)
        if total or _SPENT.search(text) or (group and not chosen):
            money = "money" if _SPENT.search(text) or re.search(r"[£$€]|\b(?:pounds|euros|dollars|money|value|worth)\b", text, re.I) else ""
            measure = self._measure(money)
            if measure:
                spent = money and not self._literal(measure.columns[0])
                return replace(base, intent="sum", measure=self._whole(measure) if spent or total else measure)
            return replace(base, intent="count") if group or self.nouns else None
        if group and self.having:
            return replace(base, intent="count")
        listed = bool(_LISTED.search(text)) and bool(self.nouns)
        return replace(base, intent="rows" if listed else "lookup")

    def _literal(self, column: Column) -> bool:
        """True when the question spells the column's own name, so that it alone is meant."""
        return len(column.stems) > 1 and sum(any(alike(w.stem, s) for w in self.reading.words) for s in column.stems) >= 2

    def _share(self, base: Query) -> Query:
        """Filters before the verb describe the whole, those after it the part."""
        verb = next((i for i, w in enumerate(self.reading.words) if i > 1 and w.low in ("were", "are", "was", "is", "came", "come", "went", "go", "have", "had", "has", "got", "did", "do")), -1)
        of = next((i for i, w in enumerate(self.reading.words) if w.low == "of"), -1)
        whole = tuple(f for f in self.filters if of < f.at < verb) + tuple(f for f in self.filters if f.column.kind == "date" and f.at > verb)
        parts = tuple(f for f in self.filters if f not in whole)
        if not parts:
            parts, whole = tuple(self.filters), ()
        return replace(base, intent="share", filters=parts, share_of=whole, group=None)

    def _counted(self, text: str) -> Query | None:
        """What `how many X` counts: rows, distinct values, or a number column added up."""
        match = _COUNT.search(text)
        if not match:
            return None
        first = self.reading.index(match.end())
        blank = Query(self.table, "count")
        if re.search(r"often|any", match.group(), re.I):
            return blank
        differing = False
        for at in range(first, min(first + 5, len(self.reading.words))):
            word = self.reading.words[at]
            if word.low in ("different", "distinct", "unique"):
                differing = True
                continue
            if word.low in ("did", "do", "does", "were", "are", "was", "is", "have", "has", "had", "times", "in", "from", "where"):
                return blank if word.low == "times" or at > first else None
            if at in self.nouns:
                return blank
            texts = [c for c in self.columns if c.kind in ("text", "boolean") and not c.prose]
            label = self._linked_label(word)
            column = label or next((c for c in texts if at not in self.reading.used and alike(word.stem, c.stems[-1])), None)
            if column and (at not in self.reading.used):
                self.reading.use(at, at + 1, strong=True)
                return replace(blank, intent="distinct count", asked=(column,))
            numeric = [c for c in self.columns if c.number]
            asked = next((c for c in numeric if any(alike(word.stem, s) for s in c.stems)), None) or next(
                (c for c in numeric if c.dimension and word.stem in DIMENSIONS[c.dimension].asks), None)
            if asked and at not in self.reading.used:
                self._use_measure(asked)
                intent: Intent = "lookup" if self._pinned() and not _TOTAL.search(text) else "sum"
                return replace(blank, intent=intent, measure=Measure((asked,)))
            if word.stem in ("day", "hour", "minut") and at not in self.reading.used and (days := self._days()) and word.stem == "day":
                self.reading.use(at, at + 1)
                return replace(blank, intent="lookup", measure=days)
            amount = next((c for c in numeric if c.dimension == "quantity"), None)
            if at in self.reading.used and amount and not self._row_follows(at) and any(f.at == at and f.op in ("=", "in") for f in self.filters):
                return replace(blank, intent="sum", measure=Measure((amount,)))
            if differing:
                return None
        return blank

    def _row_follows(self, at: int) -> bool:
        return any(i in self.nouns for i in range(at + 1, min(at + 4, len(self.reading.words))))

    def _pinned(self) -> bool:
        """True when a filter names one row: an identifier, or the value that the rows are named by."""
        return any(f.op == "=" and (f.column.key or f.column is self.table.label or f.column is self.table.columns[0]) for f in self.filters)

    def _ranked(self, base: Query, best: tuple[str, bool, int], limit: int | None, chosen: bool, average: bool) -> Query | None:
        """Rows or groups in order of something, the first few of them."""
        dimension, largest, at = best
        word = self.reading.words[at].low
        counting = dimension == "count" or (not dimension and any(i in self.nouns for i in range(at + 1, at + 3)) and word in ("most", "fewest", "least", "highest", "top", "lowest"))
        if base.group and counting:
            return replace(base, intent="count", order=largest, limit=limit or 1)
        if dimension == "date":
            measure = self._date_measure()
            return replace(base, group=None, part="", measure=measure, order=largest, limit=limit or 1) if measure else None
        measure = self._measure(dimension if dimension in DIMENSIONS else "", at)
        if measure is None and dimension == "age":
            measure, largest = self._date_measure(), not largest
        if measure is None and dimension == "duration":
            measure = self._days()
        if measure is None and base.group:
            return replace(base, intent="count", order=largest, limit=limit or 1)
        if measure is None:
            default = next((c for c in self.columns if c.dimension == "money"), None) or next((c for c in self.columns if c.number), None)
            measure = self._whole(Measure((default,))) if default else None
        if measure is None:
            return None
        added = bool(_TOTAL.search(self.reading.text)) or word in ("most", "fewest", "least")
        if base.group and (average or added):
            whole = measure if average else self._whole(measure)
            return replace(base, intent="avg" if average else "sum", measure=whole, order=largest, limit=limit or (1 if chosen else None))
        return replace(base, group=None, part="", measure=measure, order=largest, limit=limit or 1, asked=(base.group,) if base.group and not base.part else ())

    def _date_measure(self) -> Measure | None:
        dated = [c for c in self.columns if c.kind == "date"]
        for column in dated:
            if any(alike(w.stem, s) for w in self.reading.words for s in column.stems):
                self._use_measure(column)
                return Measure((column,))
        return Measure((dated[0],)) if dated else None

    # ---- the end

    def _asked(self, query: Query) -> tuple[Column, ...]:
        """Columns the remaining words name; they are shown first."""
        found = list(query.asked)
        for at, word in list(self.reading.free()):
            if not word.content:
                continue
            column = self._named(word, self.columns) or self._linked_label(word)
            if column is None and query.intent in ("rows", "lookup"):
                column = next((c for c in self.columns if c.dimension and word.stem in DIMENSIONS[c.dimension].asks), None)
            if column:
                self.reading.use(at, at + 1, strong=True)
                found.append(column)
        if query.intent in ("rows", "lookup"):
            for at, word in list(self.reading.free()):
                meant = self._means(word, self.columns, True)
                if meant:
                    self.reading.use(at, at + 1, GUESS + 0.2)
                    found.append(meant)
        return tuple(dict.fromkeys(found))

    def _finished(self, query: Query, asked: tuple[Column, ...]) -> Query | None:
        plural = re.search(r"^\W*(?:which|what|list|show|name)(?: (?:me|us|are|were|all|the|different|of))* (\w+)", self.reading.text, re.I)
        if query.intent in ("rows", "lookup") and query.order is None and plural and asked and not self.nouns:
            word = stem(plural[1].lower())
            column = asked[0]
            if column.kind == "text" and plural[1].lower().endswith("s") and any(alike(word, s) for s in column.stems):
                query = replace(query, intent="values", asked=(column,))
        if query.intent in ("rows", "lookup"):
            wanted = [*asked, *(query.measure.columns if query.measure else ())]
            query = replace(query, asked=tuple(dict.fromkeys([*self.table.columns[:1], *wanted, *self.table.columns])))
        elif query.intent == "share" or query.intent in ("count", "sum", "avg"):
            query = replace(query, asked=())
        query = replace(query, filters=_merged(query.filters), share_of=_merged(query.share_of))
        query = self._compared(query)
        confidence = self._confidence(query)
        return replace(query, confidence=confidence) if confidence > 0 else None

    def _compared(self, query: Query) -> Query:
        """One figure a value, when several values of a column are named and no total is asked for."""
        several = next((f for f in query.filters if f.op == "in" and len(f.values) > 1), None)
        if several and query.intent in ("count", "sum", "avg") and query.group is None and not _TOTAL.search(self.reading.text):
            return replace(query, group=several.column)
        return query

    def _confidence(self, query: Query) -> float:
        reading = self.reading
        plain = query.intent == "lookup" and not any(f.column.key for f in query.filters)
        needed = 1 if query.intent in ("count", "rows", "values") and self.nouns else 2
        if reading.anchors < needed or (plain and not query.filters):
            return 0.0
        confidence = reading.coverage()
        identified = any(f.column.key and f.op == "=" for f in query.filters)
        if _POLICY.search(reading.text) and not identified:
            confidence *= 0.6
        if plain:
            confidence *= 0.9
        return min(1.0, confidence)


def _merged(filters: Sequence[Filter]) -> tuple[Filter, ...]:
    """Equalities on one column become one `in`; repeats are dropped."""
    found: list[Filter] = []
    for f in dict.fromkeys(filters):
        same = next((i for i, g in enumerate(found) if g.column == f.column and {g.op, f.op} <= {"=", "in"} or g.column == f.column and {g.op, f.op} <= {"<>", "not in"}), None)
        if same is None:
            found.append(f)
            continue
        together = tuple(dict.fromkeys([*found[same].values, *f.values]))
        several = "in" if f.op in ("=", "in") else "not in"
        found[same] = replace(found[same], op=several if len(together) > 1 else found[same].op, values=together)
    return tuple(found)
