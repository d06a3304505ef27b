"""An answer quoted from the kept passages: the pieces that state what is asked, by a compiled decision."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from program.loop.state import STATES, Ask, Flow, State
from program.models.text import split_pieces
from program.passage import Passage


@dataclass(frozen=True, slots=True)
class _Quote:
    """A piece of a passage, and how probably it states what a look-up asks; `stated` is that past the threshold."""

    look_up: int
    n: int
    """The passage's number, from 1."""
    text: str
    probability: float
    stated: bool


def quote_passages(state: State) -> Flow[str]:
    """Return what the kept passages state of each look-up, most probable first, each piece with its citation.

    Of each look-up at most `sentences` pieces past the threshold are taken; where none is, the best `quote_at_least`
    of all. Nothing is said twice.
    """
    found = yield from _weigh_pieces(state)
    taken: list[_Quote] = []
    for look_up in range(max(len(state.queries), 1)):
        of_this = [quote for quote in found if quote.look_up == look_up and quote.stated]
        taken += _take(of_this, taken, state.tuning.sentences)
    taken += _take(found, taken, state.tuning.quote_at_least - len(taken))
    return " ".join(f"{quote.text.rstrip(' .;:,')} [{quote.n}]." for quote in taken)


def _weigh_pieces(state: State) -> Flow[list[_Quote]]:
    """Return every piece of the passages that each look-up found, the most probable first."""
    places = {passage.id: n for n, passage in enumerate(state.kept, 1)}
    asked = [
        (look_up, query, passage, piece.text)
        for look_up, (query, passages) in enumerate(_list_look_ups(state))
        for passage in passages
        for piece in split_pieces(passage.text)
    ]
    if not asked:
        return []
    replies = yield [
        Ask(STATES, {"question": query, "passage": passage, "sentence": text}) for _, query, passage, text in asked
    ]
    found = [
        _Quote(look_up, places[passage.id], text, float(reply["states"].probability), bool(reply["states"].value))
        for (look_up, _, passage, text), reply in zip(asked, replies, strict=True)
    ]
    return sorted(found, key=lambda quote: -quote.probability)


def _list_look_ups(state: State) -> list[tuple[str, Sequence[Passage]]]:
    """Return the look-ups with the kept passages that each found; those that none found go to all."""
    if len(state.queries) < 2:
        return [(state.question, state.kept)]
    found = {q: {p.id for (_, query), ps in state.ranked.items() if query == q for p in ps} for q in state.queries}
    known = set().union(*found.values())
    return [(query, [p for p in state.kept if p.id in found[query] or p.id not in known]) for query in state.queries]


def _take(quotes: Sequence[_Quote], taken: Sequence[_Quote], most: int) -> list[_Quote]:
    new: list[_Quote] = []
    for quote in quotes:
        if len(new) >= most:
            break
        if not any(quote.text.casefold() in other.text.casefold() for other in (*taken, *new)):
            new.append(quote)
    return new
