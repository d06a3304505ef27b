"""What rows are counted, grouped and ranked by."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from program.models.rules.column_matching import TableTrial, asks_for
from program.models.rules.sql_query import Filter, MeasureExpression, Part, Query
from program.models.rules.table_bounds import OPEN_ENDED
from program.models.rules.table_words import ADJECTIVES, SUPERLATIVES, QuestionWords, Word, is_word_of
from program.models.table_schema import Column

_SEVERAL = {"two": 2, "three": 3, "four": 4, "five": 5, "ten": 10}
_N = r"(\d{1,3}|two|three|four|five|ten)"
_BEST = r"(?:latest|newest|oldest|biggest|largest|longest|shortest|highest|lowest|cheapest|most|fewest)"
_TOP = re.compile(rf"(?i)\b(?:top|first|last|{_BEST}) {_N}\b|\b{_N} (?:{_BEST}|\w+ with the {_BEST})\b")
_EACH = re.compile(
    r"(?i)\b(?:per|by|for each|for every|in each|each|every|across|(?:grouped|broken"
    r"|split)(?: down)? by)(?: of)?(?: the)?(?: different)? $"
)
_AGENT = re.compile(
    r"(?i)\b(?:(?!grouped|sorted|split|used|need|speed|broken)\w+(?:ed|en)|made|done|sent|held|paid|led|run|sold|bought"
    r"|won|lost) by (?:the )?$|\bhow many\b.*\bby (?:the )?$"
)
_WHICH = re.compile(r"(?i)\b(?:which|what)\s+(?:\w+\s+)?$")
_TOP_OF = re.compile(r"(?i)\btop(?: \w+)?\s+$")
_AT_MOST = re.compile(r"\b(?:at|for)(?: the)?(?: very)? $")
_PARTS: dict[str, Part] = {"month": "month", "year": "year", "day": "day"}
_COUNT = re.compile(
    r"(?i)\bhow many\b|\bhow often\b|\bnumber of\b|\bcount\b"
    r"|\b(?:are|were|is|was|have|has|did) (?:there |we |they )*any\b"
)
_NO_NOUN = frozenset("did do does were are was is have has had times in from where on at".split())
_VERBS = frozenset("were are was is came come went go have had has got did do".split())
"""What stands between the whole and the part of a share."""
_NOUNS_WITHIN = 5


@dataclass(frozen=True, slots=True)
class Superlative:
    """A superlative: its dimension, which end of it, and the word's index."""

    dimension: str
    largest: bool
    at: int


@dataclass(frozen=True, slots=True)
class Grouping:
    """What rows are grouped by, if anything; `chosen` when one of the groups is asked for."""

    column: Column | None = None
    part: Part = ""
    chosen: bool = False


def top_count(trial: TableTrial) -> int | None:
    """Return the 3 of `top 3`, or None, and use its word."""
    found = _TOP.search(trial.question.text)
    if not found:
        return None
    which = 1 if found[1] else 2
    at = trial.question.word_at(found.start(which))
    trial.question.mark_used(at, at + 1)
    number = found[which].lower()
    return max(1, int(number)) if number.isdigit() else _SEVERAL[number]


def find_superlative(trial: TableTrial) -> Superlative | None:
    """Return the first superlative whose word is free, and use it."""
    question = trial.question
    free = [(i, w) for i, w in question.free_words() if w.low in SUPERLATIVES]
    for at, word in free:
        following = question.words[at + 1] if at + 1 < len(question.words) else None
        if word.low == "top" and len(free) > 1:
            continue
        if word.low in ("most", "least") and _AT_MOST.search(question.text[: word.start]):
            continue
        if word.low == "first" and following is None and len(question.words) < 3:
            continue
        if word.low == "last" and not any(i in trial.nouns for i in range(at + 1, at + 5)):
            continue
        question.mark_used(at, at + 1)
        if word.low in ("most", "least") and following and following.stem in ADJECTIVES:
            question.mark_used(at + 1, at + 2)
            return Superlative(ADJECTIVES[following.stem] or "count", SUPERLATIVES[word.low][1], at)
        return Superlative(*SUPERLATIVES[word.low], at)
    return None


def find_group(trial: TableTrial, ranked: int) -> Grouping:
    """Find what the question groups the rows by, if anything.

    `ranked` is the superlative's index or -1.
    """
    question = trial.question
    texts = [c for c in trial.columns if c.kind in ("text", "boolean")]
    texts = [c for c in texts if not (c.unique and c.table == trial.table.name)]
    for at, word in enumerate(question.words):
        before = question.text[: word.start]
        each = bool(_EACH.search(before)) and not _AGENT.search(before)
        which = bool(_WHICH.search(before)) and at < ranked
        top = ranked >= 0 and bool(_TOP_OF.search(before))
        if not (each or which or top or _is_common(trial, at, ranked)) or at in question.used or at in trial.nouns:
            continue
        dated = [c for c in trial.dated if OPEN_ENDED.isdisjoint(c.words)]
        named = any(is_word_of(word.stem, c.telling) for c in trial.columns)
        if word.stem in _PARTS and dated and not named and trial.schema.dialect == "sqlite":
            question.mark_used(at, at + 1, strong=True)
            return Grouping(dated[0], _PARTS[word.stem], which or top)
        column = trial.label_of(word) or trial.column_named(word, texts)
        column = column or (trial.column_meant(word, texts) if each else None)
        if column and not (column.unique and column.table == trial.table.name):
            trial.mark_column(column, at)
            return Grouping(column, "", not each)
    return Grouping()


def _is_common(trial: TableTrial, at: int, ranked: int) -> bool:
    before = trial.question.words[at - 1].stem if at >= 2 else ""
    return ranked >= 0 and before in ADJECTIVES and not ADJECTIVES[before]


def read_count(trial: TableTrial, filters: Sequence[Filter], total: bool) -> Query | None:
    """Return intent, measure and asked column of a counting question, else None."""
    question, rows = trial.question, Query(trial.table, "count")
    match = _COUNT.search(question.text)
    if not match:
        return None
    if re.search(r"(?:\bany|often)$", match.group(), re.IGNORECASE):
        return rows
    first = question.word_at(match.end())
    for at in range(first, min(first + _NOUNS_WITHIN, len(question.words))):
        word = question.words[at]
        if at in trial.nouns:
            return rows
        if word.low in _NO_NOUN:
            return rows if at > first or word.low == "times" else None
        if at not in question.used:
            found = _of_column(trial, filters, at, word, total)
            if found:
                return found
        elif amount := counted_amount(trial, filters, at):
            return Query(trial.table, "sum", measure=amount)
    return rows


def _of_column(trial: TableTrial, filters: Sequence[Filter], at: int, word: Word, total: bool) -> Query | None:
    texts = [c for c in trial.columns if c.kind in ("text", "boolean") and not c.prose]
    column = trial.label_of(word) or next((c for c in texts if is_word_of(word.stem, c.telling)), None)
    if column:
        trial.mark_column(column, at)
        return Query(trial.table, "distinct count", asked=(column,))
    numeric = trial.numeric
    amount = next((c for c in numeric if is_word_of(word.stem, c.telling)), None)
    amount = amount or next((c for c in numeric if asks_for(word, c)), None)
    if amount:
        trial.question.mark_used(at, at + 1, strong=True)
        trial.use_column(amount)
        one = any(f.op == "=" and (f.column.key or f.column == trial.table.label) for f in filters)
        one = one or any(f.op == "=" and f.column == trial.table.columns[0] for f in filters)
        return Query(trial.table, "lookup" if one and not total else "sum", measure=MeasureExpression((amount,)))
    if word.stem == "day" and (days := trial.days_between()):
        trial.question.mark_used(at, at + 1)
        return Query(trial.table, "lookup", measure=days)
    return None


def counted_amount(trial: TableTrial, filters: Sequence[Filter], at: int) -> MeasureExpression | None:
    """Return the amount to add up when the question counts a value.

    In `how many bolts` it is the quantity or weight; where a word for the table's rows follows, None.
    """
    if any(i in trial.nouns for i in range(at + 1, at + 4)):
        return None
    if not any(f.at == at and f.op in ("=", "in") for f in filters):
        return None
    return next((MeasureExpression((c,)) for c in trial.numeric if c.dimension in ("quantity", "weight")), None)


def part_and_whole(question: QuestionWords, filters: Sequence[Filter]) -> tuple[tuple[Filter, ...], tuple[Filter, ...]]:
    """Split the filters of a share into those of its part and of its whole.

    The whole has the dates and those from `of` to the verb; where nothing else is left, they are the part.
    """
    verb = next((i for i, w in enumerate(question.words) if i > 1 and w.low in _VERBS), -1)
    of = next((i for i, w in enumerate(question.words) if w.low == "of"), -1)
    whole = tuple(f for f in filters if of < f.at < verb or (f.column.kind == "date" and f.op != "blank"))
    parts = tuple(f for f in filters if f not in whole)
    return (parts, whole) if parts else (whole, ())
