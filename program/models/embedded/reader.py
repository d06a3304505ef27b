"""The local reader: where a passage answers a question, and whether it does at all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson

from ragc.errors import ModelError
from ragc.models.embedded.encoder import encodable, map_threaded, minilm_folder, open_session, open_tokenizer
from ragc.storage import Remembered, digest_file

if TYPE_CHECKING:
    from numpy.typing import NDArray

READER = "local/reader"
FOLDER = Path(__file__).parent.parent / "reader"
FILE, CARD = "reader.onnx", "reader.json"
MEND = "Train one with `ragc reader train DATA... --out FOLDER`, or leave [models] reader out to use the packaged one."
QUESTION_TOKENS, TITLE_TOKENS, PAIR_TOKENS = 64, 16, 256  # read at most, at once
STRIDE = 96  # tokens that two windows of a long passage share
SPAN_TOKENS = 30  # of an answer at most
CLS, SEP = 101, 102
PRIORS = ("statement", "follows_on")  # names of heads in a card
READINGS_KEPT = 16_384  # in memory: some 2 kB each

TitledText = tuple[str, str]  # the title and the text of what is read


@dataclass(frozen=True, eq=False)
class Reading:
    """What the reader makes of one passage for one question. Scores are logits; above 0 speaks for an answer."""

    answers: float  # whether the passage answers the question
    offsets: NDArray[np.int32]  # where each token of the text begins and ends, in characters; shape (tokens, 2)
    logits: NDArray[np.float32]
    """Of each token as the first and as the last of the answer, over that there is none; shape (2, tokens)."""

    @cached_property
    def span(self) -> tuple[int, int]:
        """The best answer's first and last character in the text, the last left out; (0, 0) in an empty text."""
        return self.best_within(0, None)[1]

    @cached_property
    def margin(self) -> float:
        """The best answer's score over that of no answer."""
        return self.best_within(0, None)[0]

    def best_within(self, start: int, end: int | None) -> tuple[float, tuple[int, int]]:
        """Return the score and place of the best answer between two characters."""
        low = int(np.searchsorted(self.offsets[:, 0], start))
        high = len(self.offsets) if end is None else int(np.searchsorted(self.offsets[:, 1], end, side="right"))
        if high <= low:
            return FLOOR, (start, start)
        first, last = self.logits[0, low:high], self.logits[1, low:high]
        best, place = FLOOR, (0, 0)
        for width in range(min(SPAN_TOKENS, high - low)):
            scores = first[: len(first) - width] + last[width:]
            at = int(scores.argmax())
            if scores[at] > best:
                best, place = float(scores[at]), (low + at, low + at + width)
        return best, (int(self.offsets[place[0], 0]), int(self.offsets[place[1], 1]))

    def to_bytes(self) -> bytes:
        """Return all of it, for `from_bytes`."""
        return np.float32(self.answers).tobytes() + self.offsets.tobytes() + self.logits.tobytes()

    @classmethod
    def from_bytes(cls, kept: bytes) -> Reading:
        """Return the reading that `to_bytes` wrote."""
        count = (len(kept) - 4) // 16
        offsets = np.frombuffer(kept, np.int32, 2 * count, 4).reshape(count, 2)
        logits = np.frombuffer(kept, np.float32, 2 * count, 4 + 8 * count).reshape(2, count)
        return cls(float(np.frombuffer(kept, np.float32, 1)[0]), offsets, logits)


FLOOR = -40.0  # the score of an answer where there is no token


class Reader:
    """Reads passages for questions, and keeps what it read. Safe from many threads; loads its model when needed.

    An encoder of six BERT layers with a head for the answer's span and one for whether there is any (Devlin et al.
    2019, arXiv 1810.04805, section 4.3), as `ragc reader train` leaves it. English. Each passage is read by itself,
    so its scores do not depend on what is read beside it; a long one is read in windows.
    """

    def __init__(self, folder: Path = FOLDER) -> None:
        self.folder = folder
        self._kept: Remembered[tuple[str, TitledText], Reading] = Remembered(
            READINGS_KEPT, Reading.to_bytes, Reading.from_bytes, lambda pair: "\0".join((pair[0], *pair[1]))
        )

    def __deepcopy__(self, memo: dict[int, Any]) -> Reader:
        return self

    @property
    def name(self) -> str:
        """The name by which `shared_reader` gives it."""
        return "" if self.folder == FOLDER else str(self.folder)

    @cached_property
    def digest(self) -> str:
        """Identity of the weights.

        Raises `ModelError` for a folder without a card, or with weights that are not the card's.
        """
        try:
            told = str(orjson.loads((self.folder / CARD).read_bytes())["sha256"])
            found = digest_file(self.folder / FILE)
        except (OSError, orjson.JSONDecodeError, KeyError, TypeError) as error:
            raise ModelError(f"{self.folder} holds no reader ({error}).", MEND, path=str(self.folder)) from error
        if told != found:
            raise ModelError(f"{self.folder / FILE} is not the file that {CARD} tells of.", MEND, path=str(self.folder))
        return f"sha256:{found}"

    @cached_property
    def priors(self) -> dict[str, dict[str, NDArray[Any]]]:
        """The arrays of two heads, by name.

        `statement` tells how probably a piece states what is asked, `follows_on` how probably a question needs the
        conversation before it. They are fitted on public files and stand in the card; a reader without one has the
        packaged reader's.
        """
        own, packaged = (orjson.loads((folder / CARD).read_bytes()) for folder in (self.folder, FOLDER))
        kinds = {"blocks": np.uint8, "classes": np.int32, "n": np.int32}
        return {
            name: {part: np.array(array, kinds.get(part, np.float32)) for part, array in (packaged | own)[name].items()}
            for name in PRIORS
        }

    def remember_in(self, folder: Path) -> None:
        """Keep readings in a file there, too, for other processes."""
        self._kept.use_file(folder, "read", self.digest)

    def read(self, question: str, passages: Sequence[TitledText]) -> list[Reading]:
        """Return what each passage, a title and a text, says to the question."""
        return self.read_pairs([(question, passage) for passage in passages])

    def read_pairs(self, pairs: Sequence[tuple[str, TitledText]]) -> list[Reading]:
        """Return a reading for each question and passage."""
        return self._kept.get(pairs, lambda new: _load(self.folder, self.digest).read(new))


def join_head(question: Sequence[int], title: Sequence[int]) -> list[int]:
    """Return the tokens before a passage's text: `[CLS] question [SEP] title [SEP]`."""
    return [CLS, *question[:QUESTION_TOKENS], SEP, *title[:TITLE_TOKENS], SEP]


@lru_cache(maxsize=4)
def shared_reader(folder: str = "") -> Reader:
    """Return the reader of that folder, or the packaged one, loaded once a process."""
    return Reader(Path(folder) if folder else FOLDER)


class _Model:
    """The reader's graph with the word embeddings of the MiniLM package."""

    def __init__(self, folder: Path) -> None:
        from safetensors import safe_open

        self._session = open_session(folder / FILE)
        base = minilm_folder()
        with safe_open(base / "model.safetensors", "numpy") as weights:
            self._words = weights.get_tensor("embeddings.word_embeddings.weight")
        self._tokenizer = open_tokenizer(base)
        self._encode = lru_cache(maxsize=1024)(self._encode_text)

    def read(self, pairs: Sequence[tuple[str, TitledText]]) -> list[Reading]:
        return map_threaded(self._read_one, pairs)

    def _encode_text(self, text: str) -> tuple[list[int], NDArray[np.int32]]:
        read = self._tokenizer.encode(encodable(text), add_special_tokens=False)
        return read.ids, np.array(read.offsets, np.int32).reshape(-1, 2)

    def _read_one(self, pair: tuple[str, TitledText]) -> Reading:
        question, (title, text) = pair
        ids, offsets = self._encode(text)
        head = join_head(self._encode(question)[0], self._encode(title)[0])
        room = PAIR_TOKENS - len(head) - 1
        logits = np.full((2, len(ids)), FLOOR / 2, np.float32)
        answers = FLOOR
        for at in range(0, max(len(ids) - STRIDE, 1) if ids else 0, room - STRIDE):
            shown = ids[at : at + room]
            told, found = self._run(head, shown)
            answers = max(answers, told)
            logits[:, at : at + room] = np.maximum(logits[:, at : at + room], found)
        return Reading(float(np.float32(round(answers, 4))), offsets, logits)  # as it is read from a file again

    def _run(self, head: list[int], shown: list[int]) -> tuple[float, NDArray[np.float32]]:
        row = [*head, *shown, SEP]
        types, places = np.ones((1, len(row)), np.int64), np.zeros((1, len(row)), np.int64)
        types[0, : head.index(SEP) + 1] = 0
        places[0, [0, *range(len(head), len(row) - 1)]] = 1
        given = {"words": self._words[row][None], "types": types, "open": places}
        start, end, answers = self._session.run(["start", "end", "answers"], given)
        both = np.stack([start[0] - start[0, 0], end[0] - end[0, 0]])
        return float(answers[0]), both[:, len(head) : len(head) + len(shown)]


@lru_cache(maxsize=2)
def _load(folder: Path, digest: str) -> _Model:
    """Return the model of a folder, whose digest was checked."""
    try:
        return _Model(folder)
    except Exception as error:  # whatever onnxruntime raises of a file that is no graph
        raise ModelError(f"The reader in {folder} cannot be loaded: {error}.", MEND, path=str(folder)) from error
