"""The offline A/B test: versions against a control, on sealed scores or asked anew."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from optimize.evaluation.comparison import (
    DEFAULT_MARGINS,
    PRIMARY,
    REPEAT,
    Comparison,
    Margin,
    Row,
    compare_rows,
    read_scores,
)
from optimize.evaluation.evaluate import Evaluation, Grader
from optimize.evaluation.grades import Grade
from optimize.evaluation.stats import correct_holm
from optimize.labelled.dataset import LabelledQuestion, Question, read_labelled
from optimize.labelled.split import warn_of_overlap
from optimize.registry.versions import note_test_use
from program.errors import DataError
from program.serve.manifest import open_version, refuse_unreadable
from program.serve.reference import Manifest
from program.settings import artifacts_root

if TYPE_CHECKING:
    from program.knowledge.project import Project

SEALED_POINT = "balanced"  # the operating point that `scores.jsonl` was scored at
SUBGROUPS = "Subgroups say where to look next and prove nothing: of twenty without a difference, one shows one."
Folder = Path | str | None


@dataclass(frozen=True, slots=True)
class ArmComparison:
    """A version against the control."""

    version: str  # the version, as `name@v8`, with its digest where two would read the same
    comparison: Comparison  # the paired comparison; p-values are corrected for the number of arms (Holm)

    @property
    def breached(self) -> list[str]:
        """The margins of the guardrails that are breached."""
        return [str(one.margin) for one in self.comparison.guardrails if one.state == "breached"]

    def as_dict(self) -> dict[str, Any]:
        """Return the comparison's figures with its sentence."""
        shape = self.comparison.as_dict()
        warning = SUBGROUPS if self.comparison.by_tag else ""
        return {**shape, "b": self.version, "text": self.comparison.text(), "by_tag_warning": warning}


@dataclass(frozen=True, slots=True)
class OfflineTest:
    """Every arm against one control."""

    control: str
    metric: str
    arms: tuple[ArmComparison, ...]
    warnings: tuple[str, ...]
    gate: bool = False  # whether guardrails were asked for, so that a breach fails the test

    @property
    def exit_code(self) -> Literal[0, 1, 3]:
        """0: better; 1: none is, and one is worse or breaches a gate; 3: neither."""
        verdicts = {arm.comparison.verdict for arm in self.arms if not (self.gate and arm.breached)}
        if "better" in verdicts:
            return 0
        return 3 if verdicts == {"no_detectable_difference"} else 1

    def as_dict(self) -> dict[str, Any]:
        """Return the shape of `ragc ab offline --json`, with `arms` for several."""
        shapes = [{**arm.as_dict(), "a": self.control} for arm in self.arms]
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
    root: Folder = None,
    project: Folder = None,
    ask_anew: Callable[[], Sequence[Sequence[Row]]] | None = None,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> OfflineTest:
    """Compare every version with the first of `refs`, the control.

    Sealed scores are compared where they will do. All versions are asked anew for another labelled file (`data`), for
    another operating point, or for `repeats` above 1; over the folder `project` when theirs moved, or by `ask_anew`
    where they are no project's. `margins` replace the default guardrails. Raises `DataError` for fewer than two
    versions, different questions, an unknown metric or guardrail, and a `project` where nothing is asked.
    """
    if len(refs) < 2:
        raise DataError("One version alone is no test.", "Name two or more: ragc ab offline A B")
    sealed = [open_version(ref, root) for ref in refs]
    names = _name_versions(sealed)
    rows: Sequence[Sequence[Row]]
    if ask_anew is not None:
        rows = ask_anew()
    elif data is not None or point != SEALED_POINT or repeats > 1:
        from program.serve.opening import find_project, load

        opened = find_project(refs[0], root, project)
        questions = read_labelled(data) if data else _read_scored_questions(refs[0], opened, root)
        programs = [load(ref, artifacts=root, project=project, point=point) for ref in refs]
        asked = [(Grader(one, opened.settings.utility), one) for one in programs]
        rows = score_side_by_side(asked, questions, repeats, progress)
    elif project is not None:
        mend = "Leave --project out, or have the versions asked anew: --data FILE, --point or --repeats."
        raise DataError("The sealed scores are compared, for which no project is opened.", mend)
    else:
        rows = [read_scores(ref, root) for ref in refs]
    with refuse_unreadable("What one of the versions was scored"):
        comparisons = [compare_rows(rows[0], other, metric, margins or DEFAULT_MARGINS) for other in rows[1:]]
    if margins:
        _require_measured(comparisons)
    others = list(zip(names[1:], comparisons, strict=True))
    corrected = correct_holm({name: one.test.p for name, one in others})
    arms = tuple(ArmComparison(name, replace(one, test=replace(one.test, p=corrected[name]))) for name, one in others)
    texts = [str(row["question"]) for row in rows[0] if row.get("question")]
    for name in {one.name for one in sealed}:
        note_test_use(artifacts_root(root), name, "ab offline", texts)
    warnings = [warning for one in sealed if (warning := warn_of_overlap(one, texts))]
    warnings += _warn_of_arms(arms)
    return OfflineTest(names[0], metric, arms, tuple(dict.fromkeys(warnings)), bool(margins))


def score_side_by_side(
    programs: Sequence[tuple[Callable[[Any, Any], Grade], Callable[[str], Any]]],
    questions: Sequence[Question],
    repeats: int = 1,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> list[list[dict[str, Any]]]:
    """Ask every program every question, and return the graded rows of each.

    A question goes to all programs before the next is asked, each first in its turn, so that a busy minute of the
    machine hits all alike. Nothing comes from DSPy's cache: such an answer takes no time, and its repeats are equal.
    """
    rows: list[list[dict[str, Any]]] = [[] for _ in programs]
    asked = [(repeat, question) for repeat in range(repeats) for question in questions]
    with _disable_cache():
        for _, ask in programs:
            ask(questions[0].question)  # what is loaded once is not the first question's time
        for turn, (repeat, question) in enumerate(asked):
            for n in ((turn + k) % len(programs) for k in range(len(programs))):
                grade, ask = programs[n]
                answer = ask(question.question)
                graded = Evaluation((grade(question, answer),), (answer.usage.seconds,))
                rows[n] += [{**row, REPEAT: repeat} for row in graded.rows()]
            progress(turn + 1, len(asked))
    return rows


@contextmanager
def _disable_cache() -> Iterator[None]:
    import dspy

    kept = dspy.cache
    dspy.configure_cache(enable_disk_cache=False, enable_memory_cache=False)
    try:
        yield
    finally:
        dspy.cache = kept


def _read_scored_questions(ref: str, project: Project, root: Folder) -> list[LabelledQuestion]:
    scored = {str(row["id"]) for row in read_scores(ref, root)}
    questions = [question for question in read_labelled(project.labelled, project.folder) if question.id in scored]
    if lost := len(scored) - len(questions):
        what = f"{lost} of the {len(scored)} questions that {ref} was scored on are not in {project.labelled} any more."
        raise DataError(what, "Name the labelled file: --data FILE.")
    return questions


def _name_versions(sealed: Sequence[Manifest]) -> list[str]:
    """Return `name@v7` of each version, with its digest where two would read the same."""
    short, full = [one.label for one in sealed], [one.full_label for one in sealed]
    if len(set(full)) < len(full):
        raise DataError("A version was named twice.", "Compare different versions.")
    return [name if short.count(name) == 1 else long for name, long in zip(short, full, strict=True)]


def _require_measured(comparisons: Sequence[Comparison]) -> None:
    for one in comparisons:
        if lost := [guard.margin.metric for guard in one.guardrails if guard.state == "not_measured"]:
            mend = f"Measured: {', '.join([one.metric, *one.others])}. Versions are asked anew with --data FILE."
            raise DataError(f"The guardrail {lost[0]!r} was not measured for both versions.", mend)


def _warn_of_arms(arms: Sequence[ArmComparison]) -> Iterator[str]:
    for arm in arms:
        if not arm.comparison.test.enough_topics:
            yield f"{arm.version}: too few topics for any verdict; label questions of more topics."
        if arm.breached:
            yield f"{arm.version} breaches a guardrail: {', '.join(arm.breached)}."
