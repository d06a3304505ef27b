"""The next query and the question to ask back, written from what the passages say."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from math import exp

import numpy as np

from program.models.rules.scoring import Encoder, place_penalty, score_units, stem_rarity
from program.models.rules.sentences import Quotable, split_quotables, split_sentences
from program.models.rules.splitting import ENTITY, MOST, PREP, find_relation, split_question
from program.models.rules.words import (
    KINDS,
    STOP,
    asks_person,
    content_stems,
    expected_kinds,
    find_names,
    find_people,
    value_kinds,
)
from program.signatures import Detail, Excerpt

FIRST = 2  # best pieces that may name an office or a group
NEAR = 12  # best pieces that may give a name
BESIDE = 2.0  # how much more a name counts beside the noun it stands for: `the Harbour team`
_THAT = re.compile(rf"(?i)\b(?:that|this) (?P<noun>(?:[\w-]+ )??{ENTITY})\b")
_PRONOUN = re.compile(r"(?i)\b(?:he|she)\b")
_WHO = re.compile(rf"(?i)(?:^|[,:;] (?:and )?)(?:{PREP} )?(?:who|whom|whose|which person)\b|\bnames?\b")
_ARTICLE = r"\b(?:[Tt]he|[Oo]ur|[Ii]ts|[Aa]n?) "
_HEAD = (
    r"(?:head|lead|leader|chief|director|manager|officer|owner|counsel|chair|president|secretary|minister|editor"
    r"|captain|dean|mayor)"
)
_OFFICE = re.compile(
    rf"{_ARTICLE}((?:[\w-]+ ){{0,2}}?{_HEAD}\b(?: of (?:the )?(?:[A-Z][\w-]*(?: [A-Z][\w-]*)*|[a-z][\w-]*))?)"
)
_GROUP = re.compile(rf"{_ARTICLE}((?:(?!of\b|that\b|and\b)[\w-]+ ){{1,2}}?{ENTITY})\b")
_KINDRED = (
    frozenset("team group desk department unit office crew".split()),
    frozenset("company firm vendor supplier provider carrier courier partner contractor agency".split()),
    frozenset("service system tool product".split()),
)
"""Nouns that may stand for each other: what a question calls a group may be a desk in its answer."""
NEW_WORDS = 6  # of the nearest piece that a refocused query takes over
PAGES = 3
_WORDS = re.compile(r"[\w][\w’'.:%/-]*[\w%]|\w")
_WH = re.compile(
    r"(?i)^(?:(?:by|for|from|in|to|on|at|with|of|within|after)\s+)?(?:who|whom|whose|what|which|when|where|why"
    r"|how(?: (?:much|many|long|often|far|soon))?)\b"
)


def plan_look_ups(question: str) -> tuple[tuple[str, ...], list[Detail]]:
    """Return one to four look-ups, and which of them wait for what another finds.

    A look-up about something that another finds (`the team that runs payroll`, `that team`) stands there twice: as it
    is, and to be written by `rewrite_query`. Where there is none, one that asks for a person does, who may be an
    office.
    """
    queries = split_question(question)
    parents = {n: _parent_number(queries[:n]) for n in range(1, len(queries) + 1)}
    if not any(parents.values()):
        parents = {n: n if _asks_who(query) else 0 for n, query in enumerate(queries, 1)}
    waiting = [(queries[n - 1], parent) for n, parent in parents.items() if parent][: MOST - len(queries)]
    details = [Detail(n=n, after=[parent]) for n, (_, parent) in enumerate(waiting, len(queries) + 1)]
    return (*queries, *(query for query, _ in waiting)), details


def _parent_number(queries: Sequence[str]) -> int:
    """Return the number of the look-up that finds what the last one is about; 0 if that is named."""
    *before, query = queries
    if linked := find_relation(query):
        inner = linked.inner.lower()
        return next((n for n, one in enumerate(before, 1) if one.lower().rstrip("?").endswith(inner)), len(queries))
    if _THAT.search(query) or (before and _PRONOUN.search(query) and asks_person(before[-1])):
        return max(len(before), 1)
    return 0


def _asks_who(query: str) -> bool:
    asks = (split_sentences(query) or (query,))[-1]
    return _WHO.search(asks) is not None and expected_kinds(asks)[:1] == ("name",)


def rewrite_query(question: str, draft: str, passages: Sequence[Excerpt], embedder: Encoder) -> str:
    """Fill in what the draft leaves open with names from the passages.

    Without such a name the draft comes back as it is. `Who leads the team that runs payroll?` beside `Payroll is run by
    the Harbour team.` gives `Who leads Harbour team?`; `Who signs?` beside `The head of Stores signs.` gives `Who is
    the head of Stores?`.
    """
    found = split_quotables(passages)
    if not found:
        return draft
    asks = (split_sentences(draft) or (draft,))[-1]
    linked, that = find_relation(asks), _THAT.search(asks)
    wanted = linked.inner if linked else draft
    points = score_units(wanted, [wanted], found, embedder)[0] - place_penalty(found)
    order = [int(j) for j in np.argsort(-points, kind="stable")[:NEAR]]
    weights = {found[j].text: exp(points[j] - points[order[0]]) for j in order}
    best, known = list(weights)[:FIRST], frozenset(content_stems(question))
    if linked or that:
        noun = (linked.noun if linked else that["noun"] if that else "").rpartition(" ")[2].lower()
        name = _group_name(best[:1], known, noun) or _likeliest_name(weights, known, noun)
        if not name:
            return draft
        return linked.frame.format(name) if linked else _THAT.sub(lambda _: name, asks, count=1)
    person = next((name for text in best for name in find_people(text, question)), "")
    office = _office_name(best, known)
    if _PRONOUN.search(asks):
        role = office or _group_name(best, known, "team")
        who = person or (role and f"the {role}")
        return _PRONOUN.sub(lambda _: who, asks, count=1) if who else draft
    return f"Who is the {office}?" if office and not person else draft


def _likeliest_name(weights: Mapping[str, float], known: frozenset[str], noun: str) -> str:
    """Return the name that the best units have most of and the question lacks, no abbreviation."""
    mass: dict[str, float] = defaultdict(float)
    for text, weight in weights.items():
        for name in find_names(text):
            if not (known & set(content_stems(name)) or name.isupper() or any(c.isdigit() for c in name)):
                mass[name] += weight * (BESIDE if _stands_beside(text, name, noun) else 1.0)
    return max(mass, key=mass.__getitem__, default="")


def _stands_beside(text: str, name: str, noun: str) -> bool:
    """Match `Harbour team`, `Harbour, the payroll team`, `the team called Harbour`."""
    own, it = re.escape(name), re.escape(noun)
    near = rf"\b{own},? (?:the |our )?(?:[\w-]+ )?{it}\b|\b{it},? (?:called |named )?{own}\b"
    return re.search(near, text) is not None


def _group_name(texts: Sequence[str], known: frozenset[str], noun: str) -> str:
    """Return what the texts call a thing of that kind (`payroll desk`) in words new to the question."""
    kindred = next((nouns for nouns in _KINDRED if noun in nouns), {noun})
    for said in (found[1] for text in texts for found in _GROUP.finditer(text)):
        what, _, kind = said.rpartition(" ")
        if kind.lower() in kindred and not known & set(content_stems(what)):
            return str(said)
    return ""


def _office_name(texts: Sequence[str], known: frozenset[str]) -> str:
    """Return the first office (`head of Stores`) that is not the question's own."""
    return next((m[1] for text in texts for m in _OFFICE.finditer(text) if not known >= set(content_stems(m[1]))), "")


def next_query(question: str, passages: Sequence[Excerpt], embedder: Encoder) -> str:
    """Return one query for what the passages leave open.

    It is made of the look-up that they answer least: it keeps the words that they do not hold and adds the bridge, the
    name found beside the others and not in the question, through which a second look-up can reach the rest.
    """
    queries = split_question(question)
    found = split_quotables(passages)
    if not found:
        return queries[0]
    points = score_units(question, queries, found, embedder)
    weakest, least = queries[-1], float("inf")
    for query, row in zip(queries, points, strict=True):
        best = found[int(row.argmax())]
        wanted = expected_kinds(query)
        if asks_person(query):
            unanswered = not find_people(best.text, question)
        else:
            unanswered = bool(wanted) and not _new_kinds(best, question).intersection(wanted)
        if row.max() - 2.0 * unanswered < least:
            weakest, least = query, float(row.max() - 2.0 * unanswered)
    bridge = _bridge_name(question, found, points.max(axis=0).tolist())
    nearest = found[int(points[queries.index(weakest)].argmax())]
    return _refocus_query(weakest, nearest, bridge)


def _new_kinds(unit: Quotable, question: str) -> set[str]:
    held = {kind for kind in value_kinds(unit.text) if kind in KINDS}
    fresh = [name for name in find_names(unit.text) if not set(content_stems(name)) & set(content_stems(question))]
    return held | ({"name"} if fresh else set())


def _content_words(text: str) -> list[str]:
    return [word for word in _WORDS.findall(text) if word.lower() not in STOP]


def _bridge_name(question: str, found: Sequence[Quotable], points: Sequence[float]) -> str:
    """Return the name beside the question's rarest words, not in it, that scores best."""
    asked, weights = set(content_stems(question)), stem_rarity(found)
    best, top = "", 0.0
    for unit, point in zip(found, points, strict=True):
        worth = sum(weights[word] for word in asked & set(content_stems(unit.text)))
        for name in find_names(unit.text):
            own = set(content_stems(name))
            if not worth or not own or own & asked:
                continue
            merit = worth + max(weights.get(word, 0.0) for word in own) + point / 4
            if merit > top:
                best, top = name, merit
    return best


def _refocus_query(query: str, nearest: Quotable, bridge: str) -> str:
    """Join what `nearest` leaves open of the query, the bridge, and its first new words."""
    opening = found[0] if (found := _WH.match(query)) else ""
    covered, given = set(content_stems(nearest.text)), set(content_stems(f"{query} {bridge}"))
    open_ = [word for word in _content_words(query) if not set(content_stems(word)) & covered]
    new = [word for word in _content_words(nearest.text) if not set(content_stems(word)) & given]
    words = [opening, *(word for word in open_ if word.lower() not in opening.lower().split()), bridge]
    return " ".join(word for word in [*words, *new[:NEW_WORDS]] if word) + "?"


def ask_back(passages: Sequence[Excerpt]) -> str:
    """Return a question that offers the titles of the passages, or asks for the case."""
    *firsts, last = list(dict.fromkeys(passage.title.partition(" > ")[0] for passage in passages))[:PAGES] or [""]
    if firsts:
        return f"Which of these is it about: {', '.join(firsts)} or {last}?"
    return "Which product, plan or case do you mean?"
