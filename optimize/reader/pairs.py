"""Questions with passages as token ids, and as padded batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import torch
from tokenizers import Tokenizer
from torch.nn.utils.rnn import pad_sequence

from optimize.reader.examples import ReadingExample
from program.models.embedded.encoder import minilm_folder
from program.models.embedded.reader import PAIR_TOKENS, SEP, join_head

POOL = 40  # batches whose examples are sorted by length together
USUAL_TOKENS = 160  # of an example, about

Batch = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Encoded:
    """A question and a window of a passage as token ids; `spans` are (first, last) tokens of answers."""

    ids: tuple[int, ...]
    text_at: int  # where the passage's text begins; what is before it is never an answer
    spans: tuple[tuple[int, int], ...]


class PairEncoder:
    """Encodes questions with passages as `[CLS] question [SEP] title [SEP] text [SEP]`."""

    def __init__(self) -> None:
        self._tokenizer: Tokenizer = Tokenizer.from_file(str(minilm_folder() / "tokenizer.json"))
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self._kept: dict[str, Any] = {}

    def encode(self, example: ReadingExample, random: Random) -> Encoded:
        """Return the pair, of a long text a window around an answer or the beginning."""
        question, title, text = (self._read(part) for part in (example.question, example.title, example.text))
        head = join_head(question.ids, title.ids)
        room = PAIR_TOKENS - len(head) - 1
        spans = [found for start, end in example.spans() if (found := _tokens_of(text.offsets, start, end))]
        start = _choose_window(spans, len(text.ids), room, random) if spans and len(text.ids) > room else 0
        shown = text.ids[start : start + room]
        at = len(head) - start
        inside = tuple((a + at, b + at) for a, b in spans if start <= a and b < start + room)
        return Encoded((*head, *shown, SEP), len(head), inside)

    def _read(self, text: str) -> Any:
        if text not in self._kept:
            self._kept[text] = self._tokenizer.encode(text, add_special_tokens=False)
        return self._kept[text]


def _tokens_of(offsets: Sequence[tuple[int, int]], start: int, end: int) -> tuple[int, int] | None:
    inside = [n for n, (a, b) in enumerate(offsets) if a < end and b > start]
    return (inside[0], inside[-1]) if inside else None


def _choose_window(spans: Sequence[tuple[int, int]], length: int, room: int, random: Random) -> int:
    """Return where a window of a long text begins: anywhere that holds the whole of an answer."""
    first, last = random.choice(spans)
    if last - first >= room:
        return first
    return min(max(0, random.randint(last - room + 1, first)), length - room)


def make_batches(encoded: Sequence[Encoded], tokens: int, random: Random) -> list[list[Encoded]]:
    """Return batches of about so many tokens, of like lengths, in random order."""
    batches: list[list[Encoded]] = []
    size = POOL * max(1, tokens // USUAL_TOKENS)
    for at in range(0, len(encoded), size):
        batch: list[Encoded] = []
        for one in sorted(encoded[at : at + size], key=lambda one: len(one.ids)):
            if batch and (len(batch) + 1) * len(one.ids) > tokens:
                batches.append(batch)
                batch = []
            batch.append(one)
        batches.append(batch)
    random.shuffle(batches)
    return batches


def collate(batch: Sequence[Encoded]) -> Batch:
    """Return padded tensors of shape (pairs, tokens), and each pair's spans.

    `open` marks the places where an answer may stand: the text's, and the first one, which says that there is none.
    """
    ids = pad_sequence([torch.tensor(one.ids) for one in batch], batch_first=True)
    places = torch.arange(ids.shape[1])
    lengths = torch.tensor([[len(one.ids)] for one in batch])
    questions = torch.tensor([[one.ids.index(SEP)] for one in batch])  # where they end
    texts = torch.tensor([[one.text_at] for one in batch])
    mask = places < lengths
    open = ((places >= texts) & (places < lengths - 1)) | (places == 0)
    masks = {"mask": mask, "types": mask & (places > questions), "open": open}
    return {"ids": ids, **{name: one.long() for name, one in masks.items()}, "spans": [one.spans for one in batch]}
