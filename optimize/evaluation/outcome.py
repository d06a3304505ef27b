"""What a compile came to: whether its version counts as better than the one it was compiled from, and why."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from optimize.evaluation.evaluate import Evaluation
from optimize.evaluation.stats import PairedResult

BALANCED = "balanced"
BETTER = "The gain survived the folds of train and dev and was above 0 on test, or was detectable on test."
"""What makes a version better than what it was compiled from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileOutcome:
    """What a compile came to: a program beside the one that it was compiled from, on the same test."""

    parent: str
    verdict: str
    gain: PairedResult  # in utility, question by question
    before: Evaluation  # the parent on test
    after: Evaluation  # the new version on test
    survived: Collection[str]  # operating points whose gain survived the folds of train and dev
    labelled: str  # how many questions there are, in words
    trials: int
    calls: int
    usd: float
    seconds: float
    looks: int
    stopped_by: str = ""
    broken: Mapping[str, str] = field(default_factory=dict)

    @property
    def improved(self) -> bool:
        """True when it is detectably better than its parent on test."""
        return self.verdict == "better"

    @property
    def better(self) -> bool:
        """True when it counts as better than its parent, by what BETTER says."""
        return self.improved or (BALANCED in self.survived and self.gain.difference > 0)

    def describe_origin(self, study: str, seed: int, optimizer: str = "ragc") -> dict[str, Any]:
        """Return the tables of a manifest that say how the version came about."""
        gain, survived = self.gain, BALANCED in self.survived
        figures = {"difference": round(gain.difference, 6), "ci": list(gain.ci), "n": gain.n, "topics": gain.topics}
        judged = {"better": self.better, "rule": BETTER, "survived_folds": survived, "verdict": self.verdict}
        how = {"name": optimizer, "seed": seed, "trials": self.trials, "study": study, "test_looks": self.looks}
        cost = {"seconds": round(self.seconds, 1), "calls": self.calls, "usd": round(self.usd, 6)}
        return {"parent": self.parent, "gain": {**judged, **figures}, "optimizer": how, "cost": cost}

    def explain(self) -> str:
        """Return in words whether it counts as better, why, and what to do if not."""
        if self.improved:
            return f"It is better than {self.parent} on test by more than chance."
        if self.better:
            return (
                f"It counts as better than {self.parent}: its gain held on topics of train and dev that it was not"
                " chosen on, and was above 0 on test. The test alone does not prove it."
            )
        why = f"It does not count as better than {self.parent}: there was no gain on test."
        if self.trials and BALANCED not in self.survived:
            why = (
                f"No gain was found: of {self.trials} settings none beat {self.parent} by more than chance on"
                f" topics that it was not chosen on. Nothing is changed: this version answers as {self.parent} does."
            )
        more = "To find a smaller gain, label more questions, of more topics, and compile again. Now there are"
        return f"{why} {more} {self.labelled}."
