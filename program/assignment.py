"""Which arm a unit is in: a pure function of experiment, unit and weights, the same in every process and language."""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import accumulate

ARM = "arm"
INCLUDE = "include"
_WHOLE = 2**64


def draw(experiment: str, salt: str, unit: str) -> int:
    """A number in [0, 2**64): the first eight bytes, big-endian, of SHA-256 of `experiment NUL salt NUL unit`."""
    digest = hashlib.sha256(f"{experiment}\0{salt}\0{unit}".encode(errors="surrogatepass")).digest()
    return int.from_bytes(digest[:8], "big")


@dataclass(frozen=True, slots=True)
class Assignment:
    """Sticky arms for one experiment.

    `weights` are positive and need not add up to anything; `include` in (0, 1] is the share of units that take
    part. Inclusion and arm are drawn with different salts, so neither tells anything about the other.
    """

    experiment: str
    weights: tuple[float, ...]
    include: float = 1.0
    _bounds: Sequence[int] = field(init=False, repr=False)
    _included: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        parts = [Fraction(str(weight)) for weight in self.weights]
        object.__setattr__(self, "_bounds", [int(_WHOLE * upto / sum(parts)) for upto in accumulate(parts)])
        object.__setattr__(self, "_included", int(_WHOLE * Fraction(str(self.include))))

    def includes(self, unit: str) -> bool:
        """Whether the unit takes part at all."""
        return self._included == _WHOLE or draw(self.experiment, INCLUDE, unit) < self._included

    def arm(self, unit: str) -> int:
        """The index of the unit's arm."""
        return bisect_right(self._bounds, draw(self.experiment, ARM, unit))
