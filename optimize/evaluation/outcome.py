"""What a compile came to: the new version beside what it was compiled from, and whether it counts as better."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from ragc.loop.policy import Risk, Setting
from ragc.optimize.evaluation.evaluate import Evaluation
from ragc.optimize.evaluation.grades import Grade
from ragc.optimize.evaluation.losses import list_losses
from ragc.optimize.evaluation.risk import check_risk, compare_curves, judge_grades
from ragc.optimize.evaluation.stats import PairedResult, format_estimate
from ragc.serve.reference import MOSTLY

BALANCED, AS_IT_IS = "balanced", "as it is"
"""Names of an operating point, and of the stage of a compile that changes nothing."""
RULE = "Better at 5 % by a paired test by topic of the utility on questions that nothing was learned from."
"""What the verdict of a compile rests on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """A finished compile; gains are in utility (of anybody's program the metric's score), question by question."""

    name: str
    reference: str  # the new version
    repeated: bool = False  # whether the same compile had sealed it before
    parent: str
    began_as_parent: bool = True  # whether it was compiled from its parent, or is compared with it alone
    optimizer: str = "ragc"
    gain: PairedResult  # over the parent, on dev and test; on test alone where dev was needed for something else
    over_plain: PairedResult | None = None  # on test
    plain: Evaluation | None = None  # plain RAG on test
    before: Evaluation  # the parent on test
    after: Evaluation  # the new version on test
    labelled: str  # how many questions there are, in words
    trials: int = 0  # settings that were scored
    calls: int  # of language models, that were paid for
    reused: int = 0  # replies of language models that the record had
    usd: float
    seconds: float
    looks: int
    stopped_by: str = ""
    stood_in: int = 0  # answers of a stand-in, for models that could not be reached or read
    stood_for: float = 0.0  # share of the questions of dev and test whose answers rest on such
    replayed: bool = True  # False when the program was run anew for every setting
    doubts: Sequence[str] = ()  # shortcuts in the labels, a paragraph each
    broken: Mapping[str, str] = field(default_factory=dict)  # questions that could not be graded, and why
    asked: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Questions asked of each split, and how many of each it would be without a cap."""
    untried: Sequence[str] = ()  # ways of answering that were not tried, as a cap left no room for them
    lacks: int = 0  # calls that those would take, about
    stages: Sequence[Mapping[str, Any]] = ()
    """`name` of each setting that the compile came to, with its utility on `train` and on `dev`, and `calls`."""
    stage: str = ""  # name of the one that was sealed
    points: Mapping[str, Mapping[str, float | None]] = field(default_factory=dict)
    """`utility` and `calls` a question of each named operating point, on train."""
    chosen: Setting  # the setting of `balanced`, candidates included
    started_from: Setting = field(default_factory=dict)
    risks: Mapping[str, Risk] = field(default_factory=dict)  # the stated risk of each point, where one was asked for
    meanings: Mapping[str, str] = field(default_factory=dict)  # by parameter what it is, in words
    stage_seconds: Mapping[str, float] = field(default_factory=dict)
    """By stage of the compile how long it took, in this process."""
    learned: Sequence[Grade] = ()  # the answers to train and dev, each without what was learned from its topic

    @property
    def losses(self) -> list[tuple[str, Grade]]:
        """The questions of train and dev that it does not answer right, each behind the stage that lost it."""
        return list_losses(self.learned)

    @property
    def verdict(self) -> str:
        """`better`, `worse` or `no_detectable_difference` than its parent, by what RULE says."""
        return self.gain.verdict

    @property
    def better(self) -> bool:
        """True when it is detectably better than its parent."""
        return self.verdict == "better"

    @property
    def kept_risk(self) -> bool:
        """True when the risk that was asked for, if any, is proved."""
        return BALANCED not in self.risks or self.risks[BALANCED].proved

    @property
    def usable(self) -> bool:
        """False when a stand-in had a hand in most answers to dev and test: what it is worth is not known."""
        return self.stood_for <= MOSTLY

    def meets(self, require: str) -> bool:
        """Tell whether it is as `require` says, usable, and keeps its stated risk."""
        return self.kept_risk and self.usable and (self.better if require == "better" else self.verdict != "worse")

    def describe_origin(self, identity: str, seed: int) -> dict[str, Any]:
        """Return the tables of a manifest that say how the version came about."""
        gain = self.gain
        figures = {"difference": round(gain.difference, 6), "ci": list(gain.ci), "n": gain.n, "topics": gain.topics}
        how = {"name": self.optimizer, "seed": seed, "settings": self.trials, "compile": identity, "stage": self.stage}
        cost = {"seconds": round(self.seconds, 1), "calls": self.calls, "usd": round(self.usd, 6)}
        found = {
            "parent": self.parent,
            "gain": {"verdict": self.verdict, "rule": RULE, "stood_for": round(self.stood_for, 4), **figures},
            "optimizer": {**how, "test_looks": self.looks},
            "cost": cost,
        }
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

    @property
    def held_out(self) -> str:
        """The questions that the gain rests on, in words."""
        splits = "dev and test" if self.gain.n > len(self.after.grades) else "test"
        return f"{self.gain.n} questions of {splits} ({self.gain.topics} topics)"

    def explain(self) -> str:
        """Return in words what came of it, and what to do where nothing could be told."""
        gain = f"{format_estimate(self.gain.difference, self.gain.ci, '+.3f')} on {self.held_out}"
        if not self.usable:
            what = f"A stand-in had a hand in {self.stood_for:.0%} of the answers to dev and test, so it is not in use"
            return f"{what}: its models could not be reached. Against {self.parent}: {gain}."
        if self.better:
            return f"It is better than {self.parent}: {gain}, which nothing was learned from."
        if self.verdict == "worse":
            return f"It is worse than {self.parent}: {gain}. Go on with that one, or label more questions."
        as_it_does = self.stage == AS_IT_IS and self.began_as_parent and not self.gain.difference
        same = f"It answers as {self.parent} does" if as_it_does else f"It cannot be told from {self.parent}"
        need = f" A difference of {self.gain.mde:.3f} could have been seen." if self.gain.enough_topics else ""
        more = f"To see a smaller one, label more questions, of more topics. Now there are {self.labelled}."
        return f"{same}: {gain}.{need} {more}"
