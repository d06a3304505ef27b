"""What the passages say word for word: their pieces, weighed and quoted.

1. Each piece of each passage is weighed: how probably does it state what a look-up asks?
2. What the question names and a piece lacks, while a rival has it, counts against it. Pieces of one look-up rule each
   other out: at most one is right.
3. The most probable are quoted, each thing once, the higher source first.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from itertools import groupby

from ragc.loop.decide import weigh_rivals
from ragc.loop.evidence import (
    ALIKE,
    add_conflict,
    ask_pieces,
    begins_after,
    measure_dispute,
    order_conflict,
    rank_source,
)
from ragc.loop.rows import NO_MATCH, list_headers, name_keys, name_rows
from ragc.loop.state import STATES, Draft, Flow, Request, State, list_ids
from ragc.loop.subjects import Subject, are_alike, discount_strange, find_subject, find_unknown, names_other
from ragc.notes import NoteKind
from ragc.passage import TITLE_STEP, Passage
from ragc.text.days import (
    completes_time,
    drop_dates,
    list_dates,
    list_days,
    list_weekdays,
    names_month,
    order_periods,
)
from ragc.text.facts import holds
from ragc.text.history import FOUND_NOTHING
from ragc.text.pieces import ASKS, Claim, Piece, quote_shortly, split_cells, split_pieces
from ragc.text.ranges import has_time
from ragc.text.words import find_stems, split_words

MOST_NEAREST = 4  # pieces under a refusal
_DIGITS = re.compile(r"[\d\s.,:–-]+")
_NUMBERED = re.compile(r"\d{1,3}[.)] ")


@dataclass(frozen=True, slots=True)
class Quote:
    """A piece of a passage, and how probably it states what a look-up asks; `near` tells whether it may be said."""

    look_up: int
    n: int
    """The passage's number, from 1."""
    passage: Passage
    piece: Piece
    subject: Subject
    probability: float
    near: bool

    @property
    def lead(self) -> str:
        """What leads the list of an item: the line before it, else its heading."""
        if self.piece.lead == "":
            heading = self.passage.title.rpartition(TITLE_STEP)[2]
            return heading if heading[-1:] in ASKS else heading and f"{heading}:"
        return self.piece.lead or ""

    @property
    def coordinates(self) -> tuple[str, ...]:
        """The steps of its title, the name of its row and the header of its cell, the last two empty of a sentence.

        What it says, and a bare number, is no name of a row, though it tells the row from others.
        """
        cells = split_cells(self.piece.text) if self.piece.row else [""]
        named = self.passage.name.split(", ") if self.passage.name else [c.partition(": ")[2] or c for c in cells[:-1]]
        row = ", ".join(name for name in named if name != self.value and any(map(str.isalpha, name)))
        return *self.passage.title.split(TITLE_STEP), row, cells[-1].rpartition(": ")[0]

    @property
    def table(self) -> tuple[object, ...]:
        """What tells the table of a cell; of what is none, itself."""
        of_table = (*self.passage.title.split(TITLE_STEP), list_headers(self.subject.row))
        return of_table if self.subject.header else (self.n, self.piece.start)

    @property
    def value(self) -> str:
        """What it says: of a cell its value."""
        return self.piece.text[self.piece.value :]

    def is_beside(self, other: Quote) -> bool:
        """Tell whether it is an item of the same list."""
        return self.n == other.n and self.piece.items == other.piece.items

    def says_alike(self, other: Quote) -> bool:
        """Tell whether a piece of another passage says the like in other numbers."""
        return self.n != other.n and measure_dispute(self.piece.text, other.piece.text) >= ALIKE

    @property
    def dates(self) -> Sequence[date]:
        """The one or two days, with their year, that a sentence is of; none of a cell."""
        days = sorted(list_dates(self.piece.text))
        return () if self.subject.header or len(days) > 2 else days

    def differs_in_day(self, other: Quote) -> bool:
        """Tell whether it and another sentence of a passage say the like of other days."""
        dated = self.n == other.n and self.dates and other.dates and self.dates != other.dates
        return bool(dated) and measure_dispute(*(drop_dates(one.piece.text) for one in (self, other))) >= ALIKE

    def agrees(self, other: Quote) -> bool:
        """Tell whether it and another cell of a column say the same."""
        same = self.table == other.table and self.subject.header == other.subject.header
        return same and self.value.casefold() == other.value.casefold()

    def is_measured_as(self, other: Quote) -> bool:
        """Tell whether its value and another are measured alike, or one has no number, and are no day and its time."""
        values = [value.casefold() for value in (self.value, other.value)]
        if not all(any(map(str.isdigit, value)) for value in values):
            return not completes_time(*values)
        return len({(_DIGITS.sub("", value), has_time(value)) for value in values}) == 1

    def completes(self, other: Quote) -> bool:
        """Tell whether it and another cell of a row say together when something is: a day, and a time."""
        of_row = self.subject.row == other.subject.row and self.table == other.table
        return of_row and completes_time(self.value, other.value)

    def varies(self, other: Quote, question: str) -> bool:
        """Tell whether both say the like in other numbers, and may be meant."""
        a, b = self.subject, other.subject
        # two rows of a table are of two things
        rows = a.row and list_headers(a.row) == list_headers(b.row) and a.key != b.key
        alike = self.near and other.near and not rows and self.says_alike(other)
        return alike and not any(names_other(question, *pair) for pair in ((a, b), (b, a)))

    def disputes(self, other: Quote, question: str, day: date) -> bool:
        """Tell whether a source of another rank says the like in other numbers."""
        a, b = self.passage, other.passage
        ranked = rank_source(a) != rank_source(b)
        ranked = ranked and not any(one.superseded_by or begins_after(one, day) for one in (a, b))
        return ranked and self.varies(other, question)


def show_piece(passage: Passage, piece: Piece) -> str:
    """Return what an answer shows of a piece; of a cell, behind the name of its row."""
    named = passage.name and piece.row and piece.text[piece.value :] not in passage.name
    return f"{passage.name}, {'; '.join(split_cells(piece.text)[1:])}" if named else piece.shown


def quote_passages(state: State, checked: bool) -> Flow[Draft]:
    """Return what the kept passages state of each look-up, with citations.

    The most probable piece of each look-up comes first. Up to `sentences` in all, others follow that say what is not
    said yet, `checked` only those that are about as probable, of look-ups whose best is past the threshold of `states`.
    The draft is as probable as a look-up's best piece on average, and `stated` if any is past the threshold. Nothing is
    quoted for a code that stands nowhere, and a look-up without a piece is named behind the others.
    """
    found, unknown = yield from weigh_pieces(state)
    if unknown:
        state.missing = unknown
        return Draft((), False, 0.0)
    taken: list[Quote] = []
    best: list[float] = []
    lacking: list[Claim] = []
    threshold = state.program.threshold(STATES, "states")
    for look_up, (query, _) in enumerate(_list_look_ups(state)):
        of_this = keep_rows(state, [quote for quote in found if quote.look_up == look_up], query)
        best.append(_find_best(of_this, query))
        allowed = [quote for quote in of_this if not checked or (quote.near and best[-1] >= threshold)]
        of_days = _list_current(state, allowed[:1], of_this)
        taken += _choose_quotes(state, allowed, taken, query, of_days)
        lacking += [] if allowed else [Claim(FOUND_NOTHING.format(quote_shortly(query)), ())]
    claims = tuple(dict.fromkeys([*_quote_all(taken, state.question), *(lacking if taken else ())]))
    probability = sum(best) / len(best)
    state.path.append(NoteKind.QUOTED(share=probability))
    return Draft(claims, any(one >= threshold for one in best), probability)


def keep_rows(state: State, found: Sequence[Quote], question: str) -> list[Quote]:
    """Return the pieces without those of other rows than the question names."""
    rows = name_rows(state.date_query(question), (quote.subject.row for quote in found))
    return [quote for quote in found if rows.get(quote.subject.row, NO_MATCH).named is not False]


def _choose_quotes(
    state: State, allowed: Sequence[Quote], said: Sequence[Quote], query: str, of_days: Mapping[Quote, bool]
) -> list[Quote]:
    """Return those of a look-up's pieces that say what is not said yet, the most probable first.

    Sentences of other days, `of_days`, come before them, where they are told.

    Of two sources that state the like of one subject in other numbers the one that ranks higher speaks, and the other
    is overruled. Where the look-up names the subject of the first, nothing of another follows. What begins later than
    the day that is asked about comes behind what it changes, and not at all where the question names a year.
    """
    chosen: list[Quote] = []
    for quote in (*(one for one, told in of_days.items() if told), *(one for one in allowed if one not in of_days)):
        if chosen and state.tuning.subject and names_other(query, quote.subject, chosen[0].subject):
            continue
        at = next((at for at, one in enumerate(chosen) if quote.disputes(one, query, state.day)), None)
        if at is not None:
            conflict = order_conflict(quote.passage, chosen[at].passage)
            state.conflicts = add_conflict(state.conflicts, conflict)
            chosen[at] = quote if conflict.followed is quote.passage else chosen[at]
            continue
        shown, *texts = [show_piece(one.passage, one.piece) for one in (quote, *said, *chosen)]
        least = 1.0 if are_alike(query, quote.subject.question) else state.tuning.stated_above
        new = shown not in texts and (quote in of_days or not holds("\n".join(texts), shown, least))
        if new and len(chosen) < state.tuning.sentences:
            chosen.append(quote)
    later = [one for one in chosen if begins_after(one.passage, state.day)]
    changes = [one for one in later if any(one.says_alike(other) for other in chosen if other not in later)]
    lists = [(one.n, one.piece.items or one.piece.start) for one in chosen]  # a list stays together
    chosen = [one for key in dict.fromkeys(lists) for at, one in zip(lists, chosen, strict=True) if at == key]
    chosen.sort(
        key=lambda one: one.piece.start - len(one.passage.text) if are_alike(query, one.subject.question) else 0
    )
    changes.sort(key=lambda one: one.passage.as_of or state.day)
    return [*(one for one in chosen if one not in changes), *(() if state.years else changes)]


def _list_current(state: State, best: Sequence[Quote], found: Sequence[Quote]) -> dict[Quote, bool]:
    """Return the sentences that say the like of the best of other days, and whether each is told.

    Those that are come first: what is in force, then what begins later. There are none where the question names a month
    or a year, or nothing is in force.
    """
    like = [one for one in found if one in best or any(one.differs_in_day(first) for first in best)]
    if len(like) < 2 or state.years or names_month(state.undated):
        return {}
    told = [like[at] for at in order_periods([one.dates for one in like], state.day)]
    return {one: one in told for one in (*told, *like)} if told else {}


def _quote_all(quotes: Iterable[Quote], question: str) -> Iterator[Claim]:
    """Yield quotations as claims; neighbours of one list are one claim, in the list's order.

    Code, and a short list of which the lead, a step or several items are quoted, is told whole, unless the question
    names what one of them alone has: each of them where it has a word of the lead, which is of all. What passages of
    several subjects say alike stands behind the step of the title that tells these apart.
    """
    quotes = list(quotes)
    steps: dict[str, str] = {}
    for one in quotes:
        alike = _find_steps(other.passage for other in quotes if other is one or one.says_alike(other))
        steps[one.passage.id] = steps.get(one.passage.id) or alike.get(one.passage.id, "")
    for (n, lead, items), group in groupby(quotes, key=lambda quote: (quote.n, quote.lead, quote.piece.items)):
        of_lead = list(group)
        pieces = sorted((quote.piece for quote in of_lead if quote.piece.text != lead), key=lambda piece: piece.start)
        whole = _tells_whole(items, len(pieces))
        # Another question that stands above is left out, too.
        asked = lead[-1:] in ASKS and (holds(question, lead, 1.0) or find_stems(lead).isdisjoint(find_stems(question)))
        parts: Iterable[str] = (piece.text.removesuffix(".") for piece in pieces)
        names = [_is_named(quote, question) for quote in of_lead]
        if whole and not (all(names) if find_stems(lead) & find_stems(question) else any(names)):
            parts = items
        passage, step = of_lead[0].passage, steps[of_lead[0].passage.id]
        together = [f"{'' if asked else lead} {'; '.join(parts)}".strip()]
        for shown in together if lead or parts is items else (show_piece(passage, piece) for piece in pieces):
            yield Claim.quote(f"{step}: {shown}" if step and not holds(shown, step, 1.0) else shown, n)


def _find_steps(passages: Iterable[Passage]) -> dict[str, str]:
    """Return by id the step of each title that tells passages apart.

    It is empty unless the titles differ in one step alone.
    """
    titles = {passage.id: passage.title.split(TITLE_STEP) for passage in passages}
    if len({tuple(steps) for steps in titles.values()}) < 2 or len({*map(len, titles.values())}) != 1:
        return {}
    differ = [at for at, steps in enumerate(zip(*titles.values(), strict=True)) if len({*steps}) > 1]
    return {id_: steps[differ[0]] for id_, steps in titles.items()} if len(differ) == 1 else {}


def _is_named(quote: Quote, question: str) -> bool:
    """Tell whether the question has a word of an item that neither its lead and title nor the other items have."""
    others = " ".join(one for one in quote.piece.items if quote.piece.text.rstrip(".;") not in one)
    own = {*split_words(quote.piece.text)}.difference(split_words(f"{quote.passage.title} {quote.lead} {others}"))
    return not own.isdisjoint(split_words(question))


def quote_nearest(state: State) -> Flow[tuple[Claim, ...]]:
    """Return the best pieces as claims, those of one passage together.

    A piece is left out that is not `near` and has under half of the question's words that the best has of them, and one
    of another row than those that are asked for.
    """
    found, _ = yield from weigh_pieces(state)
    found, asked = keep_rows(state, found, state.question), find_stems(state.question)
    held = [len(asked & quote.subject.words) for quote in found]
    least = max(max(held, default=0) / 2, 1)
    found = [quote for quote, words in zip(found, held, strict=True) if quote.near or words >= least]
    best = [*{show_piece(quote.passage, quote.piece): quote for quote in reversed(found)}.values()][::-1][:MOST_NEAREST]
    first = [quote.n for quote in best]
    return tuple(dict.fromkeys(_quote_all(sorted(best, key=lambda quote: first.index(quote.n)), state.question)))


def weigh_pieces(state: State) -> Flow[tuple[list[Quote], str]]:
    """Return the weighed pieces of the passages of each look-up, best first.

    What the last answer said is left out. Beside them stands the code of the question that is in none of them, if there
    is one. What is quoted for an answer is weighed once, and is known where it is refused after all.
    """
    key = (*list_ids(state.kept), *state.queries)
    if key not in state.weighed:
        found = yield from _weigh_anew(state)
        state.weighed[key] = found, find_unknown(state.question, (quote.subject for quote in found))
    return state.weighed[key]


def _weigh_anew(state: State) -> Flow[list[Quote]]:
    places = {passage.id: n for n, passage in enumerate(state.kept, 1)}
    asks, of = list[Request](), list[tuple[tuple[int, str], Passage, Piece]]()
    texts = {p.id: p.text for pool in state.pools.values() for p in pool}.values()
    for look_up, (query, found_by_it) in enumerate(_list_look_ups(state)):
        passages = found_by_it
        rows = name_rows(state.date_query(query), (one.row for one in _list_subjects(found_by_it)))
        if query != state.question and not any(match.named for match in rows.values()):
            rows = name_rows(state.date_query(state.question), (one.row for one in _list_subjects(state.kept)))
            named = {p.id for p in state.kept for one in _list_subjects([p]) if one.row and rows[one.row].named}
            passages = [p for p in state.kept if p in found_by_it or p.id in named]
        dated = query != state.question or any(map(_names_days, _list_subjects(passages)))
        for p in passages:
            for at, piece in enumerate(split_pieces(p.text)):
                if state.last_answer and show_piece(p, piece).rstrip(".") in state.last_answer:
                    continue
                asked = name_keys(query if dated else state.undated, rows, find_subject(p.subject, piece).row, texts)
                asks.append(ask_pieces(asked, p.id, p.source, p.subject, p.text, p.as_of, p.authority)[at])
                of.append(((look_up, query), p, piece))
    if not asks:
        return []
    alone = [reply["states"].probability for reply in (yield asks)]
    subjects = [find_subject(passage.subject, piece) for _, passage, piece in of]
    look_ups = [(look_up, state.date_query(query)) for (look_up, query), *_ in of]
    alone, none = discount_strange(alone, look_ups, subjects, state.tuning, state.date_query(state.question))
    chances = weigh_rivals(alone, [look_up for look_up, _ in look_ups], none)
    least, best = math.exp(-state.tuning.near), defaultdict[int, float](float)
    for (look_up, _), chance in zip(look_ups, chances, strict=True):
        best[look_up] = max(best[look_up], chance)
    found = list[Quote]()
    for ((look_up, query), p, piece), subject, chance in zip(of, subjects, chances, strict=True):
        near = chance >= least * best[look_up] or are_alike(query, subject.question)
        found.append(Quote(look_up, places[p.id], p, piece, subject, chance, near))
    return sorted(_take_lists(found, state.question, least), key=lambda quote: -quote.probability)


def _take_lists(found: Sequence[Quote], question: str, least: float) -> Iterator[Quote]:
    """Yield the pieces, those of a list as near whose best item is the best of its look-up, and not named.

    That is where its other items are near together, though each alone is not.
    """
    best = {one.look_up: one for one in sorted(found, key=lambda one: one.probability)}
    lists = {
        look_up: [one for one in found if one.look_up == look_up and one.is_beside(first) and not one.near]
        for look_up, first in best.items()
        if first.piece.items and not first.subject.row and not _is_named(first, question)
    }
    for one in found:
        others = lists.get(one.look_up, ())
        near = one in others and sum(other.probability for other in others) >= least * best[one.look_up].probability
        yield replace(one, near=True) if near else one


def _names_days(one: Subject) -> bool:
    return bool(list_weekdays(one.text)) or any(list_days(value) for _, value in one.row)


def _list_subjects(passages: Iterable[Passage]) -> Iterator[Subject]:
    return (find_subject(passage.subject, piece) for passage in passages for piece in split_pieces(passage.text))


def _find_best(found: Sequence[Quote], query: str) -> float:
    """Return how probable the best piece is, or that any of a list is right which is told whole.

    The chance of what says the same counts for the best, in a row beside it too, and of what says the like in other
    numbers: it is told with it, or one of them overrules the other. So does the time of day beside the day of a row.
    """
    lists = defaultdict[tuple[int, tuple[str, ...]], list[Quote]](list)
    for quote in found:
        lists[quote.n, quote.piece.items].append(quote)
    of_best = (
        quote.probability
        for quote in found
        if quote.piece.text == found[0].piece.text
        or quote.varies(found[0], query)
        or (quote.near and quote.differs_in_day(found[0]))
        or quote.agrees(found[0])
        or quote.completes(found[0])
    )
    chances = [sum(of_best)]
    for (_, items), of_list in lists.items():
        near = sum(quote.near for quote in of_list)
        if items and near and (near > 1 or _tells_whole(items, near)):
            chances.append(sum(quote.probability for quote in of_list))
    return max(chances)


def _tells_whole(items: Sequence[str], quoted: int) -> bool:
    """Tell whether a list is told whole of which so many pieces are quoted; steps keep their numbers."""
    numbered = bool(items) and _NUMBERED.match(items[0]) is not None
    return len(items) == 1 or numbered or 1 < quoted < len(items)


def _list_look_ups(state: State) -> list[tuple[str, Sequence[Passage]]]:
    """Return the look-ups with the kept passages that each found; those that none found go to all."""
    if len(state.queries) < 2:
        return [(state.question, state.kept)]
    split = state.split_by_look_up(state.kept)
    known = {p.id for _, found in split for p in found}
    return [(query, [p for p in state.kept if p in found or p.id not in known]) for query, found in split]
