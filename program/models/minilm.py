"""all-MiniLM-L6-v2 run with onnxruntime: a text's vector is the same to the bit whatever it is embedded with.

The usual library takes seconds to import, and pads texts of different lengths into one batch, which moves the last
bits of each. Here only texts of one length share a batch, and each product is one thread's. `minilm.onnx` holds the
graph without its weights: these are given by name, as `model.safetensors` has them, when a session is opened.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

GRAPH = Path(__file__).with_name("minilm.onnx")
DIMENSION = 384
HEADS = 12
LONGEST = 256  # tokens read of a text
TOKENS = 512  # of a batch, about
RECENT = 64  # texts run by themselves whose states are kept, of 0.4 MB each at most
THREADS = "OMP_NUM_THREADS"
UNUSED = ("pooler.", "embeddings.position_ids")  # weights that no sentence's vector is made with

Given = TypeVar("Given")
Found = TypeVar("Found")


class MiniLM:
    """The model of a folder: `tokenizer.json` and `model.safetensors`. Safe from many threads.

    A sentence encoder of six BERT layers (Wang et al. 2020, arXiv 2002.10957), mean pooling, unit length. English;
    what follows the 256th token is not read.
    """

    def __init__(self, folder: Path) -> None:
        from tokenizers import Tokenizer

        self._session = _session(folder / "model.safetensors")
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(LONGEST)
        self._states = lru_cache(maxsize=RECENT)(self._run_alone)

    dimension = DIMENSION
    room = LONGEST - 2

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Shape (len(texts), 384), float32, rows of unit length; batches are spread over the processor's cores."""
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
        return [(one.tokens[1:-1], one.offsets[1:-1], some[1:-1]) for one, some in zip(read, states, strict=True)]

    def _batch(self, rows: Sequence[Sequence[int]]) -> NDArray[np.float32]:
        """The vectors of texts of one length."""
        states = self._states(tuple(rows[0]))[None] if len(rows) == 1 else self._run(rows)
        means = states.mean(1)
        vectors: NDArray[np.float32] = means / np.linalg.norm(means, axis=1, keepdims=True)
        return vectors

    def _run_alone(self, row: tuple[int, ...]) -> NDArray[np.float32]:
        """The states (tokens, 384) of one text; the last few are kept, for a question is embedded for a search and
        read for an answer."""
        states: NDArray[np.float32] = self._run([row])[0]
        states.flags.writeable = False
        return states

    def _run(self, rows: Sequence[Sequence[int]]) -> NDArray[np.float32]:
        """The states (texts, tokens, 384) of texts of one length."""
        count, length = len(rows), len(rows[0])
        given = {
            "ids": np.array(rows, np.int64),
            "places": np.arange(length),
            "heads": np.array([count, length, HEADS, DIMENSION // HEADS]),
        }
        states: NDArray[np.float32] = self._session.run(["states"], given)[0].reshape(count, length, DIMENSION)
        return states


def _session(weights: Path) -> Any:
    """The graph with these weights, which it reads where they are. No thread shares a product with another."""
    import onnxruntime
    from safetensors.numpy import load_file

    read = {name: value for name, value in load_file(weights).items() if not name.startswith(UNUSED)}
    named = {name: onnxruntime.OrtValue.ortvalue_from_numpy(value) for name, value in read.items()}
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.add_external_initializers(list(named), list(named.values()))
    return onnxruntime.InferenceSession(GRAPH.read_bytes(), options, providers=["CPUExecutionProvider"])


def _parts(places: Sequence[int], size: int) -> Iterator[list[int]]:
    return (list(places[at : at + size]) for at in range(0, len(places), size))


def _readable(text: str) -> str:
    """The text without half characters of UTF-16, which no tokenizer takes."""
    return text.encode("utf-8", "replace").decode()


def _spread(work: Callable[[Given], Found], parts: Sequence[Given]) -> list[Found]:
    """What `work` makes of each part, on as many threads as THREADS says, else on every core."""
    used = min(threads(), len(parts))
    if used < 2:
        return [work(part) for part in parts]
    with ThreadPoolExecutor(used) as pool:
        return list(pool.map(work, parts))


def threads() -> int:
    """On how many threads texts are embedded."""
    told = os.environ.get(THREADS, "").partition(",")[0]
    if told.isdecimal() and int(told):
        return int(told)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
