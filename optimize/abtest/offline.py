"""The offline A/B test: versions against a control, on sealed scores or asked anew."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ragc.errors import DataError
from ragc.optimize.evaluation.comparison import (
    DEFAULT_MARGINS,
    PRIMARY,
    REPEAT,
    Comparison,
    Margin,
    Row,
    compare_rows,
    fields_of,
    list_questions,
    read_scores,
    read_sealed_rows,
)
from ragc.optimize.evaluation.evaluate import Side, evaluate_side_by_side, open_side
from ragc.optimize.evaluation.stats import correct_holm
from ragc.optimize.labelled.dataset import LabelledQuestion, Question, read_labelled
from ragc.optimize.labelled.reviewed import hold_out
from ragc.optimize.labelled.split import warn_of_overlap
from ragc.optimize.registry.versions import note_comparison
from ragc.serve.artifact import DEFAULT_POINT
from ragc.serve.manifest import open_version, refuse_unreadable
from ragc.serve.reference import Manifest
from ragc.settings import artifacts_root

if TYPE_CHECKING:
    from ragc.knowledge.project import Project

Folder = Path | str | None


@dataclass(frozen=True, slots=True)
class OfflineTest:
    """Every arm against one control."""

    control: str
    metric: str
    arms: tuple[Comparison, ...]
    warnings: tuple[str, ...]
    looks: int  # how often scores on these questions were looked at, this test included
    gate: bool = False  # whether guardrails were asked for, so that a breach fails the test

    @property
    def exit_code(self) -> Literal[0, 1, 3]:
        """0: one is better and breaches no gate. 1: none is, and one is worse or breaches a gate. 3: neither."""
        states = {"breached" if self.gate and arm.breached else arm.verdict for arm in self.arms}
        return 0 if "better" in states else 1 if states & {"worse", "breached"} else 3


@dataclass(frozen=True, slots=True)
class Asking:
    """Versions about to be asked anew."""

    questions: Sequence[str]
    ask: Callable[[], Sequence[Sequence[Row]]]  # returns the rows of each version, the control's first
    terms: str  # what their scores depend on besides, such as the operating point and the documents


def compare_offline(
    refs: Sequence[str],
    metric: str = PRIMARY,
    *,
    data: Path | None = None,
    point: str = DEFAULT_POINT,
    repeats: int = 1,
    margins: Sequence[Margin] = (),
    root: Folder = None,
    project: Folder = None,
    asking: Asking | None = None,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> OfflineTest:
    """Compare every version with the first of `refs`, the control.

    Sealed scores are compared where they will do, but for seconds. All versions are asked anew, and timed side by side,
    for another labelled file (`data`), for another operating point, or for `repeats` above 1; over the folder `project`
    when theirs moved, or as `asking` says where they are no project's. `margins` replace the default guardrails. It is
    a look, noted before a question is asked. Raises `DataError` for fewer than two versions, different questions, an
    unknown metric or guardrail, and a `project` where nothing is asked.
    """
    if len(refs) < 2:
        raise DataError("One version alone is no test.", "Name two or more: ragc compare A B")
    sealed = [open_version(ref, root) for ref in refs]
    names = _name_versions(sealed)
    note = partial(note_comparison, sealed, metric, by="compare", root=artifacts_root(root))
    if asking is None and (data is not None or point != DEFAULT_POINT or repeats > 1):
        asking = _open_versions(refs, data, point, repeats, root, project, progress)
    elif asking is None and project is not None:
        mend = "Leave --project out, or have the versions asked anew: --data FILE, --point or --repeats."
        raise DataError("The sealed scores are compared, for which no project is opened.", mend)
    if asking is not None:
        looks, rows = note(asking.questions, asked=asking.terms), asking.ask()
    else:
        rows = read_sealed_rows(sealed, metric)
    texts, timed = list_questions(rows[0]), asking is not None
    with refuse_unreadable("What one of the versions was scored"):
        others = [
            compare_rows(rows[0], other, metric, margins or DEFAULT_MARGINS, names=(names[0], name), timed=timed)
            for name, other in zip(names[1:], rows[1:], strict=True)
        ]
    if margins:
        _require_measured(others)
    if asking is None:
        looks = note(texts)
    corrected = correct_holm({one.b: one.p for one in others})
    arms = tuple(one.correct(corrected[one.b]) for one in others)
    warnings = dict.fromkeys(warning for one in sealed if (warning := warn_of_overlap(one, texts)))
    return OfflineTest(names[0], metric, arms, tuple(warnings), looks, bool(margins))


def _open_versions(
    refs: Sequence[str],
    data: Path | None,
    point: str,
    repeats: int,
    root: Folder,
    project: Folder,
    progress: Callable[[int, int], None],
) -> Asking:
    """Open the versions of a project, to be asked a labelled file or what the first was scored on."""
    from ragc.serve.opening import find_project, load

    opened = find_project(refs[0], root, project)
    questions = read_labelled(data) if data else _read_scored_questions(refs[0], opened, root)
    loaded = [load(ref, artifacts=root, project=project, point=point) for ref in refs]
    sides = [open_side(hold_out(one, questions), opened.settings.utility) for one in loaded]
    terms = f"{point} over {loaded[0].runtime.library.corpus_digest}"
    ask = partial(score_anew, sides, questions, repeats, progress)
    return Asking([question.conversation for question in questions], ask, terms)


def score_anew(
    sides: Sequence[Side],
    questions: Sequence[Question],
    repeats: int = 1,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> list[list[Row]]:
    """Return the graded rows of each program, every question asked `repeats` times.

    The programs take turns. Nothing comes from DSPy's cache: such an answer takes no time, and its repeats are equal.
    """
    rows: list[list[Row]] = [[] for _ in sides]
    with _disable_cache():
        for _, ask in sides:
            ask([questions[0].asked])  # what is loaded once is not the first question's time
        for repeat in range(repeats):
            advance = lambda done, of, before=repeat: progress(before * of + done, repeats * of)  # noqa: E731
            for n, found in enumerate(evaluate_side_by_side(sides, questions, advance, together=1)):
                if found.failed:
                    what = f"An answer cannot be graded: {found.first_failure}."
                    raise DataError(what, "Mend the metric or the labels.")
                rows[n] += [{**fields_of(grade), REPEAT: repeat} for grade in found.grades]
    return rows


@contextmanager
def _disable_cache() -> Iterator[None]:
    import dspy

    before = dspy.cache
    dspy.configure_cache(enable_disk_cache=False, enable_memory_cache=False)
    try:
        yield
    finally:
        dspy.cache = before


def _read_scored_questions(ref: str, project: Project, root: Folder) -> list[LabelledQuestion]:
    scored = {str(row["id"]) for row in read_scores(open_version(ref, root))}
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


def _require_measured(comparisons: Iterable[Comparison]) -> None:
    for one in comparisons:
        if lost := [guard.metric for guard in one.guardrails if guard.state == "not_measured"]:
            mend = f"Measured: {', '.join([one.metric, *one.others])}. Versions are asked anew with --data FILE."
            raise DataError(f"The guardrail {lost[0]!r} was not measured for both versions.", mend)
