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
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
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
from ragc.loop.state import STATES, Draft, Flow, Request, State, list_ids
from ragc.loop.subjects import (
    NO_MATCH,
    RowMatches,
    Subject,
    are_alike,
    discount_strange,
    find_steps,
    find_subject,
    find_unknown,
    list_headers,
    name_keys,
    name_rows,
    names_other,
)
from ragc.notes import NoteKind
from ragc.passage import TITLE_STEP, Passage, document_of
from ragc.text.facts import holds
from ragc.text.history import FOUND_NOTHING
from ragc.text.pieces import ASKS, Claim, Piece, quote_shortly, split_cells, split_pieces
from ragc.text.words import find_stems, split_words

MOST_NEAREST = 4  # pieces under a refusal
MOST_CHOICES = 6  # that a question back lists
MOST_ROWS = 12  # of a column that is told whole
_DIGITS = re.compile(r"[\d\s.,:–-]+")
_NUMBERED = re.compile(r"\d{1,3}[.)] ")


@dataclass(frozen=True, slots=True)
class _Quote:
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

    def says_alike(self, other: _Quote) -> bool:
        """Tell whether a piece of another passage says the like in other numbers."""
        return self.n != other.n and measure_dispute(self.piece.text, other.piece.text) >= ALIKE

    def agrees(self, other: _Quote) -> bool:
        """Tell whether it and another are cells of one column of a table, which say the same."""
        same = self.table == other.table and self.subject.header == other.subject.header
        return same and self.value.casefold() == other.value.casefold()

    def is_measured_as(self, other: _Quote) -> bool:
        """Tell whether its value and another are numbers beside the same words and signs, or one has no number."""
        values = [value.casefold() for value in (self.value, other.value)]
        numbers = all(any(map(str.isdigit, value)) for value in values)
        return not numbers or len({_DIGITS.sub("", value) for value in values}) == 1

    def varies(self, other: _Quote, question: str) -> bool:
        """Tell whether both say the like in other numbers, and may be meant."""
        a, b = self.subject, other.subject
        # two rows of a table are of two things
        rows = a.row and list_headers(a.row) == list_headers(b.row) and a.key != b.key
        alike = self.near and other.near and not rows and self.says_alike(other)
        return alike and not any(names_other(question, *pair) for pair in ((a, b), (b, a)))

    def disputes(self, other: _Quote, question: str, day: date) -> bool:
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
    found, unknown = yield from _weigh_pieces(state)
    if unknown:
        state.missing = unknown
        return Draft((), False, 0.0)
    taken: list[_Quote] = []
    best: list[float] = []
    lacking: list[Claim] = []
    threshold = state.program.threshold(STATES, "states")
    for look_up, query in enumerate(_list_queries(state)):
        of_this = _keep_rows(state, [quote for quote in found if quote.look_up == look_up], query)
        best.append(_find_best(of_this, query))
        allowed = [quote for quote in of_this if not checked or (quote.near and best[-1] >= threshold)]
        taken += _choose_quotes(state, allowed, taken, query)
        lacking += [] if allowed else [Claim(FOUND_NOTHING.format(quote_shortly(query)), ())]
    claims = tuple(dict.fromkeys([*_quote_all(taken, state.question), *(lacking if taken else ())]))
    probability = sum(best) / len(best)
    state.path.append(NoteKind.QUOTED(share=probability))
    return Draft(claims, any(one >= threshold for one in best), probability)


def list_choices(state: State) -> Flow[Draft | None]:
    """Return the choices that a question leaves open; None where it leaves none.

    Choices differ from the best piece in one coordinate alone, and not in their day. Of those that hold most of the
    question's words several have to be left, and the second to be nearly as probable as the best (`open_above`). Of a
    column whose values recur, or by which rows are sought, nothing is left open: it is told whole.
    """
    if state.chose or len(state.queries) > 1:
        return None
    found, unknown = yield from _weigh_pieces(state)
    if unknown:
        return None
    found = _put_first(_keep_rows(state, found, state.question))
    for at in range(len(found[0].coordinates) if found else 0):
        choices = _keep_named(_list_beside(found, at), at, state.question)
        chance = sum(one.probability for one in choices.values())
        if chance < state.program.threshold(STATES, "states"):
            continue
        ordered = sorted(choices.items(), key=lambda pair: (pair[1].n, pair[1].piece.start))
        differ = 2 * len({one.value.casefold() for one in choices.values()}) > len(choices)
        several = at == len(found[0].coordinates) - 2 and sum(one.near for one in choices.values()) > 1
        sought = several and found[0].subject.asks_row(state.question)
        if differ and not sought and len(choices) <= MOST_CHOICES and _are_even(choices, state.tuning.open_above):
            state.path.append(NoteKind.WHICH(n=len(ordered)))
            claims = tuple(Claim.quote(f"{name}: {one.value}", one.n) for name, one in ordered)
            return Draft(claims, True, chance, tuple(name for name, _ in ordered))
        if several and (sought or not differ) and (column := _quote_column(state, choices.values())):
            state.path.append(NoteKind.COLUMN(n=len(column)))
            return Draft(column, True, chance)
    return (_list_table(state, found) if found else None) or _list_apart(state, found)


def _put_first(found: Sequence[_Quote]) -> list[_Quote]:
    """Return the pieces, first the best of the table, or the piece, whose chances are the highest in all."""
    chances = defaultdict[object, float](float)
    for quote in found:
        chances[quote.table] += quote.probability
    first = next((quote for quote in found if chances[quote.table] == max(chances.values())), None)
    return [*filter(None, [first]), *(quote for quote in found if quote is not first)]


def _keep_rows(state: State, found: Sequence[_Quote], question: str) -> list[_Quote]:
    """Return the pieces without those of other rows than the question names."""
    rows = name_rows(state.date_query(question), (quote.subject for quote in found))
    return [quote for quote in found if rows.get(quote.subject.row, NO_MATCH).named is not False]


def _list_table(state: State, found: Sequence[_Quote]) -> Draft | None:
    """Return the rows of a small table, where the question leaves open both the row and the column."""
    first, rows = found[0], defaultdict[str, dict[str, _Quote]](dict)
    for quote in found:
        if quote.table == first.table and quote.coordinates[-2] and quote.is_measured_as(first):
            rows[quote.coordinates[-2]].setdefault(quote.subject.header, quote)
    cells = [cell for of_row in rows.values() for cell in of_row.values()]
    named = {find_stems(state.question) & find_stems(" ".join(cell.coordinates[-2:])) for cell in cells}
    chance = sum(cell.probability for cell in cells)
    widths = {len(of_row) for of_row in rows.values()} | {len(rows)}
    is_open = len(named) == 1 and min(widths) > 1 and max(widths) <= MOST_CHOICES
    if not is_open or not any(map(str.isdigit, first.value)) or chance < state.program.threshold(STATES, "states"):
        return None
    state.path.append(NoteKind.WHICH(n=len(rows)))
    cells.sort(key=lambda cell: (cell.n, cell.piece.start))
    told = {
        row: "; ".join(f"{cell.subject.header} {cell.value}" for cell in of)
        for row, of in groupby(cells, lambda cell: cell.coordinates[-2])
    }
    claims = tuple(Claim.quote(f"{row}: {said}", next(iter(rows[row].values())).n) for row, said in told.items())
    return Draft(claims, True, chance, tuple(told))


def _list_apart(state: State, found: Sequence[_Quote]) -> Draft | None:
    """Return the best piece of each of several subjects, where the question has no word that could name one."""
    choices = dict[str, _Quote]()
    for quote in found if not split_words(state.question) else ():
        if quote.near and len(choices) < MOST_CHOICES:
            choices.setdefault(quote.coordinates[-2] or quote.coordinates[-3], quote)
    chance = sum(quote.probability for quote in choices.values())
    if len(choices) < 2 or chance < state.program.threshold(STATES, "states"):
        return None
    state.path.append(NoteKind.WHICH(n=len(choices)))
    claims = tuple(Claim.quote(f"{name}: {one.value}", one.n) for name, one in choices.items())
    return Draft(claims, True, chance, tuple(choices))


def _quote_column(state: State, choices: Collection[_Quote]) -> tuple[Claim, ...]:
    """Return a column in all rows that a search found, which are kept; of one value those that have it.

    Nothing is returned where they are many, nor where the choices are some of the rows that were kept.
    """
    headers, values = {one.subject.header for one in choices}, {one.value for one in choices}
    tables = {(document_of(one.passage), one.passage.title) for one in choices}
    pools = {p.id: p for pool in (*state.pools.values(), state.kept) for p in pool}
    rows = sorted((p for p in pools.values() if (document_of(p), p.title) in tables), key=lambda p: (len(p.id), p.id))
    every = ((p, piece) for p in rows for piece in split_pieces(p.text))
    cells = [(p, piece) for p, piece in every if find_subject(p.subject, piece).header in headers]
    if len(values) == 1:
        cells = [(p, piece) for p, piece in cells if piece.text[piece.value :] in values]
    kept, chosen = list_ids(state.kept), {(one.passage.id, one.piece.start) for one in choices}
    if len(cells) > MOST_ROWS or any(p.id in kept and (p.id, piece.start) not in chosen for p, piece in cells):
        return ()
    state.kept += dict.fromkeys(p for p, _ in cells if p.id not in kept)
    places = {p.id: n for n, p in enumerate(state.kept, 1)}
    return tuple(Claim.quote(show_piece(p, piece), places[p.id]) for p, piece in cells)


def _list_beside(found: Sequence[_Quote], at: int) -> dict[str, _Quote]:
    """Return the best piece, and those that differ from it in that coordinate alone, the best of each by its name."""
    first, choices = found[0], {found[0].coordinates[at]: found[0]}
    best = first.coordinates
    for quote in found:
        own = quote.coordinates
        beside = len(own) == len(best) and (*own[:at], *own[at + 1 :]) == (*best[:at], *best[at + 1 :])
        alike = beside and quote.passage.as_of == first.passage.as_of and (quote.piece.row or quote.says_alike(first))
        # Other cells of a row say other things.
        if alike and own[at] and (at < len(own) - 1 or (quote.near and quote.is_measured_as(first))):
            choices.setdefault(own[at], quote)
    return choices if best[at] else {}


def _keep_named(choices: Mapping[str, _Quote], at: int, question: str) -> dict[str, _Quote]:
    """Return the choices that hold most of the question's words, where these are the same words in each.

    A word counts that the row or the header which they share lacks, and the header of the rows' names.
    """
    cells = (pair for one in choices.values() for pair in [*enumerate(one.coordinates)][-2:])
    kinds = (one.subject.row[0][0] for one in choices.values() if one.subject.row)
    shared = [*(step for k, step in cells if k != at), *kinds]
    asked = {*split_words(question)}.difference(*map(split_words, shared))
    every, words = {*split_words(question, keep_stop_words=True)}, dict[str, set[str]]()
    for name, one in choices.items():
        said = {*split_words(one.value, keep_stop_words=True)}  # `no` names a choice, too
        words[name] = asked.intersection(split_words(f"{name} {one.value}")) | (said if said <= every else set())
    most = max(map(len, words.values()), default=0)
    named = [name for name, own in words.items() if len(own) == most]
    return {name: choices[name] for name in named if words[name] == words[named[0]]}


def _are_even(choices: Mapping[str, _Quote], least: float) -> bool:
    """Tell whether there are several choices, and the second is likely enough beside the best."""
    if len(choices) < 2:
        return False
    first, second = [*choices.values()][:2]
    return second.probability > least * first.probability


def _choose_quotes(state: State, allowed: Sequence[_Quote], said: Sequence[_Quote], query: str) -> list[_Quote]:
    """Return those of a look-up's pieces that say what is not said yet, the most probable first.

    Of two sources that state the like of one subject in other numbers the one that ranks higher speaks, and the other
    is overruled. Where the look-up names the subject of the first, nothing of another follows. What begins later than
    the day that is asked about comes behind what it changes, and not at all where the question names a year.
    """
    chosen: list[_Quote] = []
    for quote in allowed:
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
        new = shown not in texts and not holds("\n".join(texts), shown, least)
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


def _quote_all(quotes: Iterable[_Quote], question: str) -> Iterator[Claim]:
    """Yield quotations as claims; neighbours of one list are one claim, in the list's order.

    Code, and a short list of which the lead, a step or several items are quoted, is told whole, unless the question
    names what one of them alone has: each of them where it has a word of the lead, which is of all. What passages of
    several subjects say alike stands behind the step of the title that tells these apart.
    """
    quotes = list(quotes)
    steps: dict[str, str] = {}
    for one in quotes:
        alike = find_steps(other.passage for other in quotes if other is one or one.says_alike(other))
        steps[one.passage.id] = steps.get(one.passage.id) or alike.get(one.passage.id, "")
    for (n, lead, items), group in groupby(quotes, key=lambda quote: (quote.n, quote.lead, quote.piece.items)):
        of_lead = list(group)
        pieces = sorted((quote.piece for quote in of_lead if quote.piece.text != lead), key=lambda piece: piece.start)
        whole = _tells_whole(items, len(pieces))
        asked = lead[-1:] in ASKS and holds(question, lead, 1.0)
        parts: Iterable[str] = (piece.text.removesuffix(".") for piece in pieces)
        names = [_is_named(quote, question) for quote in of_lead]
        if whole and not (all(names) if find_stems(lead) & find_stems(question) else any(names)):
            parts = items
        passage, step = of_lead[0].passage, steps[of_lead[0].passage.id]
        together = [f"{'' if asked else lead} {'; '.join(parts)}".strip()]
        for shown in together if lead or parts is items else (show_piece(passage, piece) for piece in pieces):
            yield Claim.quote(f"{step}: {shown}" if step and not holds(shown, step, 1.0) else shown, n)


def _is_named(quote: _Quote, question: str) -> bool:
    """Tell whether the question has a word of an item that neither its lead and title nor the other items have."""
    others = " ".join(one for one in quote.piece.items if quote.piece.text.rstrip(".;") not in one)
    own = {*split_words(quote.piece.text)}.difference(split_words(f"{quote.passage.title} {quote.lead} {others}"))
    return not own.isdisjoint(split_words(question))


def quote_nearest(state: State) -> Flow[tuple[Claim, ...]]:
    """Return the best pieces as claims, those of one passage together.

    A piece is left out that is not `near` and has under half of the question's words that the best has of them, and one
    of another row than those that are asked for.
    """
    found, _ = yield from _weigh_pieces(state)
    found, asked = _keep_rows(state, found, state.question), find_stems(state.question)
    held = [len(asked & quote.subject.words) for quote in found]
    least = max(max(held, default=0) / 2, 1)
    found = [quote for quote, words in zip(found, held, strict=True) if quote.near or words >= least]
    best = [*{show_piece(quote.passage, quote.piece): quote for quote in reversed(found)}.values()][::-1][:MOST_NEAREST]
    first = [quote.n for quote in best]
    return tuple(dict.fromkeys(_quote_all(sorted(best, key=lambda quote: first.index(quote.n)), state.question)))


def _weigh_pieces(state: State) -> Flow[tuple[list[_Quote], str]]:
    """Return every piece of the passages that each look-up found and the last answer did not say, best first.

    Beside them stands the code of the question that is in none of them, if there is one. What is quoted for an answer
    is weighed once, and is known where it is refused after all.
    """
    key = (*list_ids(state.kept), *state.queries)
    if key not in state.weighed:
        found = yield from _weigh_anew(state)
        state.weighed[key] = found, find_unknown(state.question, (quote.subject for quote in found))
    return state.weighed[key]


def _weigh_anew(state: State) -> Flow[list[_Quote]]:
    places = {passage.id: n for n, passage in enumerate(state.kept, 1)}
    asks, of = list[Request](), list[tuple[tuple[int, str], Passage, Piece]]()
    for look_up, (query, found_by_it) in enumerate(_list_look_ups(state)):
        passages, rows = found_by_it, name_rows(state.date_query(query), _list_subjects(found_by_it))
        if query != state.question and not any(match.named for match in rows.values()):
            rows = name_rows(state.date_query(state.question), _list_subjects(state.kept))
            passages = [p for p in state.kept if p in found_by_it or _has_row(p, rows)]
        for p in passages:
            for at, piece in enumerate(split_pieces(p.text)):
                if state.last_answer and show_piece(p, piece).rstrip(".") in state.last_answer:
                    continue
                asked = name_keys(query, rows, find_subject(p.subject, piece))
                asks.append(ask_pieces(asked, p.id, p.source, p.subject, p.text, p.as_of, p.authority)[at])
                of.append(((look_up, query), p, piece))
    if not asks:
        return []
    alone = [reply["states"].probability for reply in (yield asks)]
    subjects = [find_subject(passage.subject, piece) for _, passage, piece in of]
    look_ups = [(look_up, state.date_query(query)) for (look_up, query), *_ in of]
    alone = discount_strange(alone, look_ups, subjects, state.tuning.subject, state.date_query(state.question))
    chances = weigh_rivals(alone, [look_up for look_up, _ in look_ups])
    least = math.exp(-state.tuning.near)
    best = defaultdict[int, float](float)
    for ((look_up, _), *_), chance in zip(of, chances, strict=True):
        best[look_up] = max(best[look_up], chance)
    found = [
        _Quote(
            look_up,
            places[p.id],
            p,
            piece,
            subject,
            chance,
            chance >= least * best[look_up] or are_alike(query, subject.question),
        )
        for ((look_up, query), p, piece), subject, chance in zip(of, subjects, chances, strict=True)
    ]
    return sorted(found, key=lambda quote: -quote.probability)


def _list_subjects(passages: Iterable[Passage]) -> Iterator[Subject]:
    return (find_subject(passage.subject, piece) for passage in passages for piece in split_pieces(passage.text))


def _has_row(passage: Passage, rows: RowMatches) -> bool:
    """Tell whether a row of a passage is named."""
    return any(rows.get(subject.row, NO_MATCH).named for subject in _list_subjects([passage]))


def _find_best(found: Sequence[_Quote], query: str) -> float:
    """Return how probable the best piece is, or that any of a list is right which is told whole.

    The chance of what says the same counts for the best, in a row beside it too, and of what says the like in other
    numbers: it is told with it, or one of them overrules the other.
    """
    lists = defaultdict[tuple[int, tuple[str, ...]], list[_Quote]](list)
    for quote in found:
        lists[quote.n, quote.piece.items].append(quote)
    of_best = (
        quote.probability
        for quote in found
        if quote.piece.text == found[0].piece.text or quote.varies(found[0], query) or quote.agrees(found[0])
    )
    chances = [sum(of_best)]
    for (_, items), of_list in lists.items():
        near = sum(quote.near for quote in of_list)
        if items and near and (near > 1 or _tells_whole(items, near)):
            chances.append(sum(quote.probability for quote in of_list))
    return max(chances)


def _tells_whole(items: Sequence[str], quoted: int) -> bool:
    """Tell whether a list is told whole of which so many pieces are quoted."""
    return len(items) == 1 or (len(items) > quoted and (quoted != 1 or _NUMBERED.match(items[0]) is not None))


def _list_queries(state: State) -> Sequence[str]:
    """Return what each look-up asks."""
    return state.queries if len(state.queries) > 1 else [state.question]


def _list_look_ups(state: State) -> list[tuple[str, Sequence[Passage]]]:
    """Return the look-ups with the kept passages that each found; those that none found go to all."""
    if len(state.queries) < 2:
        return [(state.question, state.kept)]
    split = state.split_by_look_up(state.kept)
    known = {p.id for _, found in split for p in found}
    return [(query, [p for p in state.kept if p in found or p.id not in known]) for query, found in split]
