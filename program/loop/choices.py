"""What a question leaves open: the choices that the best pieces differ in, and a column that is told whole."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

from ragc.loop.quotations import Quote, keep_rows, show_piece, weigh_pieces
from ragc.loop.rows import NO_MATCH, name_rows
from ragc.loop.state import STATES, Draft, Flow, State, list_ids
from ragc.loop.subjects import find_subject, is_named_else
from ragc.notes import NoteKind
from ragc.passage import document_of
from ragc.text.days import list_dates, names_month, order_periods
from ragc.text.pieces import Claim, split_pieces
from ragc.text.words import find_stems, is_negated, split_words

MOST_CHOICES = 6  # that a question back lists
MOST_ROWS = 12  # of a column that is told whole


def list_choices(state: State) -> Flow[Draft | None]:
    """Return the choices that a question leaves open; None where it leaves none.

    Choices differ from the best piece in one coordinate alone, and not in their day. Of those that hold most of the
    question's words several have to be left, and the second to be nearly as probable as the best (`open_above`). Of a
    column whose values recur, or by which rows are sought, nothing is left open: it is told whole.
    """
    if state.chose or len(state.queries) > 1:
        return None
    found, unknown = yield from weigh_pieces(state)
    if unknown:
        return None
    found = _put_first(keep_rows(state, found, state.question))
    rows = name_rows(state.date_query(state.question), (quote.subject.row for quote in found))
    for at in range(len(found[0].coordinates) if found else 0):
        choices = _keep_named(_list_beside(found, at), at, state.question)
        chance = sum(one.probability for one in choices.values())
        if chance < state.program.threshold(STATES, "states"):
            continue
        first, second = [*choices.values(), found[0]][:2]
        differ = 2 * len({one.value.casefold() for one in choices.values()}) > len(choices) > 1
        several = at == len(found[0].coordinates) - 2 and sum(one.near for one in choices.values()) > 1
        sought = several and found[0].subject.asks_row(state.question)
        if sought:  # `no` is none of the dishes that contain nuts
            said = {name: one for name, one in choices.items() if is_negated(one.value) == is_negated(state.question)}
            choices = said or choices
        of_title = at < len(found[0].coordinates) - 2
        if of_title and (current := _find_current(state, choices)):
            return Draft((Claim.quote(f"{current}: {choices[current].piece.shown}", choices[current].n),), True, chance)
        named = all(rows.get(one.subject.row, NO_MATCH).named for one in choices.values())
        even = named or second.probability > state.tuning.open_above * first.probability
        if differ and not sought and len(choices) <= MOST_CHOICES and even:
            return _ask_which(state, {name: [one] for name, one in choices.items()}, found)
        if several and (sought or not differ) and (column := _quote_column(state, choices.values())):
            state.path.append(NoteKind.COLUMN(n=len(column)))
            return Draft(column, True, chance)
    listed = (_list_table(found, state.question), _list_apart(found, state.question))
    return next(filter(None, (_ask_which(state, choices, found) for choices in listed)), None)


def _find_current(state: State, choices: Mapping[str, Quote]) -> str:
    """Return the step of a title that is in force, where each names its days: `Tickets until 31 January 2027`.

    There is none where the question names a month.
    """
    names = [*choices]
    periods = [sorted(list_dates(name)) for name in names]
    if len(names) < 2 or not all(1 <= len(days) <= 2 for days in periods) or names_month(state.undated):
        return ""
    return "".join(names[at] for at in order_periods(periods, state.day)[:1])


def _ask_which(state: State, choices: Mapping[str, Sequence[Quote]], found: Sequence[Quote]) -> Draft | None:
    """Return the choices as claims, each with what is said of it.

    None of one, of improbable ones, and where a piece is of something that the question names and no choice has.
    """
    cells = [one for of_name in choices.values() for one in of_name]
    lacks = find_stems(state.question).difference(*(one.subject.words | one.subject.row_words for one in cells))
    other = any(not lacks.isdisjoint(find_stems(f"{one.subject.name}\n{one.subject.header}")) for one in found)
    chance = sum(one.probability for one in cells)
    if len(choices) < 2 or other or chance < state.program.threshold(STATES, "states"):
        return None
    state.path.append(NoteKind.WHICH(n=len(choices)))
    ordered = sorted(choices.items(), key=lambda pair: min((one.n, one.piece.start) for one in pair[1]))
    named = (
        (name, [f"{one.subject.header} {one.value}" if len(of) > 1 else one.value for one in of], of[0].n)
        for name, of in ordered
    )
    claims = tuple(Claim.quote(f"{name}: {'; '.join(said)}", n) for name, said, n in named)
    return Draft(claims, True, chance, tuple(name for name, _ in ordered))


def _put_first(found: Sequence[Quote]) -> list[Quote]:
    """Return the pieces, first the best of the table, or the piece, whose chances are the highest in all."""
    chances = defaultdict[object, float](float)
    for quote in found:
        chances[quote.table] += quote.probability
    first = max(found, key=lambda quote: chances[quote.table], default=None)
    return sorted(found, key=lambda quote: quote is not first)


def _list_table(found: Sequence[Quote], question: str) -> dict[str, list[Quote]]:
    """Return the cells of each row of a small table, where the question leaves open both the row and the column."""
    rows = defaultdict[str, dict[str, Quote]](dict)
    for quote in found:
        if quote.table == found[0].table and quote.coordinates[-2] and quote.is_measured_as(found[0]):
            rows[quote.coordinates[-2]].setdefault(quote.subject.header, quote)
    cells = [cell for of_row in rows.values() for cell in of_row.values()]
    named = {find_stems(question) & find_stems(" ".join(cell.coordinates[-2:])) for cell in cells}
    widths = {len(of_row) for of_row in rows.values()} | {len(rows)}
    is_open = len(named) == 1 and min(widths) > 1 and max(widths) <= MOST_CHOICES
    if not is_open or not any(map(str.isdigit, found[0].value)):
        return {}
    return {row: sorted(of.values(), key=lambda cell: cell.piece.start) for row, of in rows.items()}


def _list_apart(found: Sequence[Quote], question: str) -> dict[str, list[Quote]]:
    """Return the best piece of each of several subjects, where the question has no word that could name one."""
    choices = dict[str, list[Quote]]()
    for quote in found if not split_words(question) else ():
        if quote.near and len(choices) < MOST_CHOICES:
            choices.setdefault(quote.coordinates[-2] or quote.coordinates[-3], [quote])
    return choices


def _quote_column(state: State, choices: Collection[Quote]) -> tuple[Claim, ...]:
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


def _list_beside(found: Sequence[Quote], at: int) -> dict[str, Quote]:
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


def _keep_named(choices: Mapping[str, Quote], at: int, question: str) -> dict[str, Quote]:
    """Return the choices that hold most of the question's words, where these are the same words in each.

    A word counts that the row or the header which they share lacks, and the header of the rows' names.
    """
    cells = (pair for one in choices.values() for pair in [*enumerate(one.coordinates)][-2:])
    kinds = {one.subject.row[0][0] for one in choices.values() if one.subject.row}
    shared = [*(step for k, step in cells if k != at), *(kinds if len(kinds) == 1 else ())]
    asked = {*split_words(question)}.difference(*map(split_words, shared))
    every, words = {*split_words(question, keep_stop_words=True)}, dict[str, set[str]]()
    for name, one in choices.items():
        said = {*split_words(one.value, keep_stop_words=True)}  # `no` names a choice, too
        words[name] = asked.intersection(split_words(f"{name} {one.value}")) | (said if said <= every else set())
    most = max(map(len, words.values()), default=0)
    named = [name for name, own in words.items() if len(own) == most and not is_named_else(question, name, choices)]
    # A question that names `X200` does not leave `X200 Pro` open.
    whole = [stems for name in named if (stems := find_stems(name)) and stems <= find_stems(question)]
    named = [name for name in named if not any(find_stems(name) > stems for stems in whole)]
    return {name: choices[name] for name in named if words[name] == words[named[0]]}
