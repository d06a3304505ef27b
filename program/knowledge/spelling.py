"""What passages are made of, word by word: kept with an index, so that only texts that changed are read again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from program.knowledge.bags import Bags, GrowingBags
from program.knowledge.keywords import words
from program.knowledge.mentions import Key, spelt
from program.knowledge.source import Passage, embedding_text, keyword_text

if TYPE_CHECKING:
    from numpy.typing import NDArray

VERSION = 1
"""Of how texts are split into terms and names, and how names are found: raise it when the same text gives others."""

LEAST = 2
"""Passages that must share a name for it to join them, unless some passage is about it."""

PARTS = ("terms", "names", "written")


@dataclass(frozen=True, slots=True)
class Spelling:
    """A row a passage:

    - `terms`: what keyword search looks for, and how often it stands there;
    - `names`: what spelling alone shows to be a name (words parted by a space), 1 each;
    - `written`: words as names are compared, 1 where the passage writes the word small somewhere, or 0.
    """

    terms: Bags
    names: Bags
    written: Bags

    @classmethod
    def of(cls, passages: Iterable[Passage], keep_stop_words: bool = False, stem: bool = True) -> Spelling:
        """The spelling of these passages, rows as in the sequence."""
        terms, names, written = GrowingBags(), GrowingBags(), GrowingBags()
        for passage in passages:
            terms.add(Counter(words(keyword_text(passage), keep_stop_words, stem)))
            found, small = spelt(embedding_text(passage))
            names.add({" ".join(name): 1 for name in sorted(found)})
            written.add(small)
        return cls(terms.bags(), names.bags(), written.bags())

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Spelling:
        """The spelling that `arrays` were taken from."""
        return cls(*(Bags.from_arrays(arrays, part) for part in PARTS))

    def arrays(self) -> dict[str, NDArray[Any]]:
        """All of it as plain arrays."""
        return {name: values for part in PARTS for name, values in getattr(self, part).arrays(part).items()}

    def followed_by(self, others: Spelling, rows: NDArray[np.int64]) -> Spelling:
        """Those `rows` of these passages and the others, which are numbered on from the last of these."""
        return Spelling(*(getattr(self, part).followed_by(getattr(others, part), rows) for part in PARTS))

    def shared(self) -> set[Key]:
        """The names that at least LEAST passages hold; a single word only where no more passages write it small."""
        small = dict(zip(self.written.words, self.written.sums().tolist(), strict=True))
        counts = zip(self.names.words, self.names.sums().tolist(), strict=True)
        return {tuple(name.split(" ")) for name, count in counts if count >= max(LEAST, small.get(name, 0))}

    def rows_with(self, names: Sequence[Key]) -> NDArray[np.int64]:
        """The passages that may hold one of these names, ascending: all that have the rarest of its words."""
        number = {word: at for at, word in enumerate(self.written.words)}
        holders = np.bincount(self.written.places, minlength=len(number)).tolist()
        known = [[number[word] for word in name] for name in names if all(word in number for word in name)]
        return self.written.rows_with(min(name, key=holders.__getitem__) for name in known)
