"""Questions drafted for passages that no label uses, for a person to look over.

1. Take the passages of documents that are in no label's evidence, the first of each document before the second of any.
2. Have a language model write a question that the passage answers, and the words of the passage that answer it.
3. Keep a draft whose fact the passage states. Without a language model there are passages and no drafts.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import dspy

from ragc.knowledge.project import Project
from ragc.models.catalog import is_local, open_models
from ragc.optimize.labelled.dataset import LabelledQuestion
from ragc.optimize.labelled.rules import read_corpus
from ragc.passage import Passage, document_of
from ragc.text.facts import states

_log = logging.getLogger(__name__)


class DraftQuestion(dspy.Signature):
    """Write a question that a user who has not seen the passage would ask, and that the passage answers by itself."""

    title: str = dspy.InputField()
    passage: str = dspy.InputField()
    question: str = dspy.OutputField(desc="one question, in words of a user, not of the passage")
    fact: str = dspy.OutputField(desc="the fewest words that answer it, copied from one sentence of the passage")


def list_unlabelled(project: Project, questions: Iterable[LabelledQuestion]) -> list[Passage]:
    """Return passages that no label uses, the first of each document first."""
    corpus = read_corpus(project)
    used = {id_ for question in questions for id_ in question.evidence} | corpus.tables.names
    by_document: dict[str, list[Passage]] = defaultdict(list)
    for passage in corpus.passages.values():
        if passage.id not in used and document_of(passage) not in used:
            by_document[document_of(passage)].append(passage)
    placed = ((n, passage) for found in by_document.values() for n, passage in enumerate(found))
    return [passage for _, passage in sorted(placed, key=lambda pair: pair[0])]


def draft_questions(
    project: Project, passages: Iterable[Passage], advance: Callable[[int, int], None]
) -> list[dict[str, Any]]:
    """Return labelled questions, a passage each, as a file holds them.

    There are none without a language model. The model is `[models] propose`, else one that writes.
    """
    models = open_models(project.settings.models, project.settings.provider)
    writer = None if is_local(models.write) else models.write
    if (lm := models.propose or writer) is None:
        return []
    drafts, wanted, predict = [], list(passages), dspy.Predict(DraftQuestion)
    for n, passage in enumerate(wanted):
        advance(n, len(wanted))
        try:
            with dspy.context(lm=lm):
                found = predict(title=passage.title, passage=passage.text)
        except Exception as error:  # DSPy raises what it likes, and the next passage may fare better
            _log.warning("no question for %s: %s", passage.id, str(error)[:200])
            continue
        if states(passage.text, found.fact) and found.question.strip():
            labels = {"outcome": "answered", "route": "simple", "evidence": [passage.id], "facts": [found.fact.strip()]}
            drafts.append(
                {"id": f"draft-{passage.id}", "question": found.question.strip(), **labels, "tags": ["draft"]}
            )
    return drafts
