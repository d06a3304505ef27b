"""What a compile came to: the new version beside what it was compiled from, and whether it counts as better."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from optimize.evaluation.evaluate import Evaluation
from optimize.evaluation.risk import check_risk, compare_curves, judge_grades
from optimize.evaluation.stats import PairedResult
from program.loop.policy import Risk, Setting

BALANCED = "balanced"
BETTER = "The gain survived the folds of train and dev and was above 0 on test, or was detectable on test."
"""What makes a version better than what it was compiled from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """A finished compile; gains are in utility (of anybody's program the metric's score), question by question."""

    name: str
    reference: str  # the new version
    study: str  # name of the study
    parent: str
    optimizer: str = "ragc"
    verdict: str
    gain: PairedResult
    over_plain: PairedResult | None = None
    plain: Evaluation | None = None  # plain RAG on test
    before: Evaluation  # the parent on test
    after: Evaluation  # the new version on test
    labelled: str  # how many questions there are, in words
    trials: int = 0
    calls: int
    usd: float
    seconds: float
    looks: int
    stopped_by: str = ""
    stood_in: int = 0  # answers of a stand-in, for models that could not be reached or read
    replayed: bool = True  # False when the program was run anew for every setting
    doubts: Sequence[str] = ()  # shortcuts in the labels, a paragraph each
    broken: Mapping[str, str] = field(default_factory=dict)
    """Questions that could not be graded, and why."""
    asked: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Settings tried and questions asked of each split, and how many of each it would be without a cap."""
    survived: Collection[str] = ()  # operating points whose gain survived the folds of train and dev
    points: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """`utility` and `calls` a question of each named operating point, on train (out of fold) and dev."""
    frontier: Sequence[Mapping[str, Any]] = ()
    """`utility` and `calls` of the settings that no other beats, on the same questions."""
    stages: Sequence[Mapping[str, Any]] = ()
    """`name`, `utility` and `calls` of the best first setting, of that after the sweeps, and of that chosen."""
    chosen: Setting  # the setting of `balanced`, candidates included
    started_from: Setting = field(default_factory=dict)
    risks: Mapping[str, Risk] = field(default_factory=dict)  # the stated risk of each point, where one was asked for
    given: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """By predictor the instruction or demonstrations chosen, as `kind` and `text`."""
    meanings: Mapping[str, str] = field(default_factory=dict)  # by parameter what it is, in words
    stage_seconds: Mapping[str, float] = field(default_factory=dict)
    """By stage of the compile how long it took, in this process."""

    @property
    def improved(self) -> bool:
        """True when it is detectably better than its parent on test."""
        return self.verdict == "better"

    @property
    def chosen_on(self) -> str:
        """The splits that the settings were chosen on; of a stated risk dev is left for the proof."""
        return "train" if self.risks else "train and dev"

    @property
    def ready(self) -> bool:
        """True when it is detectably better, and the risk that was asked for, if any, is proved."""
        return self.improved and all(self.risks[point].proved for point in self.risks if point == BALANCED)

    @property
    def better(self) -> bool:
        """True when it counts as better than its parent, by what BETTER says."""
        return self.improved or (BALANCED in self.survived and self.gain.difference > 0)

    def describe_origin(self, study: str, seed: int) -> dict[str, Any]:
        """Return the tables of a manifest that say how the version came about."""
        gain, survived = self.gain, BALANCED in self.survived
        figures = {"difference": round(gain.difference, 6), "ci": list(gain.ci), "n": gain.n, "topics": gain.topics}
        judged = {"better": self.better, "rule": BETTER, "survived_folds": survived, "verdict": self.verdict}
        how = {"name": self.optimizer, "seed": seed, "trials": self.trials, "study": study, "test_looks": self.looks}
        cost = {"seconds": round(self.seconds, 1), "calls": self.calls, "usd": round(self.usd, 6)}
        found = {"parent": self.parent, "gain": {**judged, **figures}, "optimizer": how, "cost": cost}
        return {**found, **({"risk": {name: asdict(risk) for name, risk in self.risks.items()}} if self.risks else {})}

    @property
    def risk_coverage(self) -> dict[str, Any] | None:
        """The risk-coverage curves on test of plain RAG, parent and version; None without confidences."""
        sides = {"plain RAG": self.plain, "parent": self.before, "this": self.after}
        return compare_curves({name: judge_grades(side.grades) for name, side in sides.items() if side is not None})

    def describe_risk(self) -> list[str]:
        """Return in lines what risk is stated, and whether it held on test."""
        if (risk := self.risks.get(BALANCED)) is None:
            return []
        lines = [f"Stated risk: {risk.describe()}. {check_risk(risk, self.after.measure('selective_risk'))}".strip()]
        if not risk.proved:
            lines.append(
                f"What is missing is {risk.lacks}. So the version refuses nothing for a risk, and states none."
            )
        return lines

    def explain(self) -> str:
        """Return in words whether it counts as better, why, and what to do if not."""
        if self.improved:
            return f"It is better than {self.parent} on test by more than chance."
        if self.better:
            return (
                f"It counts as better than {self.parent}: its gain held on topics of {self.chosen_on} that it was not"
                " chosen on, and was above 0 on test. The test alone does not prove it."
            )
        why = f"It does not count as better than {self.parent}: there was no gain on test."
        if self.trials and BALANCED not in self.survived:
            refusing = BALANCED in self.risks and self.risks[BALANCED].threshold > 0
            changed = "Only its refusals for the stated risk are" if refusing else "Nothing is"
            why = (
                f"No gain was found: of {self.trials} settings none beat {self.parent} by more than chance on"
                f" topics that it was not chosen on. {changed} changed: this version answers as {self.parent} does."
            )
        more = "To find a smaller gain, label more questions, of more topics, and compile again. Now there are"
        return f"{why} {more} {self.labelled}."
