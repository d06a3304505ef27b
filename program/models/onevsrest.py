"""A decision of a few options as one head an option against the rest: each has the blocks that tell it best.

What sets one option apart may be two numbers (nothing found is near: no look-up is needed), and another the
whole build of the question; a single regression over all blocks drowns the first in the second.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from program.models.heads import Blocks, Head, fit
from program.models.regression import MANY_CASES, MANY_CLASSES, Array, Logits


@dataclass(frozen=True)
class OneVsRest:
    """`heads[i]` tells option `classes[i]` from all others; `n` is the number of cases they were fitted on."""

    heads: tuple[Head, ...]
    classes: NDArray[np.int32]
    n: int

    def probabilities(self, blocks: Blocks, options: int) -> Logits:
        """Shape (options,), summing to 1: each head's probability over the sum of all. An option that no case
        showed keeps a small share."""
        floor = 0.5 / (self.n + 2)
        shares = np.full(options, floor)
        shares[self.classes] = [max(float(head.probabilities(blocks, 2)[1]), floor) for head in self.heads]
        return np.asarray(shares / shares.sum())

    def arrays(self) -> dict[str, Array]:
        """Everything it is, by name: each head's arrays behind its place."""
        named = {f"{i}_{name}": array for i, head in enumerate(self.heads) for name, array in head.arrays().items()}
        return {"one_vs_rest": self.classes, "cases": np.array([self.n], np.int32), **named}

    @classmethod
    def from_arrays(cls, arrays: dict[str, Array]) -> OneVsRest:
        """What `arrays` came from. Raises KeyError or ValueError when they do not fit together."""
        classes = arrays["one_vs_rest"]
        parts: list[dict[str, Array]] = [{} for _ in classes]
        for name, array in arrays.items():
            place, _, part = name.partition("_")
            if place.isdigit():
                parts[int(place)][part] = array
        return cls(tuple(Head.from_arrays(part) for part in parts), classes, int(arrays["cases"][0]))


Fitted = Head | OneVsRest


def fit_decision(cases: Sequence[Blocks], labels: Sequence[int], groups: Sequence[str], judged_against: bool) -> Fitted:
    """What decides among the options that `labels` name: one head, or one an option when they are few but
    more than two and something is judged against evidence."""
    classes = np.unique(np.asarray(labels, np.int32))
    if not (judged_against and 2 < len(classes) <= MANY_CLASSES and len(cases) <= MANY_CASES):
        return fit(cases, labels, groups, judged_against)
    heads = tuple(fit(cases, [int(label == c) for label in labels], groups, judged_against) for c in classes)
    return OneVsRest(heads, classes, len(cases))


def from_arrays(arrays: dict[str, Array]) -> Fitted:
    """The fitted decision that `arrays` came from. Raises KeyError or ValueError when they do not fit together."""
    return OneVsRest.from_arrays(arrays) if "one_vs_rest" in arrays else Head.from_arrays(arrays)
