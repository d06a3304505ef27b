"""A question about tables, parsed into a query by its words, without a model call."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from program.models.rules.column_matching import GUESS, TableTrial, asks_for, wants_money
from program.models.rules.scoring import Encoder
from program.models.rules.sql_query import Filter, Query, merge_filters
from program.models.rules.table_bounds import date_bounds, number_bounds
from program.models.rules.table_filters import (
    flag_filters,
    identifier_filters,
    open_date_filters,
    phrase_filters,
    value_filters,
)
from program.models.rules.table_groups import (
    Grouping,
    Superlative,
    find_group,
    find_superlative,
    part_and_whole,
    read_count,
    top_count,
)
from program.models.rules.table_words import HIGH_IS_GOOD, QuestionWords, is_word_of, split_words, stem_word
from program.models.table_schema import DIMENSIONS, Column, Schema

TOTAL = re.compile(r"(?i)\b(?:total(?:s|ling)?|in all|altogether|sum|combined|overall)\b")
AVERAGE = re.compile(r"(?i)\baverages?\b|\bmean\b(?! by)|\btypically\b")
SHARE = re.compile(
    r"(?i)\b(?:share|percentage|percent|per cent|proportion|fraction) of\b"
    r"|\b(?:what|which) (?:share|percentage|proportion|fraction)\b|% of"
)
SPENT = re.compile(
    r"(?i)\bhow much\b.*\b(?:did|has|have|had|was|were)\b|\b(?:revenue|turnover|spent|spend|takings|earned)\b"
)
HOW_LONG = re.compile(r"(?i)\bhow long\b|\bdays\b.*\b(?:between|take|took)\b")
LISTED = re.compile(r"(?i)^\W*(?:please )?(?:list|show|give|display|name|which|what (?:are|were)|find|get|whose)\b")
PLURAL = re.compile(r"(?i)^\W*(?:which|what|list|show|name)(?: (?:me|us|are|were|all|the|different|of))* (\w+s)\b")
POLICY = re.compile(
    r"(?i)\b(?:can|could|may|should|must|shall|would|will) (?:i|we|you|my|our|they|someone|a|an|the)\b"
    r"|\bhow (?:do|can|should|would|could|does) (?:i|we|you|it|the)\b"
    r"|\bif\b|\bwhat happens\b|\bwhy\b|\bam i\b|\bdo i\b|\bdo you\b|\ballowed\b|\b(?:my|your)\b"
    r"|\bi(?:['’](?:m|ve|d)| am| have| want| need)\b"
)
"""Signs of a question about what holds in general, or for the asker, rather than about what is on record."""
TOOK = re.compile(r"(?i)\b(?:take|took|last|lasted|run|ran)\b")
TIMED = re.compile(r"(?i)\b(?:days|time)\b")
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


def parse_question(question: str, schema: Schema, embedder: Encoder) -> Query | None:
    """Return the best query over the tables for a question, or None.

    None means that no table accounts for enough of the question. Every table is tried, with the columns of the tables
    it points at; the one that accounts for most of the question's content words wins, then one the question names,
    then fewer joins, then the first. Words are matched by meaning only where their letters have begun to answer a
    question and leave it open.
    """
    literal, covered = _try_tables(question, schema, None)
    if covered < LITERAL or (literal and literal.confidence >= CERTAIN):
        return literal
    embedder.encode([w.low for w in split_words(question) if w.content])  # in one batch: the embedder keeps them
    return _try_tables(question, schema, embedder)[0]


def _try_tables(question: str, schema: Schema, embedder: Encoder | None) -> tuple[Query | None, float]:
    """Return the best query, and the most of the question that any table accounts for."""
    best: tuple[tuple[float, bool, int], Query] | None = None
    covered = 0.0
    for table in schema.tables:
        trial = TableTrial(QuestionWords(question), table, tuple(schema.reachable_columns(table)), schema, embedder)
        query = _Parse(trial).parse()
        covered = max(covered, trial.question.coverage())
        if query:
            used = [f.column for f in query.filters] + ([query.group] if query.group else [])
            joined = len({c.table for c in used} - {table.name})
            rank = round(query.confidence, 6), bool(trial.nouns), -joined
            best = max(best or (rank, query), (rank, query), key=lambda ranked: ranked[0])
    return best[1] if best else None, covered


@dataclass
class _Parse:
    trial: TableTrial
    filters: tuple[Filter, ...] = ()

    def parse(self) -> Query | None:
        """Return the query, or None when the question names too little of this table."""
        trial, question, columns = self.trial, self.trial.question, self.trial.columns
        found = [*identifier_filters(question, columns, trial.table)]
        spans = [*date_bounds(question, columns)]
        found += value_filters(question, columns, trial.cosines)
        found += number_bounds(question, trial.table, columns)
        found += spans
        found += open_date_filters(question, trial.table.columns)
        trial.mark_table()
        limit = top_count(trial)
        found += phrase_filters(question, columns)
        best = find_superlative(trial)
        shared = bool(SHARE.search(question.text))
        by = Grouping() if shared else find_group(trial, best.at if best else -1)
        found += flag_filters(question, columns)
        self.filters = tuple(found)
        query = self._choose_intent(best, limit, by)
        return self._finish_query(query) if query else None

    def _choose_intent(self, best: Superlative | None, limit: int | None, by: Grouping) -> Query | None:
        trial, text = self.trial, self.trial.question.text
        base = Query(trial.table, "lookup", self.filters, group=by.column, part=by.part)
        if SHARE.search(text) and self.filters:
            parts, whole = part_and_whole(trial.question, self.filters)
            return replace(base, intent="share", filters=parts, share_of=whole, group=None, part="")
        average, total, long = (bool(p.search(text)) for p in (AVERAGE, TOTAL, HOW_LONG))
        if best:
            return self._rank_rows(base, best, limit, by, average)
        took = TOOK.search(text) if long else None
        count = read_count(trial, self.filters, total)
        if count and count.intent == "count" and not average:
            return replace(base, intent="count")
        if average or took:
            measure = trial.find_measure("duration" if long else "")
            if measure is None and (long or TIMED.search(text)):
                measure = trial.days_between()
            if measure and took:
                at = trial.question.word_at(took.start())
                trial.question.mark_used(at, at + 1)
            if measure:
                return replace(base, intent="avg" if average else "lookup", measure=measure)
        if count:
            return replace(base, intent=count.intent, measure=count.measure, asked=count.asked)
        spent = bool(SPENT.search(text))
        if total or spent or (by.column and not by.chosen):
            return self._sum_up(base, total, spent)
        listed = bool(LISTED.search(text) and trial.nouns)
        return replace(base, group=None, part="", intent="rows" if listed else "lookup")

    def _sum_up(self, base: Query, total: bool, spent: bool) -> Query | None:
        """Ask for a sum, or a count when the question names nothing to add up."""
        money = spent or wants_money(self.trial.question.text)
        measure = self.trial.find_measure("money" if money else "")
        if measure is None:
            return replace(base, intent="count") if base.group or self.trial.nouns else None
        alone = self.trial.spelt_out(measure.columns[0])
        return replace(base, intent="sum", measure=measure if alone else self.trial.price_times_quantity(measure))

    def _rank_rows(
        self, base: Query, best: Superlative, limit: int | None, by: Grouping, average: bool
    ) -> Query | None:
        """Ask for rows or groups in order of something, the first few of them."""
        trial = self.trial
        word, first = trial.question.words[best.at].low, replace(base, order=best.largest, limit=limit or 1)
        amount = word in ("most", "fewest", "least")
        rows = any(i in trial.nouns for i in (best.at + 1, best.at + 2)) and (amount or word in ("highest", "lowest"))
        if by.column and (best.dimension == "count" or rows):
            return replace(first, intent="count")
        ungrouped = replace(first, intent="rows", group=None, part="")
        if best.dimension == "date":
            measure = trial.date_measure()
            return replace(ungrouped, measure=measure) if measure else None
        measure = trial.find_measure(best.dimension if best.dimension in DIMENSIONS else "", best.at)
        if measure is None and best.dimension == "age":
            measure = trial.date_measure()
            ungrouped = replace(ungrouped, order=not best.largest)
        if measure is None and best.dimension == "duration":
            measure = trial.days_between()
        if measure is None and by.column:
            return None
        measure = measure or (None if best.dimension else trial.default_measure())
        if measure is None:
            return None
        if word in ("best", "worst"):
            good = not HIGH_IS_GOOD.isdisjoint(measure.columns[0].words)
            first, ungrouped = (replace(q, order=good == (word == "best")) for q in (first, ungrouped))
        if by.column and (average or amount or TOTAL.search(trial.question.text)):
            intended = measure if average else trial.price_times_quantity(measure)
            shown = limit or (1 if by.chosen else 200)
            return replace(first, intent="avg" if average else "sum", measure=intended, limit=shown)
        return replace(ungrouped, measure=measure, asked=(by.column,) if by.column and not by.part else ())

    def _finish_query(self, query: Query) -> Query | None:
        trial, text = self.trial, self.trial.question.text
        wordy = query.intent in ("rows", "lookup")
        if not wordy:
            query = self._account_for_rest(query)
        asked = self._asked_columns() if wordy else []
        if wordy:
            plural = PLURAL.search(text)
            one = asked[0] if asked and plural and not trial.nouns and query.order is None else None
            if one and plural and one.kind == "text" and is_word_of(stem_word(plural[1].lower()), one.telling):
                query = replace(query, intent="values", asked=(one,))
            else:
                shown = [trial.table.columns[0], *query.asked, *asked]
                shown += [*(query.measure.columns if query.measure else ()), *trial.table.columns]
                query = replace(query, asked=tuple(dict.fromkeys(shown)))
        query = replace(query, filters=merge_filters(query.filters), share_of=merge_filters(query.share_of))
        query = self._group_alternatives(query)
        confidence = self._confidence(query)
        return replace(query, confidence=confidence) if confidence > 0 else None

    def _account_for_rest(self, query: Query) -> Query:
        """Add what other words tell of a figure: a column it uses, or a date filled (`shipped`)."""
        trial = self.trial
        used = {f.column for f in (*query.filters, *query.share_of)} | {*query.asked, query.group}
        used |= {*(query.measure.columns if query.measure else ())}
        for at, word in [(i, w) for i, w in trial.question.free_words() if w.content]:
            dated = next((c for c in trial.dated if is_word_of(word.stem, c.telling)), None)
            column = dated or trial.column_named(word, trial.columns) or trial.label_of(word)
            if column is None:
                continue
            if column == dated and column.blanks and column not in used:
                query = replace(query, filters=(*query.filters, Filter(column, "filled")))
            known = column in used or column == dated
            trial.question.mark_used(at, at + 1, 1.0 if known else BESIDE, strong=known)
        return query

    def _asked_columns(self) -> list[Column]:
        """Return columns that the remaining words name or mean; they are shown first."""
        trial, found = self.trial, []
        for at, word in [(i, w) for i, w in trial.question.free_words() if w.content]:
            column = trial.column_named(word, trial.columns) or trial.label_of(word)
            column = column or next((c for c in trial.columns if asks_for(word, c)), None)
            if column:
                trial.question.mark_used(at, at + 1, strong=True)
            elif column := trial.column_meant(word, trial.columns):
                trial.question.mark_used(at, at + 1, GUESS)
            if column:
                found.append(column)
        return found

    def _group_alternatives(self, query: Query) -> Query:
        """Group by a column of which several values are named and no total is asked for."""
        several = next((f for f in query.filters if f.op == "in"), None)
        figure = query.intent in ("count", "sum", "avg") and query.group is None
        if several and figure and not TOTAL.search(self.trial.question.text):
            return replace(query, group=several.column)
        return query

    def _confidence(self, query: Query) -> float:
        """Return how much of the question is accounted for, 0..1, or 0 when too little is."""
        question = self.trial.question
        identified = any(f.column.key and f.op == "=" for f in query.filters)
        plain = query.intent == "lookup" and not identified
        one = any(f.column.unique and f.op == "=" for f in query.filters)
        counting = query.intent in ("count", "rows", "values") and bool(self.trial.nouns)
        needed = 1 if counting or one or query.intent == "distinct count" or query.order is not None else 2
        if (question.anchors < needed and not identified) or (plain and not query.filters):
            return 0.0
        confidence = question.coverage() * (PLAIN if plain else 1.0)
        confidence *= DOUBT if POLICY.search(question.text) and not identified else 1.0
        return min(1.0, confidence * (DOUBT if question.misses_a_name() else 1.0))
