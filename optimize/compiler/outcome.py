"""What a compile came to: the new version, its scores beside plain RAG's and its parent's, and the verdict."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from optimize.compiler.front import Candidate
from optimize.evaluation.comparison import judge_difference
from optimize.evaluation.evaluate import Evaluation
from optimize.evaluation.metrics import Grade
from optimize.evaluation.stats import PairedResult, paired_test


@dataclass(frozen=True, slots=True)
class Compiled:
    """A finished compile: the new version, its scores beside plain RAG's and the parent's, and the verdict.

    `stopped_by` names the cap that cut the search, the choice or the test short; `looks` counts how often this test
    split was looked at; `doubts` are shortcuts in the labels; `points` has what each operating point came to on train
    (out of fold) and dev, and `survived` those whose gain survived the folds; `broken` are questions that could not be
    graded; `stood_in` counts the answers of a stand-in, for models that could not be reached or read. `asked` has how
    many settings were tried, on how many questions of train, dev and test it was searched, chosen and tested, and how
    many of each it would be without a cap.
    """

    reference: str
    parent: str
    evaluation: Evaluation
    plain: Evaluation
    before: Evaluation
    against_parent: PairedResult
    against_plain: PairedResult
    trials: int
    seconds: float
    calls: int
    usd: float = 0.0
    study: str = ""
    stopped_by: str = ""
    looks: int = 1
    doubts: Sequence[str] = ()
    points: Mapping[str, Candidate] = field(default_factory=dict)
    survived: Collection[str] = ()
    broken: Mapping[str, str] = field(default_factory=dict)
    stood_in: int = 0
    asked: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def verdict(self) -> str:
        """better, worse or no_detectable_difference: utility over the parent, paired and clustered by topic."""
        return judge_difference("utility", self.against_parent)

    @property
    def improved(self) -> bool:
        return self.verdict == "better"


def paired(
    a: Sequence[Grade], b: Sequence[Grade], metric: Callable[[Grade], float] = lambda g: g.utility
) -> PairedResult:
    """The paired, topic-clustered test of b over a; nothing can be said of no questions."""
    if not a:
        return PairedResult(0.0, (-math.inf, math.inf), 1.0, 0, 0, math.inf, False, 0, math.nan)
    return paired_test([metric(g) for g in a], [metric(g) for g in b], [g.topic for g in a])
