"""A decision of a few options, one head an option."""

import contextlib

import numpy as np
import pytest

from program.errors import IntegrityError
from program.models.embedded.decider import LocalDecider
from program.models.embedded.encoder import shared_embedder
from program.models.embedded.features import BLOCKS, Case, FeatureSpace
from program.models.embedded.heads import FittedDecision, OneVsRest, Trees, fit_decision, load_decision

WIDTHS = {"meaning": 16, "grams": 16, "shape": 6, "bearing": 20, "near": 3, "bases": 2, "options": 3}


def drawn(n: int, seed: int = 0) -> tuple[list[dict[str, np.ndarray]], list[int], list[str]]:
    """Cases of three options. The first shows in one number of `near` alone, the others in `shape`."""
    rng = np.random.default_rng(seed)
    cases, labels = [], []
    for i in range(n):
        label = 0 if i % 8 == 0 else 1 + i % 2
        blocks = {name: rng.normal(size=WIDTHS[name]).astype(np.float32) for name in BLOCKS}
        blocks["near"][0] = -3.0 if label == 0 else 1.0
        blocks["shape"][0] += 3.0 * (label == 2)
        cases.append(blocks)
        labels.append(label)
    return cases, labels, [str(i) for i in range(n)]


@pytest.fixture(scope="module")
def fitted() -> FittedDecision:
    return fit_decision(*drawn(160), judged_against=True)


def test_an_option_that_one_number_tells_is_found_among_many_that_do_not(fitted: FittedDecision) -> None:
    cases, labels, _ = drawn(160, seed=1)
    found = [int(np.argmax(fitted.probabilities(case, 3))) for case in cases]
    rare = [f == 0 for f, label in zip(found, labels, strict=True) if label == 0]
    assert np.mean(rare) > 0.9
    assert np.mean(np.array(found) == labels) > 0.85


def test_probabilities_sum_to_one_and_leave_an_unseen_option_a_little(fitted: FittedDecision) -> None:
    shares = fitted.probabilities(drawn(1, seed=2)[0][0], 4)
    assert shares.sum() == pytest.approx(1.0)
    assert 0 < shares[3] < 0.05


def test_what_is_exported_decides_the_same(fitted: FittedDecision) -> None:
    assert isinstance(fitted, OneVsRest)
    again = load_decision(fitted.to_arrays())
    case = drawn(1, seed=3)[0][0]
    assert np.array_equal(again.probabilities(case, 3), fitted.probabilities(case, 3))


def test_a_missing_head_is_refused(fitted: FittedDecision) -> None:
    arrays = {name: array for name, array in fitted.to_arrays().items() if not name.startswith("1_")}
    with pytest.raises(KeyError):
        load_decision(arrays)


@pytest.mark.parametrize(("value", "refused"), [(np.inf, False), (np.nan, True)])
def test_trees_with_an_inner_node_of_one_way_are_taken_over_and_what_is_no_number_is_refused(
    fitted: FittedDecision, value: float, refused: bool
) -> None:
    trees = Trees(np.zeros((2, 3), np.int32), np.full((2, 3), value), np.zeros((2, 4)))
    parts = {**fitted.to_arrays(), **{f"1_{name}": array for name, array in trees.to_arrays().items()}}
    arrays = {f"head.space-head.{name}": array for name, array in parts.items()}
    arrays |= {
        f"space.space.{name}": array for name, array in FeatureSpace.from_cases([Case("why?")]).to_arrays().items()
    }
    with pytest.raises(IntegrityError) if refused else contextlib.nullcontext():
        LocalDecider(shared_embedder()).import_heads(arrays)
