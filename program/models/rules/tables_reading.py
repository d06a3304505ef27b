"""A question's words, and which of them a slot has accounted for."""

from __future__ import annotations

from collections.abc import Iterator

from program.models.rules.tables_words import Word, words

STRONG = 1.0


class Reading:
    """The words of one question while one table is tried on it.

    `used` maps a word's index to how surely its slot is meant (0..1); `anchors` counts slots tied to a name or value
    of the database rather than to the language.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.words: tuple[Word, ...] = words(text)
        self.used: dict[int, float] = {}
        self.anchors = 0

    def free(self) -> Iterator[tuple[int, Word]]:
        """Index and word of each one not yet used."""
        return ((i, w) for i, w in enumerate(self.words) if i not in self.used)

    def is_free(self, start: int, stop: int) -> bool:
        """True when no word from `start` to before `stop` is used, and there is one."""
        return start < stop and self.used.keys().isdisjoint(range(start, stop))

    def use(self, start: int, stop: int, weight: float = STRONG, strong: bool = False) -> None:
        """Marks words as accounted for; `strong` when they name something of the database."""
        for i in range(start, stop):
            self.used[i] = max(weight, self.used.get(i, 0.0))
        self.anchors += strong

    def index(self, at: int) -> int:
        """The index of the first word that ends after character `at`; the number of words past the last."""
        return next((i for i, w in enumerate(self.words) if w.end > at), len(self.words))

    def coverage(self) -> float:
        """The share of content words accounted for, 0..1; 0 when there is none."""
        content = [i for i, w in enumerate(self.words) if w.content]
        return sum(self.used.get(i, 0.0) for i in content) / len(content) if content else 0.0

    def misses_a_name(self) -> bool:
        """True when a name or a figure of the question is not accounted for: the rest means little without it."""
        return any(w.content and self._is_name(i) for i, w in self.free())

    def _is_name(self, at: int) -> bool:
        """True for a figure, and for a capital inside a sentence."""
        word = self.words[at]
        inside = at > 0 and self.text[: word.start].rstrip(" \"'“‘(")[-1:] not in (".", "?", "!", ":", "\n")
        return any(c.isdigit() for c in word.text) or (inside and word.text[0].isupper())
