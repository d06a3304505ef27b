"""Demonstrations for each predictor, made from labelled questions and the program's own runs on them.

Module-level labels (route, sources, evidence, facts) say what each decision should have been, `sub_queries` and
`answer` what should have been written; a demonstration remembers the topic it came from, so that a fold can leave its
own topics out.
"""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pysbd

from optimize.compiler.replay import Replay
from optimize.evaluation.metrics import judge_answer, supports_claim
from optimize.labelled.dataset import LabelledQuestion
from program.loop.decisions import to_jsonable, to_prompt_inputs
from program.loop.evidence import interleave, preview_pool, rank_pool
from program.loop.grounding import split_claims, state_claims
from program.loop.rag import AgenticRAG
from program.loop.state import DRAFT, Ask, Find, StepFailed
from program.passage import Passage
from program.signatures import BASE_PREFIX, Statement, excerpts

NEGATIVES = 4
CONTEXT = 6
SHOWN = 3  # passages, and no less than the evidence, of a text to be shown to a language model
MOST = 200
"""Demonstrations of one predictor at most, the classifier's left out."""
CLASSIFIED = 300
"""Demonstrations of the classifier at most: a question gives it one, for no more than a search."""
WORKED = 150
"""Questions at most that are worked through for the other predictors: each gives several."""
CLASSIFIER = "classifier.route"
LABEL = {
    "judge.relevance": "relevant",
    "judge.sufficiency": "sufficient",
    "grounder.support": "supported",
    "grounder.responsive": "responsive",
}
_NUMBER = re.compile(r"\d+")

Fields = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Demonstration:
    """One worked example of a predictor, and the topic of the question it was made from."""

    predictor: str
    topic: str
    fields: Fields


class Demonstrator:
    """Makes demonstrations by running an (uncompiled) program over labelled questions, through a replay.

    Those in `worked` give demonstrations of every predictor that labels tell of, all others of the classifier alone.
    """

    def __init__(self, program: AgenticRAG, replay: Replay, worked: Sequence[LabelledQuestion]) -> None:
        self._program = program
        self._replay = replay
        self._worked = {question.id for question in worked}
        self._passages = {p.id: p for p in program.runtime.library.passages()}
        self._sentences = pysbd.Segmenter(language="en", clean=False)

    def make(
        self,
        questions: Sequence[LabelledQuestion],
        progress: Callable[[int, int], None] = lambda done, of: None,
    ) -> list[Demonstration]:
        """Demonstrations of every predictor that labels tell of, in the order of the questions."""
        made: list[Demonstration] = []
        for done, question in enumerate(questions, 1):
            made += self.of(question)
            progress(done, len(questions))
        return thinned(made)

    def of(self, question: LabelledQuestion) -> list[Demonstration]:
        """The demonstrations that one question gives."""
        topic = question.cluster
        with contextlib.suppress(StepFailed):  # a call that failed for good costs its question's examples only
            return [Demonstration(predictor, topic, fields) for predictor, fields in self._of(question)]
        return []

    def _of(self, question: LabelledQuestion) -> list[tuple[str, Fields]]:
        glimpse = preview_pool(self._replay.reply(Find(question.question, self._program.sources)))
        made = [(CLASSIFIER, self._route(question, glimpse))]
        if question.route == "direct" and question.answer:
            made.append(("generator.direct", {"question": question.question, "answer": question.answer}))
        if question.route == "direct" or question.outcome == "clarify" or question.id not in self._worked:
            return made
        if question.sub_queries:
            split = {"question": question.question, "sub_queries": list(question.sub_queries)}
            made.append(("decomposer.split", split))
        found = self._found(question)
        evidence = [self._passages[i] for i in question.evidence if i in self._passages]
        made += [("judge.relevance", fields) for fields in self._relevance(question, found)]
        made += [("judge.sufficiency", fields) for fields in self._sufficiency(question, found, evidence)]
        made += [("grounder.support", fields) for fields in self._support(evidence, found)]
        made += [("grounder.responsive", fields) for fields in self._responsive(question, found, evidence)]
        made += [(DRAFT, fields) for fields in self._answer(question, found, evidence)]
        return made

    def _find(self, query: str) -> list[Passage]:
        pool = self._replay.reply(Find(query, self._program.sources))
        return rank_pool(pool, self._program.tuning())

    def _found(self, question: LabelledQuestion) -> dict[str, list[Passage]]:
        """What the question and its look-ups bring, by query."""
        queries = [question.question]
        if question.route == "complex":
            reply = self._replay.reply(Ask("decomposer.split", {"question": question.question}))
            queries = reply["sub_queries"][:4] or queries
        return {query: self._find(query) for query in queries}

    def _route(self, question: LabelledQuestion, glimpse: list[Passage]) -> Fields:
        fields: Fields = {"question": question.question, "glimpse": excerpts(glimpse)}
        if question.outcome is not None:
            fields["vague"] = question.outcome == "clarify"
        if question.route is not None:
            fields["route"] = question.route
        if question.sources or question.route == "direct":
            fields |= {BASE_PREFIX + name: name in question.sources for name in self._program.sources}
        return fields

    def _relevance(self, question: LabelledQuestion, found: dict[str, list[Passage]]) -> list[Fields]:
        """Each piece of evidence under the query that finds it best; the nearest misses beside it."""
        if not question.evidence:
            pairs = [(query, p, False) for query, passages in found.items() for p in passages[:NEGATIVES]]
            return [self._pair(*pair) for pair in pairs]
        wanted = set(question.evidence)
        best: dict[str, tuple[int, str, Passage]] = {}
        misses = []
        for query, passages in found.items():
            for at, passage in enumerate(passages):
                if passage.id in wanted:
                    if passage.id not in best or at < best[passage.id][0]:
                        best[passage.id] = (at, query, passage)
                elif at < NEGATIVES:
                    misses.append((query, passage, False))
        return [self._pair(*pair) for pair in [*((q, p, True) for _, q, p in best.values()), *misses]]

    @staticmethod
    def _pair(query: str, passage: Passage, relevant: bool) -> Fields:
        return {"question": query, "passage": excerpts([passage])[0], "relevant": relevant}

    def _sufficiency(
        self, question: LabelledQuestion, found: dict[str, list[Passage]], evidence: list[Passage]
    ) -> list[Fields]:
        """What was found as it is; with the evidence completed; and with one piece of it taken out."""
        context = _context(found)
        if question.outcome == "abstain" or not evidence:
            return [self._enough(question, context, False)]
        wanted = {p.id for p in evidence}
        others = [p for p in context if p.id not in wanted]
        whole = [*evidence, *others][:CONTEXT]
        taken = [*evidence[:-1], *others][:CONTEXT]
        made = [self._enough(question, whole, True), self._enough(question, taken, False)]
        as_found = {p.id for p in context}
        if as_found not in ({p.id for p in whole}, {p.id for p in taken}):
            made.append(self._enough(question, context, wanted <= as_found))
        return made

    @staticmethod
    def _enough(question: LabelledQuestion, context: list[Passage], sufficient: bool) -> Fields:
        shown = sorted(context, key=lambda p: p.id)  # the order must not tell which was added
        return {"question": question.question, "passages": excerpts(shown), "sufficient": sufficient}

    def _support(self, evidence: list[Passage], found: dict[str, list[Passage]]) -> list[Fields]:
        """A sentence of the evidence with its passage; with another passage; and with a number changed."""
        made = []
        others = [p for p in _context(found) if p not in evidence]
        for passage in evidence[:1]:
            sentences = [s.strip() for s in self._sentences.segment(passage.text) if len(s.split()) > 5]
            if not sentences:
                continue
            claim = next((s for s in sentences if _NUMBER.search(s)), sentences[0])
            made.append(self._claim(claim, passage, True))
            if others:
                made.append(self._claim(claim, others[0], False))
            if _NUMBER.search(claim):
                changed = _NUMBER.sub(lambda m: str(int(m[0]) + 1 + int(m[0]) // 2), claim, count=1)
                made.append(self._claim(changed, passage, False))
        return made

    @staticmethod
    def _claim(claim: str, passage: Passage, supported: bool) -> Fields:
        return {"claim": claim, "passages": excerpts([passage]), "supported": supported}

    def _responsive(
        self, question: LabelledQuestion, found: dict[str, list[Passage]], evidence: list[Passage]
    ) -> list[Fields]:
        """The program's own drafts, right when they state every fact and no rival one."""
        drafts = [self._draft(question.question, list(found), _context(found))]
        wanted = {p.id for p in evidence}
        others = [p for p in _context(found) if p.id not in wanted]
        if evidence:
            drafts.append(self._draft(question.question, list(found), evidence))
            drafts.append(self._draft(question.question, list(found), others[:CONTEXT]))
        made = []
        for draft in dict.fromkeys(drafts):
            try:
                verdict = judge_answer(question, "answered", " ".join(said.text for said in draft))
            except Exception:  # a question that cannot be graded teaches nothing; the search names it
                return []
            if verdict.partial and 0.34 < verdict.fact_share < 0.99:
                continue  # neither an answer nor a miss
            made.append({"question": question.question, "answer": list(draft), "responsive": verdict.correct})
        return made

    def _draft(self, question: str, queries: list[str], passages: list[Passage]) -> tuple[Statement, ...]:
        reply = self._replay.reply(Ask(DRAFT, self._writing(question, queries, passages)))
        return state_claims(split_claims(reply["answer"]), passages)

    def _writing(self, question: str, queries: list[str], passages: list[Passage]) -> Fields:
        """What the writer is given for a first draft."""
        return {
            "question": question,
            "sub_queries": tuple(queries) if queries != [question] else (),
            "passages": passages,
            "sentences": self._program.tuning().sentences * max(1, len(queries)),
            "strict": False,
        }

    def _answer(
        self, question: LabelledQuestion, found: dict[str, list[Passage]], evidence: list[Passage]
    ) -> list[Fields]:
        """The labelled answer, each of its sentences citing the evidence that bears it out; none when one is not."""
        if not evidence or not question.answer:
            return []
        wanted = {p.id for p in evidence}
        others = [p for p in _context(found) if p.id not in wanted]
        passages = sorted([*evidence, *others[: max(0, SHOWN - len(evidence))]], key=lambda p: p.id)
        cited = [
            _cited(said, [(n, p) for n, p in enumerate(passages, 1) if p.id in wanted])
            for said in self._sentences.segment(question.answer)
        ]
        if "" in cited:
            return []
        inputs = self._writing(question.question, list(question.sub_queries) or [question.question], passages)
        return [{**to_prompt_inputs(inputs), "answer": " ".join(cited)}]


def _cited(sentence: str, evidence: Sequence[tuple[int, Passage]]) -> str:
    """The sentence with the marks of the first passage that bears it out, or of all that do together; nothing where
    none do, or it has no number and no name by which to tell."""
    said = sentence.strip()
    if supports_claim("", said.partition(" ")[2]):
        return ""
    for among in (*([one] for one in evidence), evidence):
        if supports_claim(" ".join(f"{p.title} {p.text}" for _, p in among), said):
            marks = "".join(f"[{n}]" for n, _ in among)
            return f"{said[:-1]} {marks}." if said.endswith(".") else f"{said} {marks}"
    return ""


def thinned(demonstrations: Sequence[Demonstration], most: int | None = None) -> list[Demonstration]:
    """At most `most` of each predictor, evenly over the questions and in the proportion of their labels.

    Without `most`, at most CLASSIFIED of the classifier and MOST of any other.
    """
    groups: dict[tuple[str, bool], list[int]] = {}
    for at, demonstration in enumerate(demonstrations):
        groups.setdefault((demonstration.predictor, label_of(demonstration)), []).append(at)
    sizes = Counter(demonstration.predictor for demonstration in demonstrations)
    kept: set[int] = set()
    for (predictor, _), places in groups.items():
        limit = most or (CLASSIFIED if predictor == CLASSIFIER else MOST)
        share = min(1.0, limit / sizes[predictor])
        kept |= {places[int(n / share)] for n in range(int(len(places) * share))}
    return [demonstration for at, demonstration in enumerate(demonstrations) if at in kept]


def label_of(demonstration: Demonstration) -> bool:
    """What its yes-or-no decision should be; no for a predictor with several outputs."""
    return bool(demonstration.fields.get(LABEL.get(demonstration.predictor, ""), False))


def plain(demonstration: Demonstration) -> Demonstration:
    """The demonstration as a predictor has it: in JSON values."""
    fields = {name: to_jsonable(value) for name, value in demonstration.fields.items()}
    return replace(demonstration, fields=fields)


def _context(found: dict[str, list[Passage]]) -> list[Passage]:
    return interleave(found.values())[:CONTEXT]
