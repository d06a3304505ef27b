"""What a reader is trained on: files, how much of each an epoch takes, and the questions held out."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from optimize.reader.examples import ReadingExample, find_negatives, read_examples, vary
from program.errors import DataError
from program.models.embedded.encoder import MINILM, Embedder

if TYPE_CHECKING:
    from optimize.reader.network import Training
    from program.knowledge.index.build import Advance

LEAST_ANSWERED = 8
"""Questions with an answer, below which nothing is trained: of fewer only themselves would be learned."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file of reading examples, and the share of it that an epoch takes."""

    path: Path
    share: float = 1.0

    @classmethod
    def parse(cls, word: str) -> DataFile:
        """Return the file that `FILE` or `FILE:SHARE` names.

        Raises `DataError` for a share that is not above 0 and at most 1.
        """
        name, colon, told = word.rpartition(":")
        if not colon or Path(word).exists():
            return cls(Path(word))
        try:
            share = float(told)
        except ValueError:
            share = 0.0
        if not 0 < share <= 1:
            mend = "Write FILE:0.5 for half of it an epoch, or FILE for all of it."
            raise DataError(f"{told!r} is no share of {name}.", mend, path=name)
        return cls(Path(name), share)


@dataclass(slots=True)
class TrainingData:
    """The examples of each file, the share that an epoch takes, and the held-out ones."""

    examples: list[list[ReadingExample]]
    shares: list[float]
    held_out: list[ReadingExample] = field(default_factory=list)
    _negatives: list[list[list[ReadingExample]]] = field(default_factory=list)

    @classmethod
    def read(cls, files: Sequence[DataFile], dev: Path | None = None) -> TrainingData:
        """Return the files' questions.

        Raises `DataError` for a file that cannot be read, and where too few questions have an answer.
        """
        found = cls([read_examples(file.path) for file in files], [file.share for file in files])
        answered = sum(bool(one.answers) for file in found.examples for one in file)
        if answered < LEAST_ANSWERED:
            what = f"{answered} questions of these files have an answer, {LEAST_ANSWERED} at least are needed."
            raise DataError(what, "A reader learns from answered questions: give more of them.")
        found.held_out = read_examples(dev) if dev else []
        if dev and not any(one.answers for one in found.held_out):
            raise DataError(f"No question of {dev} has an answer.", "Give --dev some that have.", path=str(dev))
        return found

    def compute_key(self, training: Training) -> str:
        """Return the identity of a training on this data."""
        told = (training, self.shares, self.examples, self.held_out)
        return hashlib.sha256(repr(told).encode()).hexdigest()

    def count_seen(self) -> int:
        """Return how many held-out questions are about a passage trained on."""
        trained = {one.text for file in self.examples for one in file}
        return sum(one.text in trained for one in self.held_out)

    def find_negatives(self, advance: Advance) -> None:
        """Look for passages that do not answer; `draw_epoch` needs them."""
        embedder, of = Embedder(MINILM), len(self.examples)
        for n, file in enumerate(self.examples):
            advance(n, of)
            self._negatives.append(find_negatives(file, embedder))

    def draw_epoch(self, random: Random) -> list[ReadingExample]:
        """Return an epoch's examples, varied, in random order."""
        chosen: list[ReadingExample] = []
        for file, others, share in zip(self.examples, self._negatives, self.shares, strict=True):
            places = sorted(random.sample(range(len(file)), max(1, round(share * len(file)))))
            chosen += vary([file[n] for n in places], [others[n] for n in places], random)
        random.shuffle(chosen)
        return chosen
