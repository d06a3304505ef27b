"""all-MiniLM-L6-v2 run with torch alone: a text's vector is the same to the bit whatever it is embedded with.

The usual library takes seconds to import, and pads texts of different lengths into one batch, which moves the last
bits of each. Here only texts of one length share a batch, and no batch is so small that another kernel adds it up.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

DIMENSION = 384
HEADS = 12
LAYERS = 6
LONGEST = 256  # tokens read of a text
TOKENS = 1024  # of a batch, about
RECENT = 64  # texts run by themselves whose states are kept, of 0.4 MB each at most
FEWEST = 32  # tokens of a batch: matrices of fewer than 16 rows are multiplied in another order
EPSILON = 1e-12

_ONE_THREAD = threading.Lock()

Given = TypeVar("Given")
Found = TypeVar("Found")


class MiniLM:
    """The model of a folder: `tokenizer.json` and `model.safetensors`. Safe from many threads.

    A sentence encoder of six BERT layers (Wang et al. 2020, arXiv 2002.10957), mean pooling, unit length. English;
    what follows the 256th token is not read.
    """

    def __init__(self, folder: Path) -> None:
        from safetensors.torch import load_file
        from tokenizers import Tokenizer

        self._weights = load_file(folder / "model.safetensors")
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(LONGEST)
        self._states = lru_cache(maxsize=RECENT)(self._run_alone)

    dimension = DIMENSION
    room = LONGEST - 2

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Shape (len(texts), 384), float32, rows of unit length; batches are spread over torch's threads."""
        rows = [self._tokenizer.encode(_readable(text.strip())).ids for text in texts]
        lengths: dict[int, list[int]] = defaultdict(list)
        for at, row in enumerate(rows):
            lengths[len(row)].append(at)
        batches = [part for length, places in lengths.items() for part in _parts(places, max(1, TOKENS // length))]
        found = np.zeros((len(texts), DIMENSION), np.float32)
        vectors = _spread(self._batch, [[rows[at] for at in batch] for batch in batches])
        for batch, some in zip(batches, vectors, strict=True):
            found[batch] = some
        return found

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Where each of the first 256 tokens of a text begins and ends."""
        return list(self._tokenizer.encode(_readable(text), add_special_tokens=False).offsets)

    def token_vectors(self, texts: Sequence[str]) -> list[tuple[list[str], list[tuple[int, int]], NDArray[np.float32]]]:
        """Of each text the names, the places and the vectors (tokens, 384), of any length, of its first 254 tokens."""
        read = [self._tokenizer.encode(_readable(text)) for text in texts]
        states = _spread(self._states, [tuple(one.ids) for one in read])
        return [
            (one.tokens[1:-1], one.offsets[1:-1], some[1:-1].numpy()) for one, some in zip(read, states, strict=True)
        ]

    def _batch(self, rows: Sequence[Sequence[int]]) -> NDArray[np.float32]:
        """The vectors of texts of one length."""
        from torch.nn import functional as nn

        states = self._states(tuple(rows[0]))[None] if len(rows) == 1 else self._run(rows)
        vectors: NDArray[np.float32] = nn.normalize(states.sum(1) / len(rows[0]), dim=1).numpy()
        return vectors

    def _run_alone(self, row: tuple[int, ...]) -> Any:
        """The states (tokens, 384) of one text; the last few are kept, for a question is embedded for a search and
        read for an answer."""
        return self._run([row])[0]

    def _run(self, rows: Sequence[Sequence[int]]) -> Any:
        """The states (texts, tokens, 384) of texts of one length; a short batch is filled up with repeats."""
        import torch

        repeats = -(-FEWEST // (len(rows) * len(rows[0])))
        with torch.inference_mode():
            return self._forward(torch.tensor([*rows] * repeats))[: len(rows)]

    def _forward(self, ids: Any) -> Any:
        from torch.nn import functional as nn

        count, length = ids.shape
        told = self._weights
        x = nn.embedding(ids, told["embeddings.word_embeddings.weight"])
        x = x + told["embeddings.token_type_embeddings.weight"][0]
        x = self._normal(x + told["embeddings.position_embeddings.weight"][:length], "embeddings")
        for layer in (f"encoder.layer.{n}" for n in range(LAYERS)):
            parts = (self._linear(x, f"{layer}.attention.self.{name}") for name in ("query", "key", "value"))
            heads = [part.view(count, length, HEADS, DIMENSION // HEADS).transpose(1, 2) for part in parts]
            seen = nn.scaled_dot_product_attention(*heads).transpose(1, 2).reshape(count, length, DIMENSION)
            x = self._normal(self._linear(seen, f"{layer}.attention.output.dense") + x, f"{layer}.attention.output")
            wide = nn.gelu(self._linear(x, f"{layer}.intermediate.dense"))
            x = self._normal(self._linear(wide, f"{layer}.output.dense") + x, f"{layer}.output")
        return x

    def _linear(self, x: Any, name: str) -> Any:
        from torch.nn import functional as nn

        return nn.linear(x, self._weights[f"{name}.weight"], self._weights[f"{name}.bias"])

    def _normal(self, x: Any, name: str) -> Any:
        from torch.nn import functional as nn

        weight, bias = self._weights[f"{name}.LayerNorm.weight"], self._weights[f"{name}.LayerNorm.bias"]
        return nn.layer_norm(x, (DIMENSION,), weight, bias, EPSILON)


def _parts(places: Sequence[int], size: int) -> Iterator[list[int]]:
    return (list(places[at : at + size]) for at in range(0, len(places), size))


def _readable(text: str) -> str:
    """The text without half characters of UTF-16, which no tokenizer takes."""
    return text.encode("utf-8", "replace").decode()


def _spread(work: Callable[[Given], Found], parts: Sequence[Given]) -> list[Found]:
    """What `work` makes of each part, on torch's threads."""
    with _one_thread_each() as threads:
        if threads == 1 or len(parts) < 2:
            return [work(part) for part in parts]
        with ThreadPoolExecutor(threads, initializer=_alone) as pool:
            return list(pool.map(work, parts))


def _alone() -> None:
    import torch

    torch.set_num_threads(1)


@contextmanager
def _one_thread_each() -> Iterator[int]:
    """How many threads torch has; while inside, none shares a product with another: they would split its sums."""
    import torch

    with _ONE_THREAD:
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            yield threads
        finally:
            torch.set_num_threads(threads)
