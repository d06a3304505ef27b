"""Small boosted trees held as three arrays, for what a sum of features cannot say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from program.models.reading import Vector

Array = NDArray[Any]
COUNT = 80
RATE = 0.05
INNER = ((), (0,), (1,))  # the turns that lead to the three inner nodes of a tree of depth two


@dataclass(frozen=True)
class Trees:
    """Trees of depth two. `feature` and `threshold` are (trees, 3): the root, its left, its right node.

    A case turns left where its feature is at most the threshold; `leaf` is (trees, 4), left to right, what
    each tree adds to the log odds. `feature` counts the columns of what the trees were grown on.
    """

    feature: NDArray[np.int32]
    threshold: NDArray[np.float64]
    leaf: NDArray[np.float64]

    def logits(self, x: Vector) -> NDArray[np.float64]:
        """Shape (n,) for rows of shape (n, columns)."""
        trees = np.arange(len(self.leaf))
        right = x[:, self.feature[:, 0]] > self.threshold[:, 0]
        node = 1 + right.astype(np.int64)
        values = x[np.arange(len(x))[:, None], self.feature[trees, node]]
        further = values > self.threshold[trees, node]
        return np.asarray(self.leaf[trees, 2 * right + further].sum(1))

    def arrays(self) -> dict[str, Array]:
        return {"tree_feature": self.feature, "tree_threshold": self.threshold, "tree_leaf": self.leaf}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array], width: int) -> Trees | None:
        """The trees that `arrays` hold, or None when they hold none. Raises ValueError when they do not fit."""
        if "tree_leaf" not in arrays:
            return None
        found = cls(arrays["tree_feature"], arrays["tree_threshold"], arrays["tree_leaf"])
        count = len(found.leaf)
        shapes = (found.feature.shape, found.threshold.shape, found.leaf.shape)
        if shapes != ((count, 3), (count, 3), (count, 4)) or not 0 <= found.feature.max(initial=0) < width:
            raise ValueError("tree shapes differ")
        return found


def grow(x: Vector, y: Array, columns: Sequence[int]) -> Trees:
    """Stochastic gradient boosting (Friedman 2002) for y in {0, 1} on some columns of x; the seed is fixed."""
    from sklearn import config_context
    from sklearn.ensemble import GradientBoostingClassifier

    place = np.asarray(columns, np.int32)
    model = GradientBoostingClassifier(
        n_estimators=COUNT, learning_rate=RATE, max_depth=2, subsample=0.5, max_features=0.3,
        min_samples_leaf=8, random_state=0,
    )  # fmt: skip
    with config_context(
        assume_finite=True, skip_parameter_validation=True
    ):  # for each of COUNT trees: a sixth of it all
        model.fit(x[:, place], y)
    feature = np.zeros((COUNT, 3), np.int32)
    threshold = np.full((COUNT, 3), np.inf)
    leaf = np.zeros((COUNT, 4))
    for n, (one,) in enumerate(model.estimators_):
        tree = one.tree_
        for at, turns in enumerate(INNER):
            node = _follow(tree, turns)
            if tree.children_left[node] >= 0:
                feature[n, at], threshold[n, at] = place[tree.feature[node]], tree.threshold[node]
        leaf[n] = [RATE * tree.value[_follow(tree, turns)].item() for turns in ((0, 0), (0, 1), (1, 0), (1, 1))]
    share = float(np.mean(y))
    leaf[0] += np.log(share / (1 - share))  # where boosting starts
    return Trees(feature, threshold, leaf)


def _follow(tree: Any, turns: Sequence[int]) -> int:
    """The node reached from the root, or the leaf at which the way ends early."""
    node = 0
    for turn in turns:
        onward = (tree.children_left, tree.children_right)[turn][node]
        node = int(onward) if onward >= 0 else node
    return node
