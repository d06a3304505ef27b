"""Questions that people's reviews labelled: what a compile may learn from, and what it may not.

1. Divide the labelled questions as if there were no reviews.
2. Bind reviewed questions to them, and to each other, by the rule of `leaks`.
3. Leave out those bound to a test question, or to questions of two splits; the others join the split they are bound to,
   train where they are bound to none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ragc.knowledge.project import Project
from ragc.optimize.labelled.dataset import DataFinding, LabelledQuestion, read_lines
from ragc.optimize.labelled.leaks import link_questions
from ragc.optimize.labelled.split import LEARNT_FROM


@dataclass(frozen=True, slots=True)
class Reviewed:
    """The reviewed questions of a project, and the labelled ones with them."""

    parts: Mapping[str, list[LabelledQuestion]]  # the splits, with the reviewed questions that joined them
    joined: int  # how many joined
    left_out: int  # how many are bound to test questions
    unread: Sequence[DataFinding]  # the lines that are no labelled question

    @property
    def questions(self) -> list[LabelledQuestion]:
        """All questions: train, dev and test."""
        return [question for part in self.parts.values() for question in part]


def join_reviewed(project: Project, parts: Mapping[str, Sequence[LabelledQuestion]]) -> Reviewed:
    """Add reviewed questions to train and dev; the test stays as it is."""
    joined = {split: [*part] for split, part in parts.items()}
    if not project.reviewed.is_file() or not project.reviewed.stat().st_size:
        return Reviewed(joined, 0, 0, ())
    rows, unread = read_lines(project.reviewed)
    named = {"file": project.reviewed.name}
    unread = [DataFinding(one.id, one.line, one.what, one.mend, project.reviewed.name) for one in unread]
    known = {question.id: split for split, part in parts.items() for question in part}
    new = [row.model_copy(update=named) for row in rows if row.id not in known]
    taken = 0
    for group in link_questions((*(q for part in parts.values() for q in part), *new)).groups:
        splits = {known[question.id] for question in group if question.id in known} or {"train"}
        if len(splits) == 1 and (split := splits.pop()) in LEARNT_FROM:
            own = [question for question in group if question.id not in known]
            joined[split] += [question.model_copy(update={"split": split}) for question in own]
            taken += len(own)
    return Reviewed(joined, taken, len(new) - taken, unread)
