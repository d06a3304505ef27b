"""The gate before a compile: labels that contradict the knowledge would teach the wrong thing."""

from __future__ import annotations

from collections.abc import Sequence

from optimize.labelled.check import check
from optimize.labelled.corpus import read_corpus
from optimize.labelled.dataset import LabelledQuestion
from program.errors import DataError
from program.project import Project

SHOWN = 3


def require_sound_labels(project: Project, questions: Sequence[LabelledQuestion]) -> None:
    """Raises `DataError`, with the first findings, when labels contradict the knowledge or each other."""
    corpus = read_corpus(project)
    report = check(questions, corpus.passages, corpus.tables)
    if report.passed:
        return
    first = "; ".join(f"line {f.line} ({f.id}): {f.what}" for f in report.errors[:SHOWN])
    wrong = "1 label is" if len(report.errors) == 1 else f"{len(report.errors)} labels are"
    raise DataError(f"{wrong} not in order: {first}", "See them all with: ragc data check PROJECT")
