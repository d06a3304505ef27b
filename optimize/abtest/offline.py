"""The offline A/B test: versions against a control, on sealed scores or asked anew."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from optimize.abtest.rerun import score_side_by_side
from optimize.evaluation.comparison import DEFAULT_MARGINS, PRIMARY, Comparison, Margin, Row, compare_rows, read_scores
from optimize.evaluation.stats import PairedResult, correct_holm, questions_needed
from optimize.labelled.dataset import LabelledQuestion, read_labelled
from optimize.labelled.split import warn_of_overlap
from optimize.registry.versions import note_test_use
from program.errors import DataError
from program.serve import manifest, reference
from program.settings import artifacts_root

SEALED_POINT = "balanced"
"""The operating point that `scores.jsonl` was scored at."""
SUBGROUPS = "Subgroups say where to look next and prove nothing: of twenty without a difference, one shows one."


@dataclass(frozen=True, slots=True)
class Arm:
    """A version against the control. `needed` is how many questions would show the effect asked for."""

    version: str
    comparison: Comparison
    needed: int | None = None


@dataclass(frozen=True, slots=True)
class OfflineTest:
    """Every arm against `control`; with several arms their p-values are corrected together (Holm).

    `warnings` are sentences that a reader must know before believing the verdicts.
    """

    control: str
    metric: str
    arms: tuple[Arm, ...]
    warnings: tuple[str, ...]
    effect: float | None = None
    gate: bool = False

    @property
    def exit_code(self) -> Literal[0, 1, 3]:
        """0: a version is better. 1: none is, and one is worse; or a guardrail that was asked for is breached.
        3: no difference was detected."""
        verdicts = {arm.comparison.verdict for arm in self.arms if not (self.gate and _breached(arm))}
        if "better" in verdicts:
            return 0
        return 3 if verdicts == {"no_detectable_difference"} else 1

    def as_dict(self) -> dict[str, Any]:
        """The shape of `ragc ab offline --json`: of one arm, the comparison; of several, `arms` holds each."""
        shapes = [
            {
                **arm.comparison.as_dict(),
                "a": self.control,
                "b": arm.version,
                "by_tag_warning": SUBGROUPS if arm.comparison.by_tag else "",
                "needed": {"effect": self.effect, "questions": arm.needed} if self.effect is not None else None,
            }
            for arm in self.arms
        ]
        if len(shapes) == 1:
            return {**shapes[0], "warnings": list(self.warnings)}
        return {"control": self.control, "metric": self.metric, "arms": shapes, "warnings": list(self.warnings)}


def compare_offline(
    refs: Sequence[str],
    metric: str = PRIMARY,
    *,
    data: Path | None = None,
    point: str = SEALED_POINT,
    repeats: int = 1,
    margins: Sequence[Margin] = (),
    effect: float | None = None,
    root: Path | str | None = None,
    project: Path | str | None = None,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> OfflineTest:
    """The first of `refs` is the control, each other is tested against it.

    Sealed scores are compared where they will do; all versions are asked anew for another labelled file
    (`data`), an operating point that was not scored, or `repeats` above 1; over the folder `project` when theirs
    moved since. `margins` replace the default guardrails. `effect` is a difference in the metric that somebody
    would like to be able to see. Raises `DataError` for fewer than two versions, different questions, an unknown
    metric or guardrail, a `project` where nothing is asked.
    """
    if len(refs) < 2:
        raise DataError("One version alone is no test.", "Name two or more: ragc ab offline A B")
    found = [reference.resolve(ref, root) for ref in refs]
    sealed = [manifest.verify_folder(one.path, one.digest) for one in found]
    names = _distinct(sealed)
    if data is None and point == SEALED_POINT and repeats == 1:
        if project is not None:
            raise DataError(
                "The sealed scores are compared, for which no project is opened.",
                "Leave --project out, or have the versions asked anew: --data FILE, --point or --repeats.",
            )
        rows: Sequence[Sequence[Row]] = [read_scores(ref, root) for ref in refs]
    else:
        rows = _asked_anew(refs, data, point, repeats, root, project, progress)
    with manifest.refuse_unreadable("What one of the versions was scored"):
        comparisons = [compare_rows(rows[0], other, metric, margins or DEFAULT_MARGINS) for other in rows[1:]]
    for one in comparisons:
        if margins and (lost := [g.margin.metric for g in one.guardrails if g.state == "not_measured"]):
            raise DataError(
                f"The guardrail {lost[0]!r} was not measured for both versions.",
                f"Measured: {', '.join([one.metric, *one.others])}. Versions are asked anew with --data FILE.",
            )
    corrected = correct_holm({name: c.test.p for name, c in zip(names[1:], comparisons, strict=True)})
    arms = [
        Arm(name, replace(c, test=replace(c.test, p=corrected[name])), _needed(effect, c.test))
        for name, c in zip(names[1:], comparisons, strict=True)
    ]
    texts = [str(row["question"]) for row in rows[0] if row.get("question")]
    for name in {one.name for one in sealed}:
        note_test_use(artifacts_root(root), name, "ab offline", texts)
    warnings = [warning for one in sealed if (warning := warn_of_overlap(one, texts))]
    warnings += _warnings(arms)
    return OfflineTest(names[0], metric, tuple(arms), tuple(dict.fromkeys(warnings)), effect, bool(margins))


def _asked_anew(
    refs: Sequence[str],
    data: Path | None,
    point: str,
    repeats: int,
    root: Path | str | None,
    moved: Path | str | None,
    progress: Callable[[int, int], None],
) -> list[list[dict[str, Any]]]:
    from program.serve.opening import find_project, load

    project = find_project(refs[0], root, moved)
    if data is not None:
        questions: Sequence[LabelledQuestion] = read_labelled(data)
    else:
        scored = {str(row["id"]) for row in read_scores(refs[0], root)}
        questions = [q for q in read_labelled(project.labelled, project.folder) if q.id in scored]
        if len(questions) < len(scored):
            raise DataError(
                f"{len(scored) - len(questions)} of the {len(scored)} questions that {refs[0]} was scored on are "
                f"not in {project.labelled} any more.",
                "Name the labelled file: --data FILE.",
            )
    programs = [load(ref, artifacts=root, project=moved, point=point) for ref in refs]
    return score_side_by_side(programs, questions, project.settings.utility, repeats, progress)


def _distinct(sealed: Sequence[manifest.Manifest]) -> list[str]:
    """`name@v7` of each, or with its digest where two would have the same."""
    short = [f"{one.name}@{one.version}" for one in sealed]
    full = [f"{text}-{one.digest[7:15]}" for text, one in zip(short, sealed, strict=True)]
    if len(set(full)) < len(full):
        raise DataError("A version was named twice.", "Compare different versions.")
    return [short[n] if short.count(short[n]) == 1 else full[n] for n in range(len(sealed))]


def _needed(effect: float | None, test: PairedResult) -> int | None:
    if effect is None or test.spread == 0:
        return None
    return questions_needed(effect, test.spread, test.n / test.units)


def _breached(arm: Arm) -> bool:
    return any(g.state == "breached" for g in arm.comparison.guardrails)


def _warnings(arms: Sequence[Arm]) -> Iterator[str]:
    for arm in arms:
        if not arm.comparison.test.enough_topics:
            yield f"{arm.version}: too few topics for any verdict; label questions of more topics."
        if breached := [str(g.margin) for g in arm.comparison.guardrails if g.state == "breached"]:
            yield f"{arm.version} breaches a guardrail: {', '.join(breached)}."
