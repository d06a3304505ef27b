"""Which of the names of an index each text holds, looked for again only where the answer may be another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from program.knowledge.bags import rows_of, taken
from program.knowledge.mentions import Key, Lexicon
from program.knowledge.spelling import Spelling

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Mentioned:
    """Which of the names `keys` the texts of an earlier index held (CSR, a row a text).

    `rows` gives each text of the new index its row there, or -1.
    """

    keys: Sequence[Key]
    mentions: Any
    rows: NDArray[np.int64]


def find_mentions(texts: Sequence[str], keys: Sequence[Key], spelling: Spelling, earlier: Mentioned | None) -> Any:
    """Which of the names `keys` each text holds: CSR, float32, shape (texts, keys), 1 where it does.

    A text holds other names than before only where it is new, where it held a name that is gone, or where it may
    hold one that has come.
    """
    from scipy.sparse import csr_array

    if earlier is None:
        earlier = Mentioned((), csr_array((0, 0), dtype=np.float32), np.full(len(texts), -1, np.int64))
    number = {name: n for n, name in enumerate(keys)}
    renumbered = np.array([number.get(name, -1) for name in earlier.keys], np.int32)
    starts, places = earlier.mentions.indptr, renumbered[earlier.mentions.indices]
    lost = np.zeros(len(starts) - 1, bool)
    lost[rows_of(starts, places < 0)] = True
    again = earlier.rows < 0
    again[~again] = lost[earlier.rows[~again]]
    again[spelling.rows_with(list(number.keys() - set(earlier.keys)))] = True

    lexicon = Lexicon(keys)
    fresh = [sorted(set(lexicon.find(texts[row]))) for row in np.flatnonzero(again).tolist()]
    ends = starts[-1] + np.cumsum([len(row) for row in fresh], dtype=np.int64)
    numbered_on = len(starts) - 1 + np.cumsum(again) - 1
    positions, begins = taken(np.concatenate((starts, ends)), np.where(again, numbered_on, earlier.rows))
    indices = np.concatenate((places, np.array([n for row in fresh for n in row], np.int32)))[positions]
    found = csr_array((np.ones(len(indices), np.float32), indices, begins), shape=(len(texts), len(keys)))
    found.sort_indices()
    return found
