"""Versions asked the same questions side by side, for rows as fresh and as fairly timed as can be."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from optimize.evaluation.comparison import REPEAT
from optimize.evaluation.evaluate import Evaluation, Grader
from optimize.labelled.dataset import LabelledQuestion
from program.loop.rag import AgenticRAG
from program.settings import UtilitySettings


def score_side_by_side(
    programs: Sequence[AgenticRAG],
    questions: Sequence[LabelledQuestion],
    weights: UtilitySettings,
    repeats: int = 1,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> list[list[dict[str, Any]]]:
    """The rows of each program, one a question and repeat.

    Every question goes to all programs before the next is asked, each first in its turn, so that a busy minute
    of the machine hits all alike. Nothing is answered from DSPy's cache: such an answer takes no time, and
    its repeats are all the same.
    """
    graders = [Grader(program, weights) for program in programs]
    rows: list[list[dict[str, Any]]] = [[] for _ in programs]
    done, of = 0, repeats * len(questions)
    with _without_cache():
        for program in programs:
            program(questions[0].question)  # what is loaded once is not the first question's time
        for repeat in range(repeats):
            for question in questions:
                for n in _rotated(len(programs), done):
                    answer = programs[n](question.question)
                    asked = Evaluation((graders[n](question, answer),), (answer.usage.seconds,))
                    rows[n] += [{**row, REPEAT: repeat} for row in asked.rows()]
                done += 1
                progress(done, of)
    return rows


def _rotated(count: int, by: int) -> Iterator[int]:
    return ((n + by) % count for n in range(count))


@contextmanager
def _without_cache() -> Iterator[None]:
    import dspy

    kept = dspy.cache
    dspy.configure_cache(enable_disk_cache=False, enable_memory_cache=False)
    try:
        yield
    finally:
        dspy.cache = kept
