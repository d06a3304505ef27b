"""The options that a vague question leaves open, all of one kind: plans, or products, or places, as the passages say.

Nothing is known beforehand about what there is. Names are of one kind when the passages treat them alike: rows of one
table, columns of one table, or names listed beside each other (`Home, Pro and Enterprise`). Of the kinds found, that
counts of which most is said in the pieces nearest to the question.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from itertools import combinations, groupby, pairwise, permutations

from program.models.rules.units import Unit
from program.models.rules.words import names, stems
from program.signatures import Excerpt

MOST = 4
NEAR = 20  # pieces nearest to the question that are looked at
LONGEST = 4  # words of an option
FRAMES = 2  # nouns that two names must both stand before, to be of one kind for that
_FRAME = re.compile(
    r"\b(?:a|an|the|on|for|of|every|each|your|per|to) ((?:[A-Z][\w’'-]*)(?: (?:[A-Z][\w’'-]*|\d+))*) ([a-z]{3,})\b"
)
_CLOSING = re.compile(r"\b(?:and|or|nor)\b|&|/")
_PRICE = re.compile(r" [A-Z]{3} \d.*$")
_BETWEEN = re.compile(r"\s*(?:,|/|,?\s(?:and|or|and/or|nor|&))\s*(?:(?:a|an|the|on|for|at|in|by)\s)?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Options:
    """Two to `MOST` options, and the word for what they are, or an empty one."""

    names: tuple[str, ...]
    kind: str = ""


def options(question: str, ranked: Sequence[Unit], passages: Sequence[Excerpt]) -> Options | None:
    """The options of one kind among the pieces, which come nearest to the question first; None when there are none."""
    asked = set(stems(question))
    alike = _Alike()
    for siblings in _in_prose(ranked, passages):
        alike.join(siblings)
    tables = [*_in_tables(ranked, set(_told(ranked, passages)))]
    for siblings, _ in tables:
        alike.join(siblings)
    for family in _families(_told(ranked, passages)):
        alike.join(family, beside=False)
    mentions = {
        name: [rank for rank, unit in enumerate(ranked) if pattern.search(f"{unit.context}. {unit.text}")]
        for name in alike.names
        if not set(stems(name)) <= asked
        for pattern in [re.compile(rf"(?<!\w){re.escape(name)}(?!\w)")]
    }
    near = {name: 1 / (3 + ranks[0]) for name, ranks in mentions.items() if ranks and ranks[0] < NEAR}
    tabled = {name for siblings, _ in tables for name in siblings}
    best: list[str] = []
    top = 0.0
    for group in alike.groups():
        named = sorted((name for name in group if name in near), key=lambda name: -near[name])
        named = [name for name in named if not any(alike.is_case(other, name) for other in named)]
        spread = len({ranked[rank].n for name in named for rank in mentions[name]})
        worth = spread * sum(near[name] for name in named[:MOST])
        if len(named) > 1 and (spread > 1 or tabled.intersection(named)) and worth > top:
            best, top = named, worth
    if not best:
        return None
    chosen = best[:MOST]
    words = Counter(kind for siblings, kind in tables for name in siblings if kind and name in chosen)
    kind = words.most_common(1)[0][0] if words else ""
    return Options(tuple(name for name in alike.names if name in chosen), kind)


def _told(found: Sequence[Unit], passages: Sequence[Excerpt]) -> list[str]:
    """The names in sentences and titles, in the order of the passages."""
    told = [unit.text for unit in sorted(found, key=lambda unit: (unit.n, unit.at)) if not unit.cells]
    return [name for text in (*told, *(passage.title for passage in passages)) for name in names(text)]


def _in_prose(found: Sequence[Unit], passages: Sequence[Excerpt]) -> Iterator[list[str]]:
    """Names that sentences and titles list beside each other, or put before the same nouns."""
    framed: dict[str, set[str]] = {}
    for unit in sorted(found, key=lambda unit: (unit.n, unit.at)):
        for name, noun in _FRAME.findall(unit.text):
            framed.setdefault(name, set()).update(stems(noun))
        if not unit.cells:
            yield from _listed(unit.text)
    for passage in passages:
        for part in passage.title.split(" > "):
            yield from _listed(part)
    for (name, nouns), (other, others) in combinations(framed.items(), 2):
        if len(nouns & others) >= FRAMES:
            yield [name, other]


def _in_tables(found: Sequence[Unit], told: Set[str]) -> Iterator[tuple[list[str], str]]:
    """The first cells of a table's rows with what their column calls them, and columns that prose speaks of."""
    firsts: dict[tuple[int, str], list[str]] = {}
    for unit in sorted(found, key=lambda unit: (unit.n, unit.at)):
        if unit.cells:
            (header, first), *others = unit.cells
            firsts.setdefault((unit.n, header), []).append(first)
            yield [column for column, _ in others if column in told], ""
    for (_, header), cells in firsts.items():
        if header and all(_is_name(cell) for cell in cells):
            yield list(dict.fromkeys(cells)), header.lower()


def _families(told: Sequence[str]) -> Iterator[list[str]]:
    """Names with the same first word: `Merle`, `Merle 2`, `Merle 3`."""
    for _, family in groupby(sorted(set(told)), lambda name: name.partition(" ")[0]):
        yield [*family]


def _listed(text: str) -> Iterator[list[str]]:
    """Runs of names with nothing but a comma, `and` or `or` between them; commas alone may be a way through menus."""
    places = sorted(
        (m.start(), m.end()) for name in names(text) for m in re.finditer(rf"(?<!\w){re.escape(name)}(?!\w)", text)
    )
    places = [(a, a + len(_PRICE.sub("", text[a:b]))) for a, b in places]
    places = [(a, b) for a, b in places if not any(c <= a and b <= d and (a, b) != (c, d) for c, d in places)]
    run, closed = places[:1], False
    for (_, end), place in pairwise(places):
        between = text[end : place[0]]
        if not _BETWEEN.fullmatch(between):
            if closed:
                yield [text[a:b] for a, b in run]
            run, closed = [], False
        run.append(place)
        closed = closed or bool(_CLOSING.search(between))
    if closed:
        yield [text[a:b] for a, b in run]


def _is_name(cell: str) -> bool:
    return 0 < len(cell.split()) <= LONGEST and cell[0].isupper() and not cell.isupper()


class _Alike:
    """Names joined into kinds: what is alike to the same is alike."""

    def __init__(self) -> None:
        self._of: dict[str, list[str]] = {}
        self._beside: set[tuple[str, str]] = set()

    @property
    def names(self) -> Iterable[str]:
        """In the order in which they were first joined."""
        return self._of

    def join(self, siblings: Sequence[str], beside: bool = True) -> None:
        if len(siblings) < 2:
            return
        group = list(dict.fromkeys(member for name in siblings for member in self._of.get(name, [name])))
        self._of.update(dict.fromkeys(group, group))
        if beside:
            self._beside.update(permutations(siblings, 2))

    def groups(self) -> list[list[str]]:
        return list({id(group): group for group in self._of.values()}.values())

    def is_case(self, name: str, other: str) -> bool:
        """True when a name is a case of the other: `Home Plus` of `Home`, unless they are named beside each other."""
        return name.startswith(f"{other} ") and (name, other) not in self._beside
