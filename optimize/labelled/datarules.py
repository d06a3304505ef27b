"""The rules of the check: each looks at one labelled question beside the knowledge and says what is wrong."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import cached_property
from typing import Protocol

from optimize.labelled.dataset import LabelledQuestion
from optimize.labelled.facts import is_bare_numeral, normal, pieces_of, spans_a_boundary, states
from program.errors import RagcError
from program.models.rules.words import content_stems
from program.passage import Passage

SHARED_STEMS = 2
"""A sub-query surely looks a passage up when they have this many content words in common, the title counted."""


class Tables(Protocol):
    """What the check asks of the tables of a project."""

    @property
    def names(self) -> Collection[str]:
        """`<base>/<table>` of every table."""

    def select(self, sql: str) -> str:
        """The rows of a SELECT as text, column names first. Raises RagcError when it cannot be run."""

    def text(self) -> str:
        """Every value of every table."""


class NoTables:
    """The tables of a project that has none."""

    names: Collection[str] = ()

    def select(self, sql: str) -> str:
        """Nothing can be selected: raises RagcError."""
        raise RagcError("The project has no tables.", 'Add a knowledge base of kind "tables", or drop the `sql`.')

    def text(self) -> str:
        """The empty text."""
        return ""


Complaint = tuple[str, str]
"""What is wrong, and how to mend it."""


class Knowledge:
    def __init__(self, passages: Mapping[str, Passage], tables: Tables, bases: Collection[str] = ()) -> None:
        self.passages = passages
        self.tables = tables
        self.ids = {*passages, *tables.names}
        self.bases = {*(i.partition("/")[0] for i in self.ids), *bases}
        self._all: str | None = None

    def evidence(self, question: LabelledQuestion) -> str:
        """Title and text of the question's evidence, and the result of its SELECT."""
        texts = [*self.told(question).values()]
        if question.sql:
            texts.append(self.tables.select(question.sql))
        return "\n\n".join(texts)

    def told(self, question: LabelledQuestion) -> dict[str, str]:
        """Title and text of each passage of the question's evidence, by id."""
        found = {i: self.passages[i] for i in question.evidence if i in self.passages}
        return {i: _whole(p) for i, p in found.items()}

    def holds(self, fact: str) -> bool:
        """True when any passage or table states the fact."""
        if self._all is None:
            texts = [_whole(p) for p in self.passages.values()]
            self._all = "\n\n".join([*texts, self.tables.text()])
        return states(self._all, fact)

    def also_answering(self, question: LabelledQuestion) -> list[str]:
        """Return the passages outside the question's evidence that state all its facts and hold as much of its words.

        Words count by their rarity, log(passages / passages with the word), and half of the question's must be held.
        At most three ids, the nearest first. Passages that another replaced, or that state a not_fact, answer nothing.
        """
        asked = {word for word in normal(question.question).split() if word in self._holding}
        weight = {word: math.log(len(self.passages) / len(self._holding[word])) for word in asked}

        def held(ids: Collection[str]) -> float:
            return sum(weight[word] for word in asked if not self._holding[word].isdisjoint(ids))

        cited = [id_ for id_ in question.evidence if id_ in self.passages]
        least = max(held(cited), sum(weight.values()) / 2)
        near = {id_: held([id_]) for id_ in self._stating(question) if id_ not in cited}
        found = [id_ for id_, much in near.items() if cited and much >= least]
        return sorted(found, key=lambda id_: (-near[id_], id_))[:3]

    def _stating(self, question: LabelledQuestion) -> list[str]:
        """The ids of passages in force that state every fact and no not_fact."""
        candidates = set(self.passages)
        for fact in question.alternatives:
            candidates &= set().union(*map(self._with_all, fact))
        found = []
        for id_ in candidates:
            text = _whole(self.passages[id_])
            whole = all(states(text, fact) for fact in question.alternatives)
            if whole and not self.passages[id_].superseded_by and not states(text, question.not_facts):
                found.append(id_)
        return found

    def _with_all(self, spelling: str) -> set[str]:
        """The ids of the passages that hold all words of a fact's spelling; none for a spelling without a word."""
        held = [self._holding.get(word, set()) for word in normal(spelling).split()]
        return set.intersection(*held) if held else set()

    @cached_property
    def _holding(self) -> dict[str, set[str]]:
        """By word, in the spelling that facts are compared in, the ids of the passages that hold it."""
        found: dict[str, set[str]] = {}
        for id_, passage in self.passages.items():
            for word in set(normal(_whole(passage)).split()):
                found.setdefault(word, set()).add(id_)
        return found

    def nearest(self, passage: str) -> str:
        base = passage.partition("/")[0]
        near = difflib.get_close_matches(passage, [i for i in self.ids if i.startswith(f"{base}/")], n=3, cutoff=0.4)
        near = near or difflib.get_close_matches(passage, self.ids, n=3, cutoff=0.4)
        return f"Nearest: {', '.join(near)}." if near else "No passage has an id like it."


def _whole(passage: Passage) -> str:
    """Return a passage as it is searched for facts: its title and its text."""
    return f"{passage.title}\n\n{passage.text}"


def _evidence_exists(question: LabelledQuestion, knowledge: Knowledge) -> Iterator[Complaint]:
    for passage in question.evidence:
        if passage not in knowledge.ids:
            yield f"the evidence {passage!r} is no passage.", knowledge.nearest(passage)


def _facts_are_stated(question: LabelledQuestion, knowledge: Knowledge) -> Iterator[Complaint]:
    if not (question.evidence or question.sql) or any(i not in knowledge.ids for i in question.evidence):
        return
    try:
        text = knowledge.evidence(question)
    except RagcError as error:
        yield f"its SELECT cannot be run: {error.what}", "Mend `sql`."
        return
    # A table has no text of its own: without a SELECT there is nothing to find a fact in.
    if text:
        for fact in question.alternatives:
            if not states(text, fact):
                torn = any(spans_a_boundary(text, spelling) for spelling in fact)
                yield (
                    f"its evidence does not state the fact {' / '.join(fact)!r}.",
                    "A fact cannot reach across table cells or sentences: make a fact of each part."
                    if torn
                    else "Use words of the evidence, or give the passage that says it.",
                )


def _not_facts_are_rivals(question: LabelledQuestion, knowledge: Knowledge) -> Iterator[Complaint]:
    for rival in question.not_facts:
        if any(states(spelling, rival) for fact in question.alternatives for spelling in fact):
            yield (
                f"the not_fact {rival!r} is part of a fact.",
                "Write it so that a correct answer can avoid it.",
            )
        if not knowledge.holds(rival):
            yield (
                f"nothing in the knowledge states the not_fact {rival!r}.",
                "Use words of the rival passage.",
            )


def _answer_is_correct(question: LabelledQuestion, knowledge: Knowledge) -> Iterator[Complaint]:
    if question.answer and question.outcome in (None, "answered"):
        for fact in question.alternatives:
            if not states(question.answer, fact):
                yield (
                    f"its own answer does not state the fact {' / '.join(fact)!r}.",
                    "Mend the answer or the fact.",
                )
        for rival in question.not_facts:
            if states(question.answer, rival):
                yield f"its own answer states the not_fact {rival!r}.", "Mend the answer or the not_fact."


def _sources_are_bases(question: LabelledQuestion, knowledge: Knowledge) -> Iterator[Complaint]:
    unknown = {id_.partition("/")[0] for id_ in question.evidence if id_ not in knowledge.ids}
    for source in question.sources:
        if source not in knowledge.bases and source not in unknown:  # of such evidence it is told already
            yield (
                f"the source {source!r} is no knowledge base.",
                f"Use one of {', '.join(sorted(knowledge.bases))}.",
            )
    bases = {i.partition("/")[0] for i in question.evidence}
    if question.sources and bases and bases != set(question.sources):
        yield (
            f"sources: {', '.join(sorted(question.sources))}; but evidence is in {', '.join(sorted(bases))}.",
            "Make them agree.",
        )


def _outcome_fits(question: LabelledQuestion, knowledge: Knowledge) -> Iterator[Complaint]:
    if question.outcome in ("clarify", "abstain"):
        for label in ("facts", "evidence"):
            if getattr(question, label):
                yield (
                    f"its outcome is {question.outcome} but it has {label}.",
                    f"Empty `{label}` or correct `outcome`.",
                )
    if question.route == "direct" and question.evidence:
        yield "its route is direct but it has evidence.", "Empty `evidence` or correct `route`."


def _sub_queries_fit(question: LabelledQuestion, knowledge: Knowledge) -> Iterator[Complaint]:
    if question.route != "complex":
        if question.sub_queries:
            yield "it has sub_queries but is not complex.", "Drop them or correct `route`."
    elif question.sub_queries and not 2 <= len(question.sub_queries) <= 4:
        yield f"it has {len(question.sub_queries)} sub_queries.", "Give 2 to 4."


def _sub_queries_cover(question: LabelledQuestion, knowledge: Knowledge) -> Iterator[Complaint]:
    if question.route == "complex" and question.sub_queries:
        for passage in _missed(question.sub_queries, knowledge.told(question), 1):
            yield f"no sub_query looks up {passage!r}.", "Use words of that passage in one of them."


def _sub_queries_help(question: LabelledQuestion, knowledge: Knowledge) -> Iterator[Complaint]:
    if question.route != "complex":
        return
    if not question.sub_queries:
        yield "it is complex but has no sub_queries.", "Write the 2 to 4 look-ups that answer it."
        return
    told = knowledge.told(question)
    missed = _missed(question.sub_queries, told, 1)
    for passage in _missed(question.sub_queries, told, SHARED_STEMS):
        if passage not in missed:
            yield f"the sub_queries hardly look up {passage!r}.", "Use words of that passage in one of them."
    for query in question.sub_queries:
        if told and len(_missed([query], told, SHARED_STEMS)) == len(told):
            yield f"the sub_query {query!r} looks up none of the evidence.", "Use words of the passage it is after."


def _missed(sub_queries: Iterable[str], texts: Mapping[str, str], shared: int) -> list[str]:
    """The ids of the texts with which no sub-query has so many content words in common."""
    asked = [set(content_stems(query)) for query in sub_queries]
    told = {id_: set(content_stems(text)) for id_, text in texts.items()}
    return [id_ for id_, words in told.items() if not any(len(words & query) >= shared for query in asked)]


def _facts_can_be_checked(question: LabelledQuestion, knowledge: Knowledge) -> Iterator[Complaint]:
    if question.facts and question.route != "direct" and not question.evidence and not question.sql:
        yield "it has facts but no evidence.", "Give the passages that state them."
    if question.facts:
        return
    if question.outcome == "answered":
        yield "it is answered but has no facts.", "Without facts no answer to it can be scored."
    elif question.outcome is None and question.answer:
        yield "it has an answer but no facts.", "Without facts any answer to it counts as correct: list what it states."


def _facts_are_distinctive(question: LabelledQuestion, knowledge: Knowledge) -> Iterator[Complaint]:
    if question.route == "direct" or question.sql:
        return
    for fact in question.alternatives:
        in_digits = [spelling for spelling in fact if not is_bare_numeral(spelling)]
        if in_digits and all(len(normal(spelling).strip()) <= 1 for spelling in in_digits):
            yield (
                f"the fact {' / '.join(fact)!r} is one character, which a wrong answer may hold by accident.",
                "Add its unit or the word before it, as the evidence has it.",
            )


def _numerals_have_a_noun(question: LabelledQuestion, knowledge: Knowledge) -> Iterator[Complaint]:
    alone = [("fact", fact[0]) for fact in question.alternatives if len(fact) == 1]
    for what, numeral in [*alone, *(("not_fact", rival) for rival in question.not_facts)]:
        if is_bare_numeral(numeral):
            yield (
                f"the {what} {numeral!r} is a number in words without its noun, and only that very word states it.",
                "Add the noun, as the documents have it (“three rooms” is also stated by “3 rooms”).",
            )


def _rivals_stand_apart(question: LabelledQuestion, knowledge: Knowledge) -> Iterator[Complaint]:
    spellings = tuple(spelling for fact in question.alternatives for spelling in fact)
    for passage, text in knowledge.told(question).items():
        told = [piece for piece in pieces_of(text) if states(piece, spellings)]
        for rival in question.not_facts:
            if any(states(piece, rival) for piece in told):
                yield (
                    f"in {passage!r} the not_fact {rival!r} stands in one sentence or table row with a fact.",
                    "A right quotation would count as wrong: drop the not_fact, or part them in the document.",
                )


def _evidence_is_complete(question: LabelledQuestion, knowledge: Knowledge) -> Iterator[Complaint]:
    if question.route == "direct" or not question.evidence or not question.facts:
        return
    if others := knowledge.also_answering(question):
        yield (
            f"its facts stand also in {', '.join(map(repr, others))}, as near to its words as its evidence.",
            "Cite what answers it too, or make the question tell them apart.",
        )


Rule = Callable[[LabelledQuestion, Knowledge], Iterator[Complaint]]
ERRORS: tuple[Rule, ...] = (
    *(_evidence_exists, _facts_are_stated, _not_facts_are_rivals, _answer_is_correct),
    *(_sources_are_bases, _outcome_fits, _sub_queries_fit, _sub_queries_cover),
)
WARNINGS: tuple[Rule, ...] = (
    *(_sub_queries_help, _facts_can_be_checked, _facts_are_distinctive),
    *(_numerals_have_a_noun, _rivals_stand_apart, _evidence_is_complete),
)
