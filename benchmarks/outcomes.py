"""How questions end: after others (`conversations.py`), and at a stated risk.

    python benchmarks/outcomes.py [--quick] [--json]

The example's train and dev, and from RAGC_DATASETS `squad2` and `hotpotqa`, are asked once of the uncompiled program.
Their topics are then divided in two by chance RESPLITS times: a threshold is proved at the risk LEVEL on one half, and
broken where more of its answers on the other half are wrong. Without a proof nothing is promised and nothing counts as
answered. Laxer risks say what the order of answers allows. Last the AURC of the shipped version against its parent,
from the scores sealed in both.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import conversations
import numpy as np
from figures import ROOT, Figure, figure, find_datasets, run_benchmark
from machines import make_project
from small_projects import open_example, open_set

from ragc.knowledge.project import Project
from ragc.optimize.evaluation.evaluate import evaluate
from ragc.optimize.evaluation.risk import Judged, judge_grades, prove_risk
from ragc.optimize.labelled.dataset import read_labelled
from ragc.optimize.registry.versions import compare_versions
from ragc.serve.opening import open_program

LEVEL, ENOUGH = 0.10, 0.40  # wrong among answered that is asked for, and answerable questions to be answered
RESPLITS, QUICK_RESPLITS = 500, 50
OTHER_LEVELS, OTHER_RESPLITS = (0.2, 0.3, 0.4, 0.5, 0.6), 200
Asked = tuple[list[Judged], np.ndarray]  # how each question ended, and whether it has an answer


def measure_risk(quick: bool) -> Iterator[Figure]:
    """Yield for each set how often a stated risk is broken, and what it leaves of the answers."""
    with TemporaryDirectory() as place:
        openers = {"machines": lambda folder: make_project(folder, 48)} if quick else {"the example": open_example}
        for source in [] if quick else find_datasets("squad2", "hotpotqa"):
            openers[source.name] = partial(open_set, source)
        for name, opener in openers.items():
            asked = ask_all(opener(Path(place) / name.split()[-1]))
            yield from resplit(name, asked, QUICK_RESPLITS if quick else RESPLITS)


def ask_all(project: Project) -> Asked:
    """Return how every question of a project ends, asked once of the uncompiled program."""
    questions = read_labelled(project.labelled, project.folder)
    grades = evaluate(open_program(project), questions, project.settings.utility).grades
    return judge_grades(grades), np.array([question.outcome == "answered" for question in questions])


def resplit(name: str, asked: Asked, times: int) -> Iterator[Figure]:
    """Yield the figures of one set."""
    judged, _ = asked
    answers = [one for one in judged if one.confidence is not None]
    right, wrong = (np.array([one.confidence for one in answers if one.wrong == is_]) for is_ in (False, True))
    if len(right) and len(wrong):
        above = (right[:, None] > wrong).mean() + (right[:, None] == wrong).mean() / 2
        yield figure(f"{name}: a right answer surer than a wrong one, AUC", above, "reported", len(answers))
    proved, broken, share = try_level(asked, LEVEL, times)
    yield figure(f"{name}, risk {LEVEL:.2f}: bound broken, share of re-splits", broken, "<= 0.05", times)
    yield figure(f"{name}, risk {LEVEL:.2f}: answerable answered", share, f">= {ENOUGH}", len(judged))
    yield figure(f"{name}, risk {LEVEL:.2f}: re-splits with a proof", proved, "reported", times)
    for level in OTHER_LEVELS:
        _, broken, share = try_level(asked, level, min(times, OTHER_RESPLITS))
        yield figure(f"{name}, risk {level:.2f}: bound broken", broken, "<= 0.05", min(times, OTHER_RESPLITS))
        yield figure(f"{name}, risk {level:.2f}: answerable answered", share, "reported", len(judged))


def try_level(asked: Asked, level: float, times: int) -> tuple[float, float, float]:
    """Return the share of re-splits with a proof, of those broken, and of the answerable that are answered."""
    judged, answerable = asked
    topics, rng, rows = sorted({one.topic for one in judged}), np.random.default_rng(0), []
    for _ in range(times):
        shown = {topics[n] for n in rng.permutation(len(topics))[: len(topics) // 2]}
        risk = prove_risk([one for one in judged if one.topic in shown], level)
        held = [n for n, one in enumerate(judged) if one.topic not in shown]
        rows.append(
            (risk.proved, *(check_held(judged, answerable, held, risk.threshold, level) if risk.proved else (0, 0)))
        )
    proved, broken, share = np.mean(rows, axis=0)
    return proved, broken, share


def check_held(
    judged: Sequence[Judged], answerable: np.ndarray, held: Sequence[int], threshold: float, level: float
) -> tuple[bool, float]:
    """Return whether more than `level` of the answers are wrong, and the share of answerable questions answered."""
    sure = np.array([-1.0 if one.confidence is None else one.confidence for one in judged])
    answered = [n for n in held if sure[n] >= threshold]
    wrong = np.mean([judged[n].wrong for n in answered]) if answered else 0.0
    return bool(wrong > level), answerable[answered].sum() / max(answerable[held].sum(), 1)


def measure_areas(quick: bool) -> Iterator[Figure]:
    """Yield the shipped version's AURC less its parent's, on test."""
    found = None if quick else compare_versions("tallowgate@v1", "tallowgate@latest", root=ROOT / "artifacts")
    if found is not None and found.risk_coverage is not None:
        less = found.risk_coverage["differences"]["A"]
        for what, value in (("", less["value"]), (", lower end", less["ci"][0]), (", upper end", less["ci"][1])):
            yield figure(f"AURC of the shipped version less its parent's{what}", value, "reported", found.n)


def measure(quick: bool) -> Iterator[Figure]:
    for part in (conversations.measure, measure_risk, measure_areas):
        yield from part(quick)


if __name__ == "__main__":
    run_benchmark(__doc__, measure)
