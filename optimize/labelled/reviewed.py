"""What people reviewed: what a compile may learn from, what a version carries, and what an evaluation leaves out.

1. Divide the labelled questions as if there were no reviews.
2. Bind reviewed questions to them, and to each other, by the rule of `leaks`.
3. Leave out those bound to a test question, or to questions of two splits; the others join the split they are bound to,
   train where they are bound to none.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import orjson

from ragc.knowledge.library import Library
from ragc.knowledge.project import Project
from ragc.loop.rag import AgenticRAG
from ragc.loop.reviewed import LEAST_SAME, KnownAnswer, Review, ReviewedAnswers, read_answers, see_sources, tell_end
from ragc.optimize.labelled.dataset import DataFinding, LabelledQuestion, read_lines
from ragc.optimize.labelled.leaks import differ_in_labels, link_questions
from ragc.optimize.labelled.split import LEARNT_FROM

CONFUSED = 0.005  # the share of labelled questions that may be given another one's answer


@dataclass(frozen=True, slots=True)
class JoinedReviews:
    """The reviewed questions of a project, and the labelled ones with them."""

    parts: Mapping[str, list[LabelledQuestion]]  # the splits, with the reviewed questions that joined them
    joined: int  # how many joined
    left_out: int  # how many are bound to test questions
    unread: Sequence[DataFinding]  # the lines that are no labelled question

    @property
    def questions(self) -> list[LabelledQuestion]:
        """All questions: train, dev and test."""
        return [question for part in self.parts.values() for question in part]


def join_reviewed(project: Project, parts: Mapping[str, Sequence[LabelledQuestion]]) -> JoinedReviews:
    """Add reviewed questions to train and dev; the test stays as it is."""
    joined = {split: [*part] for split, part in parts.items()}
    if not project.reviewed.is_file() or not project.reviewed.stat().st_size:
        return JoinedReviews(joined, 0, 0, ())
    rows, unread = read_lines(project.reviewed)
    named = {"file": project.reviewed.name}
    unread = [DataFinding(one.id, one.line, one.what, one.mend, project.reviewed.name) for one in unread]
    known = {question.id: split for split, part in parts.items() for question in part}
    retired = {row.id for row in rows if row.reviewed and row.reviewed.retired}
    new = [row.model_copy(update=named) for row in rows if row.id not in known.keys() | retired]
    taken = 0
    for group in link_questions((*(q for part in parts.values() for q in part), *new)).groups:
        splits = {known[question.id] for question in group if question.id in known} or {"train"}
        if len(splits) == 1 and (split := splits.pop()) in LEARNT_FROM:
            own = [question for question in group if question.id not in known]
            joined[split] += [question.model_copy(update={"split": split}) for question in own]
            taken += len(own)
    return JoinedReviews(joined, taken, len(new) - taken, unread)


def seal_answers(questions: Iterable[LabelledQuestion], project: Project, library: Library) -> bytes:
    """Return the lines of the answers that a version carries, sources digested.

    Left out are those that are retired, or whose sources are not as they were reviewed; and those of some readers
    alone, for others read versions.
    """
    rows = project.reviewed.read_bytes().splitlines() if project.reviewed.is_file() else ()
    retired = {one.id for one in read_answers(rows) if one.reviewed and one.reviewed.retired}
    return b"".join(
        orjson.dumps(one.model_dump(mode="json", exclude_defaults=True), option=orjson.OPT_APPEND_NEWLINE)
        for one in _note_sources(questions, library)
        if one.id not in retired and not one.readers and not tell_end(one)
    )


def _note_sources(questions: Iterable[LabelledQuestion], library: Library) -> Iterator[KnownAnswer]:
    for question in questions:
        row = KnownAnswer.model_validate({name: value for name, value in question if value is not None})
        seen = see_sources(row.evidence if row.outcome == "answered" else (), library)
        review = row.reviewed or Review(at="")
        if review.seen in ({}, seen):
            yield row.model_copy(update={"reviewed": review.model_copy(update={"seen": seen})})


def fit_same(questions: Sequence[LabelledQuestion], reviewed: ReviewedAnswers, library: Library) -> float:
    """Return how sure the decision on one meaning has to be.

    It is the least, from LEAST_SAME on, at which no more than CONFUSED of the labelled questions are given the answer
    of one with other labels.
    """
    labelled = {question.id: question for question in questions}
    worst = []
    for question in questions:
        near = reviewed.rank_near(question.question, library)
        wrong = [chance for chance, known in near if differ_in_labels(question, labelled[known.id])]
        worst.append(max(wrong, default=0.0))
    worst.sort(reverse=True)
    bound = worst[math.floor(CONFUSED * len(worst))] if worst else 0.0
    return max(LEAST_SAME, round(min(bound + 1e-4, 1.0), 4))


def hold_out(program: AgenticRAG, questions: Sequence[LabelledQuestion]) -> AgenticRAG:
    """Return a program that gives no question an answer that it is bound to.

    Bound are questions of a topic, of a passage and of nearly the same words, by the rule of `leaks`.
    """
    if program.runtime.reviewed is None:
        return program
    prefix = "\0"  # no label's id begins so
    known = [
        LabelledQuestion.model_construct(**{**dict(one), "id": prefix + one.id, "history": ()})
        for one in program.runtime.reviewed.list_answers()
    ]
    bound: dict[str, frozenset[str]] = {}
    for group in link_questions((*questions, *known)).groups if known else ():
        ids = frozenset(one.id.removeprefix(prefix) for one in group if one.id.startswith(prefix))
        bound |= {one.question: bound.get(one.question, frozenset()) | ids for one in group}
    twin = copy.copy(program)
    barred = program.runtime.reviewed.barring(lambda question: bound.get(question, frozenset()))
    twin.runtime = replace(program.runtime, reviewed=barred)
    return twin
