"""A question about tables as slots: what to compute, of what, where, by what, in which order. No model call."""

from __future__ import annotations

from dataclasses import dataclass, replace

from program.models.embedded.encoder import Embedder
from program.models.rules import tables_cues as cues
from program.models.rules import tables_measures as measures
from program.models.rules.tables_bounds import dates, numbers
from program.models.rules.tables_counts import counted, part_and_whole, pieces
from program.models.rules.tables_filters import flags, identifiers, phrases, undone
from program.models.rules.tables_groups import Best, Group, group, how_many, superlative
from program.models.rules.tables_naming import GUESS, Naming
from program.models.rules.tables_query import Filter, Query, merged
from program.models.rules.tables_reading import Reading
from program.models.rules.tables_values import values
from program.models.rules.tables_words import DIMENSIONS, HIGH_IS_GOOD, alike, stem, words
from program.models.table_schema import Column, Schema

LITERAL = 0.34
"""Coverage by letters alone under which meaning is not asked: most questions are not about tables."""
CERTAIN = 0.95
"""Confidence from which meaning need not be asked."""
DOUBT = 0.6
"""What is left of the confidence when a name stays unaccounted for, or a general rule is asked for."""
PLAIN = 0.9
"""The same when no operation is named, so that rows are merely looked up."""
BESIDE = 0.4
"""What a word counts that names a column the figure does not use."""


def fill(question: str, schema: Schema, embedder: Embedder) -> Query | None:
    """The best reading of a question over the tables, or None when nothing of them is named in it.

    Every table is tried, with the columns of the tables it points at; the one that accounts for most of the
    question's content words wins, then one the question names, then fewer joins, then the first. Words are
    matched by meaning only where their letters have begun to answer a question and leave it open. Deterministic.
    """
    literal, covered = _tried(question, schema, None)
    if covered < LITERAL or (literal and literal.confidence >= CERTAIN):
        return literal
    embedder.encode([w.low for w in words(question) if w.content])  # in one batch: the embedder keeps them
    return _tried(question, schema, embedder)[0]


def _tried(question: str, schema: Schema, embedder: Embedder | None) -> tuple[Query | None, float]:
    """The best reading, and the most of the question that any table accounts for."""
    best: tuple[tuple[float, bool, int], Query] | None = None
    covered = 0.0
    for table in schema.tables:
        naming = Naming(Reading(question), table, tuple(schema.reachable(table)), schema, embedder)
        query = _Filling(naming).query()
        covered = max(covered, naming.reading.coverage())
        if query:
            used = [f.column for f in query.filters] + ([query.group] if query.group else [])
            joined = len({c.table for c in used} - {table.name})
            rank = round(query.confidence, 6), bool(naming.nouns), -joined
            best = max(best or (rank, query), (rank, query), key=lambda ranked: ranked[0])
    return best[1] if best else None, covered


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
        shared = bool(cues.SHARE.search(reading.text))
        by = Group() if shared else group(naming, best.at if best else -1, self.having is not None)
        found += flags(reading, columns)
        self.filters = tuple(found)
        query = self._computed(best, limit, by)
        return self._finished(query) if query else None

    def _computed(self, best: Best | None, limit: int | None, by: Group) -> Query | None:
        naming, text = self.naming, self.naming.reading.text
        base = Query(naming.table, "lookup", self.filters, group=by.column, part=by.part, having=self.having)
        if cues.SHARE.search(text) and self.filters:
            parts, whole = part_and_whole(naming.reading, self.filters)
            return replace(base, intent="share", filters=parts, share_of=whole, group=None, part="")
        average, total, long = (bool(p.search(text)) for p in (cues.AVERAGE, cues.TOTAL, cues.HOW_LONG))
        if best:
            return self._ranked(base, best, limit, by, average)
        took = cues.TOOK.search(text) if long else None
        count = counted(naming, self.filters, total)
        if count and count.intent == "count" and not average:
            return replace(base, intent="count")
        if average or took:
            measure = measures.measured(naming, "duration" if long else "")
            if measure is None and (long or cues.TIMED.search(text)):
                measure = measures.days_between(naming)
            if measure and took:
                at = naming.reading.index(took.start())
                naming.reading.use(at, at + 1)
            if measure:
                return replace(base, intent="avg" if average else "lookup", measure=measure)
        if count:
            return replace(base, intent=count.intent, measure=count.measure, asked=count.asked)
        spent = bool(cues.SPENT.search(text))
        if total or spent or (by.column and not by.chosen):
            return self._added(base, total, spent)
        if by.column and self.having:
            return replace(base, intent="count")
        listed = bool(cues.LISTED.search(text) and naming.nouns)
        return replace(base, group=None, part="", intent="rows" if listed else "lookup")

    def _added(self, base: Query, total: bool, spent: bool) -> Query | None:
        """A sum, or a count when the question names nothing to add up."""
        money = spent or measures.wants_money(self.naming.reading.text)
        measure = measures.measured(self.naming, "money" if money else "")
        if measure is None:
            return replace(base, intent="count") if base.group or self.naming.nouns else None
        alone = measures.spelt_out(self.naming, measure.columns[0])
        return replace(base, intent="sum", measure=measure if alone else measures.worth(self.naming, measure))

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
        if measure is None and by.column and any(f.at == best.at + 1 for f in self.filters):
            amount_of = pieces(naming, self.filters, best.at + 1)
            return replace(first, intent="sum" if amount_of else "count", measure=amount_of)
        if measure is None and by.column:
            return None
        measure = measure or (None if best.dimension else measures.default(naming))
        if measure is None:
            return None
        if word in ("best", "worst"):
            good = not HIGH_IS_GOOD.isdisjoint(measure.columns[0].words)
            first, ungrouped = (replace(q, order=good == (word == "best")) for q in (first, ungrouped))
        if by.column and (average or amount or cues.TOTAL.search(naming.reading.text)):
            intended = measure if average else measures.worth(naming, measure)
            shown = limit or (1 if by.chosen else 200)
            return replace(first, intent="avg" if average else "sum", measure=intended, limit=shown)
        return replace(ungrouped, measure=measure, asked=(by.column,) if by.column and not by.part else ())

    def _finished(self, query: Query) -> Query | None:
        naming, text = self.naming, self.naming.reading.text
        if query.having and query.group is None and query.intent != "count":
            return None
        wordy = query.intent in ("rows", "lookup")
        if not wordy:
            query = self._told(query)
        asked = self._asked() if wordy else []
        if wordy:
            plural = cues.PLURAL.search(text)
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
        if several and figure and not cues.TOTAL.search(self.naming.reading.text):
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
        confidence = reading.coverage() * (PLAIN if plain else 1.0)
        confidence *= DOUBT if cues.POLICY.search(reading.text) and not identified else 1.0
        return min(1.0, confidence * (DOUBT if reading.misses_a_name() else 1.0))
