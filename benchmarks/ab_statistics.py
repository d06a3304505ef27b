"""How often the offline test is wrong, and how often it finds what it says it can find: seeded simulations.

    python benchmarks/ab_statistics.py [--quick] [--json]

Equal versions: the share of A/A tests with p < .05, and the share of 95 % intervals that hold the true
difference, on independent questions and on questions that share topics on which B - A leans up or down. A
t-test that ignores topics runs beside it and must fail, so that the figures can. With topics, the bar is .05 for
right or wrong answers, whose ties keep the test below its level; on utilities it is exact, at .05, and the bar is
that and two standard errors. Power: versions that differ by exactly the smallest detectable difference that pilots
of the same kind print, on average.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from figures import Figure, figure, run_benchmark
from numpy.typing import NDArray
from scipy.stats import ttest_1samp

from ragc.optimize.evaluation.stats import paired_test

Floats = NDArray[np.float64]
RUNS, QUICK_RUNS = 2000, 250
LEAN = 0.25
"""Standard deviation, between topics, of how far B - A leans: in probability for right or wrong answers."""


@dataclass(frozen=True, slots=True)
class Scene:
    """Questions of a test: so many topics of so many questions each (one each: independent questions)."""

    name: str
    topics: int
    each: int
    false_positives: str

    @property
    def groups(self) -> list[int] | None:
        return np.repeat(np.arange(self.topics), self.each).tolist() if self.each > 1 else None

    def differences(self, rng: np.random.Generator, effect: float, utility: bool) -> Floats:
        """B - A of every question: right (1) or wrong (0) answers, or a utility; `effect` on average."""
        lean = rng.normal(0, LEAN, self.topics).repeat(self.each) if self.each > 1 else np.zeros(self.topics)
        n = len(lean)
        if utility:
            return effect + lean + rng.normal(0, 0.6, n)
        # Clipping would shift the mean: leans stay where both probabilities are inside [0, 1].
        lean = np.clip(lean, -0.6, 0.6)
        a, b = 0.5 - (lean + effect) / 2, 0.5 + (lean + effect) / 2
        return (rng.random(n) < b).astype(float) - (rng.random(n) < a)


KINDS = (False, True)
"""Whether the metric is a utility: else answers are right or wrong."""
SCENES = (
    Scene("200 independent questions", 200, 1, "<= 0.06"),
    Scene("8 topics of 25", 8, 25, "<= 0.05"),
    Scene("20 topics of 10", 20, 10, "<= 0.05"),
)
POWERED = (*SCENES, Scene("50 independent questions", 50, 1, ""), Scene("13 topics of 8", 13, 8, ""))


def equal_versions(scene: Scene, runs: int, utility: bool) -> Iterator[Figure]:
    """False positives, coverage of the interval, and (with topics) the false positives of a test that ignores them."""
    rng, rejected, covered, naive = np.random.default_rng(7), 0, 0, 0
    for run in range(runs):
        found = scene.differences(rng, 0.0, utility)
        test = paired_test(np.zeros(len(found)).tolist(), found.tolist(), scene.groups, seed=run)
        rejected += test.p < 0.05
        covered += test.ci[0] <= 0 <= test.ci[1]
        naive += ttest_1samp(found, 0).pvalue < 0.05
    kind, bar = ("utility", "<= 0.06") if utility else ("right or wrong", scene.false_positives)
    yield figure(f"A/A false positives, {scene.name}, {kind}", rejected / runs, bar, runs)
    yield figure(f"coverage of the 95 % interval, {scene.name}, {kind}", covered / runs, "0.93 to 0.97", runs)
    if scene.each > 1:
        name = f"control that must fail: t-test without topics, {scene.name}, {kind}"
        yield figure(name, naive / runs, ">= 0.1", runs)


def power_at_the_detectable_difference(scene: Scene, runs: int, utility: bool) -> Figure:
    """The share of tests that find a difference as large as pilots print as detectable."""
    rng = np.random.default_rng(11)
    pilots = []
    for _ in range(max(50, runs // 10)):
        found = scene.differences(rng, 0.0, utility)
        pilots.append(paired_test(np.zeros(len(found)).tolist(), found.tolist(), scene.groups).mde)
    effect = float(np.mean(pilots))
    hits = 0
    for run in range(runs):
        found = scene.differences(rng, effect, utility)
        hits += paired_test(np.zeros(len(found)).tolist(), found.tolist(), scene.groups, seed=run).p < 0.05
    kind = "utility" if utility else "right or wrong"
    name = f"power at the printed detectable difference ({effect:.3f}), {scene.name}, {kind}"
    return figure(name, hits / runs, "0.75 to 0.85", runs)


def measure(runs: int) -> Iterator[Figure]:
    for scene in SCENES:
        for utility in KINDS:
            yield from equal_versions(scene, runs, utility)
    for scene in POWERED:
        for utility in KINDS:
            yield power_at_the_detectable_difference(scene, runs, utility)


if __name__ == "__main__":
    run_benchmark(__doc__, lambda quick: measure(QUICK_RUNS if quick else RUNS))
