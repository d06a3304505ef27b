"""The rules of the check: what one labelled question contradicts in the knowledge, and what weakens it."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING

from ragc.errors import KnowledgeError, RagcError
from ragc.knowledge.project import Project
from ragc.optimize.labelled.dataset import LabelledQuestion
from ragc.passage import Passage, ReadReport
from ragc.settings import TablesSettings
from ragc.text.facts import is_bare_numeral, normalise_text, spans_boundary, states

if TYPE_CHECKING:
    from ragc.knowledge.tables import Database

SHARED_WORDS = 2
"""Content words that a sub-query and a passage, its title counted, share where the one surely looks up the other."""


class Knowledge:
    """The knowledge of a project, without an index, as the rules of the check ask for it.

    `databases` are its tables, to read from only; `bases` names further knowledge bases, whose passages are known only
    when they are asked; `read` is what was read of the files.
    """

    def __init__(
        self,
        passages: Mapping[str, Passage],
        databases: Iterable[Database] = (),
        bases: Collection[str] = (),
        read: ReadReport = ReadReport(),
    ) -> None:
        self.passages, self.databases, self.read = passages, tuple(databases), read
        self.tables = {f"{base.name}/{table.name}" for base in self.databases for table in base.schema.tables}
        self.ids = {*passages, *self.tables}
        self.bases = {*(id_.partition("/")[0] for id_ in self.ids), *bases}
        self._superseded = {id_ for id_, passage in passages.items() if passage.superseded_by}
        self._texts = {id_: passage.whole for id_, passage in passages.items()}
        # A row repeats in cells what a page says in sentences, and is labelled as its table.
        self._pages = {id_: text for id_, text in self._texts.items() if id_.partition("#")[0] not in self.tables}

    def select_rows(self, sql: str) -> str:
        """Return a SELECT's rows, a line each. Raises `KnowledgeError` for anything else."""
        problem = KnowledgeError("The project has no tables.", 'Add a knowledge base of kind "tables".')
        for base in self.databases:
            try:
                names, rows = base.rows(sql)
            except KnowledgeError as error:
                problem = error
            else:
                return "\n".join(" | ".join("" if v is None else str(v) for v in row) for row in [names, *rows])
        raise problem

    def read_evidence(self, question: LabelledQuestion) -> dict[str, str]:
        """Return title and text of each passage of the question's evidence, by id."""
        return {id_: self._texts[id_] for id_ in question.evidence if id_ in self._texts}

    def states_anywhere(self, fact: str) -> bool:
        """Tell whether any passage or table states the fact."""
        return states(self._everything, fact)

    def find_uncited_answers(self, question: LabelledQuestion) -> list[str]:
        """Return passages that answer as well as the evidence and are not among it.

        Words count by their rarity, log(passages / passages with the word), and half of the question's must be held.
        At most three ids, the nearest first. Passages that another replaced, or that state a not_fact, answer nothing.
        """
        asked = {word for word in normalise_text(question.question).split() if word in self._ids_by_word}
        weight = {word: math.log(len(self._pages) / len(self._ids_by_word[word])) for word in asked}

        def weigh_words(ids: Collection[str]) -> float:
            return sum(weight[word] for word in asked if not self._ids_by_word[word].isdisjoint(ids))

        cited = [*self.read_evidence(question)]
        least = max(weigh_words(cited), sum(weight.values()) / 2)
        near = {id_: weigh_words([id_]) for id_ in self._find_stating(question) if id_ not in cited}
        found = [id_ for id_, much in near.items() if cited and much >= least]
        return sorted(found, key=lambda id_: (-near[id_], id_))[:3]

    def suggest_ids(self, wrong: str) -> str:
        """Return a sentence with the ids that are most like a wrong one."""
        base = wrong.partition("/")[0]
        near = difflib.get_close_matches(wrong, [i for i in self.ids if i.startswith(f"{base}/")], n=3, cutoff=0.4)
        near = near or difflib.get_close_matches(wrong, self.ids, n=3, cutoff=0.4)
        return f"Nearest: {', '.join(near)}." if near else "No passage has an id like it."

    @cached_property
    def _everything(self) -> str:
        return "\n\n".join(self._texts.values())

    @cached_property
    def _ids_by_word(self) -> dict[str, set[str]]:
        """The ids of the passages that hold a word, by its normalised spelling."""
        found: dict[str, set[str]] = {}
        for id_, text in self._pages.items():
            for word in set(normalise_text(text).split()):
                found.setdefault(word, set()).add(id_)
        return found

    def _find_stating(self, question: LabelledQuestion) -> list[str]:
        """Return the ids of passages in force that state every fact and no not_fact."""
        candidates = set(self._pages) - self._superseded
        for fact in question.alternatives:
            candidates &= set().union(*map(self._find_holding, fact))
        texts = {id_: self._pages[id_] for id_ in candidates}
        whole = {id_: text for id_, text in texts.items() if all(states(text, fact) for fact in question.alternatives)}
        return [id_ for id_, text in whole.items() if not states(text, question.not_facts)]

    def _find_holding(self, spelling: str) -> set[str]:
        held = [self._ids_by_word.get(word, set()) for word in normalise_text(spelling).split()]
        return set.intersection(*held) if held else set()


def read_corpus(project: Project) -> Knowledge:
    """Read the passages and tables of every base, or raise `KnowledgeError`."""
    from ragc.knowledge.index.build import read_files
    from ragc.knowledge.ingest.folder import find_strays, list_bases
    from ragc.knowledge.library import open_databases

    whole, named = read_files(project), list_bases(project)
    tables = {name: base for name, base in named.items() if isinstance(base, TablesSettings)}
    databases = [*open_databases(tables).values()]
    flaws = (*(flaw for database in databases for flaw in database.flaws), *find_strays(project))
    passages = {passage.id: passage for passage in whole.passages}
    return Knowledge(passages, databases, project.settings.knowledge, whole.report + ReadReport(0, flaws))


Complaint = tuple[str, str]  # what is wrong, and how to mend it


def _check_history(question: LabelledQuestion, knowledge: Knowledge) -> Iterator[Complaint]:
    asked = [turn.content for turn in question.history if turn.role == "user"]
    if question.history and not asked:
        yield "its history holds no question of the asker.", "Give the earlier question too, as a message of the user."
    elif asked and normalise_text(asked[-1]).strip(" .") == normalise_text(question.question).strip(" ."):
        yield "its history ends with the question itself.", "End it with what was said before the question."


def _check_evidence_exists(question: LabelledQuestion, knowledge: Knowledge) -> Iterator[Complaint]:
    for passage in question.evidence:
        if passage not in knowledge.ids:
            yield f"the evidence {passage!r} is no passage.", knowledge.suggest_ids(passage)


def _check_facts_stated(question: LabelledQuestion, knowledge: Knowledge) -> Iterator[Complaint]:
    if not (question.evidence or question.sql) or not knowledge.ids.issuperset(question.evidence):
        return
    try:
        result = [knowledge.select_rows(question.sql)] if question.sql else []
    except RagcError as error:
        yield f"its SELECT cannot be run: {error.what}", "Mend `sql`."
        return
    text = "\n\n".join([*knowledge.read_evidence(question).values(), *result])
    for fact in question.alternatives:
        if text and not states(text, fact):  # a table has no text of its own without a SELECT
            mend = "Use words of the evidence, or give the passage that says it."
            if any(spans_boundary(text, spelling) for spelling in fact):
                mend = "A fact cannot reach across table cells or sentences: make a fact of each part."
            yield f"its evidence does not state the fact {' / '.join(fact)!r}.", mend


def _check_not_facts(question: LabelledQuestion, knowledge: Knowledge) -> Iterator[Complaint]:
    for rival in question.not_facts:
        if any(states(spelling, rival) for fact in question.alternatives for spelling in fact):
            yield f"the not_fact {rival!r} is part of a fact.", "Write it so that a correct answer can avoid it."
        if not knowledge.states_anywhere(rival):
            yield f"nothing in the knowledge states the not_fact {rival!r}.", "Use words of the rival passage."


def _check_answer(question: LabelledQuestion, knowledge: Knowledge) -> Iterator[Complaint]:
    if not question.answer or question.outcome not in (None, "answered"):
        return
    for fact in question.alternatives:
        if not states(question.answer, fact):
            yield f"its own answer does not state the fact {' / '.join(fact)!r}.", "Mend the answer or the fact."
    for rival in question.not_facts:
        if states(question.answer, rival):
            yield f"its own answer states the not_fact {rival!r}.", "Mend the answer or the not_fact."


def _check_sources(question: LabelledQuestion, knowledge: Knowledge) -> Iterator[Complaint]:
    bases = {id_.partition("/")[0] for id_ in question.evidence}
    unknown = {id_.partition("/")[0] for id_ in question.evidence if id_ not in knowledge.ids}
    for source in question.sources:
        if source not in knowledge.bases and source not in unknown:  # of such evidence it is told already
            yield f"the source {source!r} is no knowledge base.", f"Use one of {', '.join(sorted(knowledge.bases))}."
    if question.sources and bases and bases != set(question.sources):
        sources, held = (", ".join(sorted(names)) for names in (question.sources, bases))
        yield f"sources: {sources}; but evidence is in {held}.", "Make them agree."


def _check_labels_agree(question: LabelledQuestion, knowledge: Knowledge) -> Iterator[Complaint]:
    for label in ("facts", "evidence"):
        if question.outcome in ("clarify", "abstain") and getattr(question, label):
            yield f"its outcome is {question.outcome} but it has {label}.", f"Empty `{label}` or correct `outcome`."
    if question.route == "direct" and question.evidence:
        yield "its route is direct but it has evidence.", "Empty `evidence` or correct `route`."
    if question.sub_queries and question.route != "complex":
        yield "it has sub_queries but is not complex.", "Drop them or correct `route`."
    elif question.sub_queries:
        if not 2 <= len(question.sub_queries) <= 4:
            yield f"it has {len(question.sub_queries)} sub_queries.", "Give 2 to 4."
        for passage in _find_missed(question.sub_queries, knowledge.read_evidence(question), 1):
            yield f"no sub_query looks up {passage!r}.", "Use words of that passage in one of them."


def _warn_of_sub_queries(question: LabelledQuestion, knowledge: Knowledge) -> Iterator[Complaint]:
    if question.route != "complex":
        return
    if not question.sub_queries:
        yield "it is complex but has no sub_queries.", "Write the 2 to 4 look-ups that answer it."
    texts = knowledge.read_evidence(question) if question.sub_queries else {}
    missed = _find_missed(question.sub_queries, texts, 1)
    for passage in _find_missed(question.sub_queries, texts, SHARED_WORDS):
        if passage not in missed:
            yield f"the sub_queries hardly look up {passage!r}.", "Use words of that passage in one of them."
    for query in question.sub_queries:
        if texts and len(_find_missed([query], texts, SHARED_WORDS)) == len(texts):
            yield f"the sub_query {query!r} looks up none of the evidence.", "Use words of the passage it is after."


def _find_missed(sub_queries: Iterable[str], texts: Mapping[str, str], shared: int) -> list[str]:
    """Return the ids of texts that share too few words with every sub-query."""
    from ragc.text.words import split_words

    asked = [set(split_words(query)) for query in sub_queries]
    held = {id_: set(split_words(text)) for id_, text in texts.items()}
    return [id_ for id_, found in held.items() if not any(len(found & query) >= shared for query in asked)]


def _warn_of_facts(question: LabelledQuestion, knowledge: Knowledge) -> Iterator[Complaint]:
    looked_up = question.route != "direct" and not question.sql
    if question.facts and looked_up and not question.evidence:
        yield "it has facts but no evidence.", "Give the passages that state them."
    if not question.facts and question.outcome == "answered":
        yield "it is answered but has no facts.", "Without facts no answer to it can be scored."
    elif not question.facts and question.outcome is None and question.answer:
        yield "it has an answer but no facts.", "Without facts any answer to it counts as correct: list what it states."
    for fact in question.alternatives if looked_up else ():
        in_digits = [spelling for spelling in fact if not is_bare_numeral(spelling)]
        if in_digits and all(len(normalise_text(spelling).strip()) <= 1 for spelling in in_digits):
            what = f"the fact {' / '.join(fact)!r} is one character, which a wrong answer may hold by accident."
            yield what, "Add its unit or the word before it, as the evidence has it."
    alone = [("fact", fact[0]) for fact in question.alternatives if len(fact) == 1]
    for label, numeral in [*alone, *(("not_fact", rival) for rival in question.not_facts)]:
        if is_bare_numeral(numeral):
            what = f"the {label} {numeral!r} is a number in words without its noun, and only that very word states it."
            yield what, "Add the noun, as the documents have it (“three rooms” is also stated by “3 rooms”)."


def _warn_of_close_rivals(question: LabelledQuestion, knowledge: Knowledge) -> Iterator[Complaint]:
    spellings = tuple(spelling for fact in question.alternatives for spelling in fact)
    for passage, text in knowledge.read_evidence(question).items():
        pieces = re.split(r"(?<=[.!?;])\s+|\n", text) if question.not_facts else []
        stating = [piece for piece in pieces if states(piece, spellings)]
        for rival in question.not_facts:
            if any(states(piece, rival) for piece in stating):
                what = f"in {passage!r} the not_fact {rival!r} stands in one sentence or table row with a fact."
                yield what, "A right quotation would count as wrong: drop the not_fact, or part them in the document."


def _warn_of_uncited_answers(question: LabelledQuestion, knowledge: Knowledge) -> Iterator[Complaint]:
    if question.route == "direct" or not question.evidence or not question.facts:
        return
    if others := knowledge.find_uncited_answers(question):
        what = f"its facts stand also in {', '.join(map(repr, others))}, as near to its words as its evidence."
        yield what, "Cite what answers it too, or make the question tell them apart."


Rule = Callable[[LabelledQuestion, Knowledge], Iterator[Complaint]]
ERRORS: tuple[Rule, ...] = (
    *(_check_history, _check_evidence_exists, _check_facts_stated, _check_not_facts, _check_answer),
    *(_check_sources, _check_labels_agree),
)
WARNINGS: tuple[Rule, ...] = (_warn_of_sub_queries, _warn_of_facts, _warn_of_close_rivals, _warn_of_uncited_answers)
