"""Look-ups that wait for what another finds, and how one is written once that is in: by rules over words."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from math import exp

import numpy as np

from program.models.embedded.encoder import Embedder
from program.models.rules.grammar import PREP
from program.models.rules.relations import ENTITY, link
from program.models.rules.scoring import by_place, score
from program.models.rules.split import MOST, split
from program.models.rules.units import split_sentences, units
from program.models.rules.words import asks_person, expected, names, people, stems
from program.signatures import Detail, Excerpt

FIRST = 2  # best pieces that may name an office or a group
NEAR = 12  # best pieces that may give a name
BESIDE = 2.0  # how much more a name counts beside the noun it stands for: `the Harbour team`
_THAT = re.compile(rf"\b(?:that|this) (?P<noun>(?:[\w-]+ )??{ENTITY})\b", re.IGNORECASE)
_PRONOUN = re.compile(r"\b(?:he|she)\b", re.IGNORECASE)
_WHO = re.compile(rf"(?:^|[,:;] (?:and )?)(?:{PREP} )?(?:who|whom|whose|which person)\b|\bnames?\b", re.IGNORECASE)
_ARTICLE = r"\b(?:[Tt]he|[Oo]ur|[Ii]ts|[Aa]n?) "
_HEAD = (
    r"(?:head|lead|leader|chief|director|manager|officer|owner|counsel|chair|president|secretary|minister|editor"
    r"|captain|dean|mayor)"
)
_OFFICE = re.compile(
    rf"{_ARTICLE}((?:[\w-]+ ){{0,2}}?{_HEAD}\b(?: of (?:the )?(?:[A-Z][\w-]*(?: [A-Z][\w-]*)*|[a-z][\w-]*))?)"
)
_GROUP = re.compile(rf"{_ARTICLE}((?:(?!of\b|that\b|and\b)[\w-]+ ){{1,2}}?{ENTITY})\b")
_KINDRED = tuple(
    frozenset(nouns.split())
    for nouns in (
        "team group desk department unit office crew",
        "company firm vendor supplier provider carrier courier partner contractor agency",
        "service system tool product",
    )
)
"""Nouns that may stand for each other: what a question calls a group may be a desk in its answer."""


def planned(question: str) -> tuple[tuple[str, ...], list[Detail]]:
    """One to four look-ups, and for each that is to be written anew, which one it waits for.

    A look-up about something that another finds (`the team that runs payroll`, `that team`) stands there twice: as it
    is, and to be written by `follow`; where there is none, one that asks for a person does, who may be an office.
    """
    queries = split(question)
    parents = {n: _parent(queries[:n]) for n in range(1, len(queries) + 1)}
    if not any(parents.values()):
        parents = {n: n if _asks_who(query) else 0 for n, query in enumerate(queries, 1)}
    waiting = [(queries[n - 1], parent) for n, parent in parents.items() if parent][: MOST - len(queries)]
    details = [Detail(n=n, after=[parent]) for n, (_, parent) in enumerate(waiting, len(queries) + 1)]
    return (*queries, *(query for query, _ in waiting)), details


def _parent(queries: Sequence[str]) -> int:
    """The number of the look-up whose evidence names what the last one is about, 0 when that is named already.

    It may be the last one's own: a search for the whole chain often finds its first link.
    """
    *before, query = queries
    if linked := link(query):
        inner = linked.inner.lower()
        return next((n for n, one in enumerate(before, 1) if one.lower().rstrip("?").endswith(inner)), len(queries))
    if _THAT.search(query) or (before and _PRONOUN.search(query) and asks_person(before[-1])):
        return max(len(before), 1)
    return 0


def _asks_who(query: str) -> bool:
    """True when the look-up itself asks for a person: `the guest who left early` does not."""
    asks = (split_sentences(query) or (query,))[-1]
    return _WHO.search(asks) is not None and expected(asks)[:1] == ("name",)


def follow(question: str, draft: str, passages: Sequence[Excerpt], embedder: Embedder) -> str:
    """The draft with what the passages name for what it leaves open, or the draft itself.

    `Who leads the team that runs payroll?` beside `Payroll is run by the Harbour team.` gives
    `Who leads Harbour team?`; `Who signs?` beside `The head of Stores signs.` gives `Who is the head of Stores?`.
    """
    found = units(passages)
    if not found:
        return draft
    asks = (split_sentences(draft) or (draft,))[-1]
    linked, that = link(asks), _THAT.search(asks)
    wanted = linked.inner if linked else draft
    points = score(wanted, [wanted], found, embedder)[0] - by_place(found)
    order = [int(j) for j in np.argsort(-points, kind="stable")[:NEAR]]
    weights = {found[j].text: exp(points[j] - points[order[0]]) for j in order}
    best, known = list(weights)[:FIRST], frozenset(stems(question))
    if linked or that:
        noun = (linked.noun if linked else that["noun"] if that else "").rpartition(" ")[2].lower()
        name = _group(best[:1], known, noun) or _named(weights, known, noun)
        if not name:
            return draft
        return linked.frame.format(name) if linked else _THAT.sub(lambda _: name, asks, count=1)
    person = next((name for text in best for name in people(text, question)), "")
    office = _office(best, known)
    if _PRONOUN.search(asks):
        role = office or _group(best, known, "team")
        who = person or (role and f"the {role}")
        return _PRONOUN.sub(lambda _: who, asks, count=1) if who else draft
    return f"Who is the {office}?" if office and not person else draft


def _named(weights: Mapping[str, float], known: frozenset[str], noun: str) -> str:
    """The name that the best pieces have most of, and the question has not; abbreviations are no names."""
    mass: dict[str, float] = defaultdict(float)
    for text, weight in weights.items():
        for name in names(text):
            if not (known & set(stems(name)) or name.isupper() or any(c.isdigit() for c in name)):
                mass[name] += weight * (BESIDE if _beside(text, name, noun) else 1.0)
    return max(mass, key=mass.__getitem__, default="")


def _beside(text: str, name: str, noun: str) -> bool:
    """`Harbour team`, `Harbour, the payroll team`, `the team called Harbour`."""
    own, it = re.escape(name), re.escape(noun)
    near = rf"\b{own},? (?:the |our )?(?:[\w-]+ )?{it}\b|\b{it},? (?:called |named )?{own}\b"
    return re.search(near, text) is not None


def _group(texts: Sequence[str], known: frozenset[str], noun: str) -> str:
    """What the texts call a thing of that kind (`payroll desk`) by words that the question has not."""
    kindred = next((nouns for nouns in _KINDRED if noun in nouns), {noun})
    for said in (found[1] for text in texts for found in _GROUP.finditer(text)):
        what, _, kind = said.rpartition(" ")
        if kind.lower() in kindred and not known & set(stems(what)):
            return str(said)
    return ""


def _office(texts: Sequence[str], known: frozenset[str]) -> str:
    """The first office (`head of Stores`) that is not the question's own."""
    return next((m[1] for text in texts for m in _OFFICE.finditer(text) if not known >= set(stems(m[1]))), "")
