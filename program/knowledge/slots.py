"""A question about tables as slots: what to compute, of what, where, by what, in which order. No model call."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from program.knowledge import tables_measures as measures
from program.knowledge.embedder import Embedder
from program.knowledge.tables_bounds import dates, numbers
from program.knowledge.tables_counts import counted
from program.knowledge.tables_filters import flags, identifiers, phrases, undone, values
from program.knowledge.tables_groups import Best, Group, group, how_many, superlative
from program.knowledge.tables_naming import GUESS, Naming
from program.knowledge.tables_query import Filter, Query, merged
from program.knowledge.tables_reading import Reading
from program.knowledge.tables_schema import Column, Schema
from program.knowledge.tables_words import DIMENSIONS, HIGH_IS_GOOD, alike, stem


def _any(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(patterns), re.IGNORECASE)


_TOTAL = _any(r"\btotal(?:s|ling)?\b", r"\bin all\b", r"\baltogether\b", r"\bsum\b", r"\bcombined\b", r"\boverall\b")
_AVERAGE = _any(r"\baverages?\b", r"\bmean\b(?! by)", r"\btypically\b")
_SHARE = _any(
    r"\b(?:share|percentage|percent|per cent|proportion|fraction) of\b",
    r"\b(?:what|which) (?:share|percentage|proportion|fraction)\b",
    r"% of",
)
_SPENT = _any(
    r"\bhow much\b.*\b(?:did|has|have|had|was|were)\b", r"\b(?:revenue|turnover|spent|spend|takings|earned)\b"
)
_HOW_LONG = _any(r"\bhow long\b", r"\bdays\b.*\b(?:between|take|took)\b")
_LISTED = _any(r"^\W*(?:please )?(?:list|show|give|display|name|which|what (?:are|were)|find|get|whose)\b")
_PLURAL = _any(r"^\W*(?:which|what|list|show|name)(?: (?:me|us|are|were|all|the|different|of))* (\w+s)\b")
_POLICY = _any(
    r"\b(?:can|could|may|should|must|shall|would|will) (?:i|we|you|my|our|they|someone|a|an|the)\b",
    r"\bhow (?:do|can|should|would|could|does) (?:i|we|you|it|the)\b",
    r"\bif\b|\bwhat happens\b|\bwhy\b|\bam i\b|\bdo i\b|\bdo you\b|\ballowed\b|\b(?:my|your)\b",
    r"\bi(?:['’](?:m|ve|d)| am| have| want| need)\b",
)
"""Signs of a question about what holds in general, or for the asker, rather than about what is on record."""
BESIDE = 0.4
"""What a word counts that names a column the figure does not use."""
_VERBS = frozenset({"were", "are", "was", "is", "came", "come", "went", "go", "have", "had", "has", "got", "did", "do"})


def fill(question: str, schema: Schema, embedder: Embedder) -> Query | None:
    """The best reading of a question over the tables, or None when nothing of them is named in it.

    Every table is tried, with the columns of the tables it points at; the one that accounts for most of the
    question's content words wins, then the one with fewer joins, then the first. Deterministic.
    """
    best: Query | None = None
    embedder.encode([w.low for w in Reading(question).words if w.content])  # in one batch: it keeps them
    for table in schema.tables:
        naming = Naming(Reading(question), table, tuple(schema.reachable(table)), schema, embedder)
        query = _Filling(naming).query()
        if query and (best is None or _rank(query) > _rank(best)):
            best = query
    return best


def _rank(query: Query) -> tuple[float, int]:
    columns = [f.column for f in query.filters] + ([query.group] if query.group else [])
    columns += query.measure.columns if query.measure else ()
    return round(query.confidence, 6), -sum(c.table != query.table.name for c in columns)


@dataclass
class _Filling:
    """One question tried on one table."""

    naming: Naming
    filters: tuple[Filter, ...] = ()
    having: tuple[str, float] | None = None

    def query(self) -> Query | None:
        """The slots filled, or None when the question names too little of this table."""
        naming, reading, columns = self.naming, self.naming.reading, self.naming.columns
        found = [*identifiers(reading, columns, naming.table)]
        spans = [*dates(reading, columns)]
        found += values(reading, columns, naming.near)
        for bound in numbers(reading, naming.table, columns):
            if isinstance(bound, Filter):
                found.append(bound)
            else:
                self.having = bound
        found += spans
        found += undone(reading, naming.table.columns)
        naming.mark_table()
        limit = how_many(naming)
        found += phrases(reading, columns)
        best = superlative(naming)
        shared = bool(_SHARE.search(reading.text))
        if shared:
            found += flags(reading, columns)
        by = Group() if shared else group(naming, best.at if best else -1, self.having is not None)
        found += flags(reading, columns)
        self.filters = tuple(found)
        query = self._computed(best, limit, by)
        return self._finished(query) if query else None

    def _computed(self, best: Best | None, limit: int | None, by: Group) -> Query | None:
        naming, text = self.naming, self.naming.reading.text
        base = Query(naming.table, "lookup", self.filters, group=by.column, part=by.part, having=self.having)
        if _SHARE.search(text) and self.filters:
            return self._share(base)
        average, total, long = (bool(p.search(text)) for p in (_AVERAGE, _TOTAL, _HOW_LONG))
        if best:
            return self._ranked(base, best, limit, by, average)
        took = long and bool(re.search(r"\b(?:take|took|last|lasted|run|ran)\b", text, re.IGNORECASE))
        count = counted(naming, self.filters, total)
        if count and count.intent == "count" and not average:
            return replace(base, intent="count")
        if average or took:
            measure = measures.measured(naming, "duration" if long else "")
            if measure is None and (long or re.search(r"\b(?:days|time)\b", text, re.IGNORECASE)):
                measure = measures.days_between(naming)
            if measure:
                return replace(base, intent="avg" if average else "lookup", measure=measure)
        if count:
            return replace(base, intent=count.intent, measure=count.measure, asked=count.asked)
        spent = bool(_SPENT.search(text))
        if total or spent or (by.column and not by.chosen):
            return self._added(base, total, spent)
        if by.column and self.having:
            return replace(base, intent="count")
        return replace(base, group=None, part="", intent="rows" if _LISTED.search(text) and naming.nouns else "lookup")

    def _added(self, base: Query, total: bool, spent: bool) -> Query | None:
        """A sum, or a count when the question names nothing to add up."""
        money = spent or measures.wants_money(self.naming.reading.text)
        measure = measures.measured(self.naming, "money" if money else "")
        if measure is None:
            return replace(base, intent="count") if base.group or self.naming.nouns else None
        alone = measures.spelt_out(self.naming, measure.columns[0])
        return replace(base, intent="sum", measure=measure if alone else measures.worth(self.naming, measure))

    def _share(self, base: Query) -> Query:
        """Filters between `of` and the verb, and dates, describe the whole; the others the part."""
        words = self.naming.reading.words
        verb = next((i for i, w in enumerate(words) if i > 1 and w.low in _VERBS), -1)
        of = next((i for i, w in enumerate(words) if w.low == "of"), -1)
        whole = tuple(f for f in self.filters if of < f.at < verb or (f.column.kind == "date" and f.op != "blank"))
        parts = tuple(f for f in self.filters if f not in whole)
        if not parts:
            parts, whole = whole, ()
        return replace(base, intent="share", filters=parts, share_of=whole, group=None, part="")

    def _ranked(self, base: Query, best: Best, limit: int | None, by: Group, average: bool) -> Query | None:
        """Rows or groups in order of something, the first few of them."""
        naming = self.naming
        word, first = naming.reading.words[best.at].low, replace(base, order=best.largest, limit=limit or 1)
        amount = word in ("most", "fewest", "least")
        rows = any(i in naming.nouns for i in (best.at + 1, best.at + 2)) and (amount or word in ("highest", "lowest"))
        if by.column and (best.dimension == "count" or rows):
            return replace(first, intent="count")
        ungrouped = replace(first, intent="rows", group=None, part="")
        if best.dimension == "date":
            measure = measures.moment(naming)
            return replace(ungrouped, measure=measure) if measure else None
        measure = measures.measured(naming, best.dimension if best.dimension in DIMENSIONS else "", best.at)
        if measure is None and best.dimension == "age":
            measure = measures.moment(naming)
            ungrouped = replace(ungrouped, order=not best.largest)
        if measure is None and best.dimension == "duration":
            measure = measures.days_between(naming)
        if measure is None and by.column:
            return replace(first, intent="count")
        measure = measure or (None if best.dimension else measures.default(naming))
        if measure is None:
            return None
        if word in ("best", "worst"):
            good = not HIGH_IS_GOOD.isdisjoint(measure.columns[0].words)
            first, ungrouped = (replace(q, order=good == (word == "best")) for q in (first, ungrouped))
        if by.column and (average or amount or _TOTAL.search(naming.reading.text)):
            intended = measure if average else measures.worth(naming, measure)
            shown = limit or (1 if by.chosen else 200)
            return replace(first, intent="avg" if average else "sum", measure=intended, limit=shown)
        return replace(ungrouped, measure=measure, asked=(by.column,) if by.column and not by.part else ())

    def _finished(self, query: Query) -> Query | None:
        naming, text = self.naming, self.naming.reading.text
        wordy = query.intent in ("rows", "lookup")
        if not wordy:
            query = self._told(query)
        asked = self._asked() if wordy else []
        if wordy:
            plural = _PLURAL.search(text)
            one = asked[0] if asked and plural and not naming.nouns and query.order is None else None
            if one and plural and one.kind == "text" and any(alike(stem(plural[1].lower()), s) for s in one.stems):
                query = replace(query, intent="values", asked=(one,))
            else:
                shown = [naming.table.columns[0], *query.asked, *asked]
                shown += [*(query.measure.columns if query.measure else ()), *naming.table.columns]
                query = replace(query, asked=tuple(dict.fromkeys(shown)))
        query = replace(query, filters=merged(query.filters), share_of=merged(query.share_of))
        query = self._compared(query)
        confidence = self._confidence(query)
        return replace(query, confidence=confidence) if confidence > 0 else None

    def _told(self, query: Query) -> Query:
        """The figure with what remaining words tell of it: a column it uses, or that a date is there (`shipped`).

        A word that names another column without changing the figure counts little: it may well matter.
        """
        naming = self.naming
        used = {f.column for f in (*query.filters, *query.share_of)} | {*query.asked, query.group}
        used |= {*(query.measure.columns if query.measure else ())}
        for at, word in [(i, w) for i, w in naming.reading.free() if w.content]:
            dated = next((c for c in naming.dated if measures.names(word, c)), None)
            column = dated or naming.named(word, naming.columns) or naming.label_of(word)
            if column is None:
                continue
            if column == dated and column.blanks and column not in used:
                query = replace(query, filters=(*query.filters, Filter(column, "filled")))
            known = column in used or column == dated
            naming.reading.use(at, at + 1, 1.0 if known else BESIDE, strong=known)
        return query

    def _asked(self) -> list[Column]:
        """Columns that the remaining words name or mean; they are shown first."""
        naming, found = self.naming, []
        for at, word in [(i, w) for i, w in naming.reading.free() if w.content]:
            column = naming.named(word, naming.columns) or naming.label_of(word)
            column = column or next((c for c in naming.columns if measures.asks_for(word, c)), None)
            if column:
                naming.reading.use(at, at + 1, strong=True)
            elif column := naming.meant(word, naming.columns):
                naming.reading.use(at, at + 1, GUESS)
            if column:
                found.append(column)
        return found

    def _compared(self, query: Query) -> Query:
        """One figure a value, when several values of a column are named and no total is asked for."""
        several = next((f for f in query.filters if f.op == "in"), None)
        figure = query.intent in ("count", "sum", "avg") and query.group is None
        if several and figure and not _TOTAL.search(self.naming.reading.text):
            return replace(query, group=several.column)
        return query

    def _confidence(self, query: Query) -> float:
        """How much of the question is accounted for, 0..1; 0 when too little of it names this table."""
        reading = self.naming.reading
        identified = any(f.column.key and f.op == "=" for f in query.filters)
        plain = query.intent == "lookup" and not identified
        one = any(f.column.unique and f.op == "=" for f in query.filters)
        counting = query.intent in ("count", "rows", "values") and bool(self.naming.nouns)
        needed = 1 if counting or one or query.intent == "distinct count" or query.order is not None else 2
        if (reading.anchors < needed and not identified) or (plain and not query.filters):
            return 0.0
        general = 0.6 if _POLICY.search(reading.text) and not identified else 1.0
        return min(1.0, reading.coverage() * general * (0.9 if plain else 1.0))

