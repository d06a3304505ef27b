"""The passages that name what others are about, as sparse matrices, made by spelling alone."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, diags_array

from ragc.passage import Passage, embedding_text
from ragc.text.words import STOP_WORDS

Key = tuple[str, ...]  # an entity's name as it is compared: words in lower case, without accents or a possessive 's
NAME_SHARE = 0.3  # what a name that two passages share weighs, against one that names what the other is about
MAX_SHARED = 30  # a name in more passages than this joins none of them
MAX_LINKS = 64  # links kept of a passage, the strongest: a graph then grows no faster than its passages
MAX_WORDS = 8  # words that a name may have
MIN_TEXTS = 2  # texts that must share a name for it to join them, unless some text is about it
MATRICES = ("mentions", "about", "stamps", "links")

# A point after an initial or a title (M. Ward, St. Vincent) ends no sentence.
_TOKEN = re.compile(r"\w+(?:['’]\w+)*|(?<!\b[A-Z])(?<!\b(?:St|Dr|Mr|Ms|Jr|Sr|Mt|Ft|vs))(?<!\bMrs)\.|[,!?:;\n]")
_MARKS = frozenset(".,!?:;\n")
_JOINS = frozenset("and or in on at to".split())
_INSIDE = frozenset("of the de la von van der du di da del el al for a".split()) | _JOINS
_CALENDAR = frozenset(
    """january february march april may june july august september october november december
    monday tuesday wednesday thursday friday saturday sunday""".split()
)
_BRACKETS = re.compile(r"\s*\([^)]*\)")
_LEAD = re.compile(r": | – | — | - | \| ")
_DEFINED = re.compile(r"\*\*([^*\n]{3,60})\*\*|[“\"]([^”\"\n]{3,60})[”\"]|`([^`\n]{3,60})`")
_CODE = re.compile(r"\b(?:[A-Za-z]+_\w+|[a-z]+[A-Z]\w+|[A-Z]\w*\d\w*|[A-Z]{2,}[a-z]?\w*)\b")


class Graph:
    """Passages, entities, and what joins them. Safe from many threads.

    Sparse matrices, a row a passage, all float32:

    - `mentions` (passages, entities): 1 where the passage names the entity;
    - `about` (passages, entities): how surely it is about it, by its title and headings; passages of one name share it;
    - `stamps` (passages, entities): 1 where an attribute of the passage is or begins with the entity;
    - `links` (passages, passages): symmetric, from both of these and from shared names, none to itself.
    """

    def __init__(self, keys: Sequence[Key], mentions: Any, about: Any, stamps: Any, links: Any) -> None:
        self.keys = tuple(keys)
        self.mentions = mentions
        self.about = about
        self.stamps = stamps
        self.links = links
        self._shared: dict[tuple[int, int], int | None] = {}

    @classmethod
    def from_passages(cls, passages: Sequence[Passage]) -> Graph:
        """Join these passages, rows as in the sequence."""
        texts = [embedding_text(p) for p in passages]
        titled = [_find_aliases(p.title) for p in passages]
        stamped = [{name for value in p.attributes.values() for name in _find_aliases(value)} for p in passages]
        keys = sorted(_find_shared_names(texts).union(*titled, *stamped))
        number = {name: n for n, name in enumerate(keys)}
        shape = (len(passages), len(keys))
        lexicon = Lexicon(keys)
        mentions = _to_matrix([dict.fromkeys(sorted(lexicon.find_names(text)), 1.0) for text in texts], shape)
        about = _share_titles(_to_matrix([{number[name]: w for name, w in row.items()} for row in titled], shape))
        stamps = _to_matrix([dict.fromkeys(sorted(number[name] for name in row), 1.0) for row in stamped], shape)
        return cls(keys, mentions, about, stamps, _link_passages(mentions, about))

    def find_shared(self, one: int, other: int) -> int | None:
        """Return the rarest entity that two passages mention, if any."""
        if (one, other) not in self._shared:
            named, also = (self.entities_of(row, "mentions") for row in (one, other))
            shared = np.intersect1d(named, also, assume_unique=True)
            self._shared[one, other] = int(shared[int(np.argmax(self.rarity[shared]))]) if len(shared) else None
        return self._shared[one, other]

    @property
    def passages(self) -> int:
        """The number of passages."""
        return int(self.mentions.shape[0])

    @property
    def names(self) -> list[str]:
        """Every entity's name, its words parted by a space."""
        return [" ".join(words) for words in self.keys]

    @cached_property
    def lexicon(self) -> Lexicon:
        """The entities' names, to be found in texts."""
        return Lexicon(self.keys)

    @cached_property
    def rarity(self) -> NDArray[np.float32]:
        """By entity, in (0, 1]: log(1 + passages / passages that name it), scaled."""
        return _rarity_of(self.mentions)

    @cached_property
    def sureness(self) -> NDArray[np.float32]:
        """By entity, in [0, 1]: its rarity times the most that a passage is about it."""
        return np.asarray(self.rarity * self.about.max(axis=0).toarray().ravel(), np.float32)

    @cached_property
    def strength(self) -> NDArray[np.float32]:
        """By passage: the sum of its links, 1 where it has none."""
        total = np.asarray(self.links.sum(1), np.float32).ravel()
        return np.where(total > 0, total, np.float32(1))

    @cached_property
    def by_entity(self) -> dict[str, Any]:
        """`mentions`, `about` and `stamps` by entity (CSC)."""
        return {part: getattr(self, part).tocsc() for part in MATRICES[:3]}

    def passages_of(self, entity: int, part: str) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Return the passages that the matrix `part` joins to an entity, and its values."""
        matrix = self.by_entity[part]
        found = slice(matrix.indptr[entity], matrix.indptr[entity + 1])
        return matrix.indices[found], matrix.data[found]

    def entities_of(self, row: int, part: str) -> NDArray[np.int64]:
        """Return the entities that the matrix `part` joins to a passage."""
        matrix = getattr(self, part)
        found: NDArray[np.int64] = matrix.indices[matrix.indptr[row] : matrix.indptr[row + 1]]
        return found


class Lexicon:
    """Known names, found in texts whatever their case: the longest at each place."""

    def __init__(self, keys: Sequence[Key]) -> None:
        self._single = {name[0]: number for number, name in enumerate(keys) if len(name) == 1}
        self._longer: dict[Key, list[tuple[Key, int]]] = {}
        for number, name in enumerate(keys):
            if len(name) > 1:
                self._longer.setdefault(name[:2], []).append((name, number))
        for same in self._longer.values():
            same.sort(key=lambda one: -len(one[0]))

    def find_names(self, text: str) -> list[int]:
        """Return the numbers of the names in a text, in order.

        The longest at each place, and again after a comma, `and` or a preposition inside it ("Kingston, Jamaica"
        names Jamaica, too).
        """
        words: list[str] = []
        parts = set()  # places where a part of a name may begin
        for _, word in _tokenise(text):
            if word != ",":
                words.append(word)
            if word == "," or word in _JOINS:
                parts.add(len(words))
        found, at = [], 0
        while at < len(words):
            for name, number in self._longer.get(tuple(words[at : at + 2]), ()):
                if tuple(words[at : at + len(name)]) == name:
                    found.append(number)
                    at = next((part for part in range(at + 1, at + len(name)) if part in parts), at + len(name))
                    break
            else:
                if words[at] in self._single:
                    found.append(self._single[words[at]])
                at += 1
        return found


def _find_aliases(title: str) -> dict[Key, float]:
    """Return the names of what a title is about, each with its sureness in (0, 1].

    The title; without what is in brackets; up to its first comma or colon, by the share of the words that this is;
    without its article; and each heading of a breadcrumb `A > B`, the last being the passage's own.
    """
    found: dict[Key, float] = {}
    for depth, heading in enumerate(reversed(title.split(" > "))):
        for name, weight in _heading_names(heading):
            found[name] = max(found.get(name, 0.0), 0.5**depth * weight)
    return found


def _find_shared_names(texts: Iterable[str]) -> set[Key]:
    """Return names in MIN_TEXTS texts, a word only if no more texts write it small."""
    held, small = Counter[Key](), Counter[Key]()
    for text in texts:
        tokens = _tokenise(text)
        held.update(_find_names(text, tokens))
        small.update({(folded,) for word, folded in tokens if word.islower()})
    return {name for name, count in held.items() if count >= max(MIN_TEXTS, small[name])}


def _find_names(text: str, tokens: Sequence[tuple[str, str]]) -> set[Key]:
    """Return capitalised spans, code names, and terms in bold, quotes or code.

    A single capitalised word that begins a sentence may be any word, and does not count; nor does a month or a day of
    the week. What `and` or a preposition joins is one name and several.
    """
    found = {_to_key(" ".join(match.groups(""))) for match in _DEFINED.finditer(text)}
    found |= {_to_key(match[0]) for match in _CODE.finditer(text)}
    for span, begins in _capitalised_spans(tokens):
        name = _trim_function_words(span)
        if len(name) > 1 or not begins or name[:1] != span[:1]:
            found.add(name)
        cuts = [at for at, word in enumerate(name) if word in _JOINS]
        bounds = zip([0, *(at + 1 for at in cuts)], [*cuts, len(name)], strict=True)
        pieces = [_trim_function_words(name[start:end]) for start, end in bounds] if cuts else []
        found |= set(pieces)
        for piece in (name, *pieces):
            if len(piece) > 3:  # its first two words and its last two are often used alone
                found |= {_trim_function_words(piece[:2]), _trim_function_words(piece[-2:])}
    return {name for name in found if _can_be_name(name) and len(name) <= MAX_WORDS and not _CALENDAR.issuperset(name)}


def _to_key(text: str) -> Key:
    return tuple(word for _, word in _tokenise(text) if word not in _MARKS)


@lru_cache(maxsize=20_000)
def _heading_names(heading: str) -> tuple[tuple[Key, float], ...]:
    """Return the names of one heading with their weights."""
    bare = _BRACKETS.sub("", heading)
    whole = max(len(_to_key(bare)), 1)
    leads = [_to_key(bare.partition(",")[0]), _to_key(_LEAD.split(bare)[0])]
    names = [(_to_key(heading), 1.0), (_to_key(bare), 0.9), *((lead, 0.9 * len(lead) / whole) for lead in leads)]
    names += [(name[1:], 0.9 * weight) for name, weight in names if len(name) > 2 and name[0] in ("the", "a", "an")]
    return tuple((name, weight) for name, weight in names if _can_be_name(name))


def _trim_function_words(name: Key) -> Key:
    kept = [at for at, word in enumerate(name) if word not in STOP_WORDS]
    return name[kept[0] : kept[-1] + 1] if kept else ()


def _can_be_name(name: Key) -> bool:
    if len(name) == 1:
        return len(name[0]) > 2 and not name[0].isdigit() and name[0] not in STOP_WORDS
    return not STOP_WORDS.issuperset(name)


def _tokenise(text: str) -> list[tuple[str, str]]:
    """Return words and marks, each as written and as compared."""
    return [(found, found if found.isdigit() else _fold_word(found)) for found in _TOKEN.findall(text)]


@lru_cache(maxsize=20_000)
def _fold_word(word: str) -> str:
    lower = word.lower().replace("’", "'")
    if not lower.isascii():
        lower = "".join(c for c in unicodedata.normalize("NFKD", lower) if not unicodedata.combining(c))
    return lower[:-2] if lower.endswith("'s") else lower


def _capitalised_spans(tokens: Sequence[tuple[str, str]]) -> Iterator[tuple[Key, bool]]:
    """Yield runs of capitalised words, and whether each begins a sentence."""
    at, begins = 0, True
    while at < len(tokens):
        word = tokens[at][0]
        if word in _MARKS:
            at, begins = at + 1, word != ","
            continue
        end = at + 1
        if word[0].isupper():
            ahead = end
            while ahead < len(tokens) and tokens[ahead][0] not in _MARKS:
                written, folded = tokens[ahead]
                ahead += 1
                if written[0].isupper() or written[0].isdigit():
                    end = ahead
                elif folded not in _INSIDE:
                    break
            yield tuple(folded for _, folded in tokens[at:end]), begins
        at, begins = end, False


def _rarity_of(mentions: Any) -> NDArray[np.float32]:
    """Return each column's rarity in (0, 1]: near 1 for a name in one passage."""
    passages = mentions.shape[0]
    count = np.maximum(np.asarray(mentions.sum(0)).ravel(), 1.0)
    return np.asarray(np.log1p(passages / count) / np.log1p(max(passages, 1)), np.float32)


def _to_matrix(rows: Sequence[dict[int, float]], shape: tuple[int, int]) -> Any:
    values = np.array([w for row in rows for w in row.values()], np.float32)
    columns = np.array([n for row in rows for n in row], np.int64)
    matrix = csr_array((values, columns, np.cumsum([0, *map(len, rows)])), shape=shape)
    matrix.sort_indices()
    return matrix


def _share_titles(matrix: Any) -> Any:
    """Return each column scaled to sum to its highest value."""
    total, highest = np.asarray(matrix.sum(0)).ravel(), matrix.max(axis=0).toarray().ravel()
    return csr_array(matrix @ diags_array((highest / np.where(total > 0, total, 1)).astype(np.float32)))


def _link_passages(mentions: Any, about: Any) -> Any:
    """Return what joins two passages, by entity the square of its rarity.

    One names what the other is about, each way; and NAME_SHARE over the number of passages for a name that they
    share. Only the MAX_LINKS strongest of a passage are kept.
    """
    weight = _rarity_of(mentions) ** 2
    naming = mentions @ diags_array(weight) @ about.T
    count = np.asarray(mentions.sum(0)).ravel()
    joins = np.where((count > 1) & (count <= MAX_SHARED), NAME_SHARE * weight / np.maximum(count, 1), 0)
    both = csr_array(naming + naming.T + mentions @ diags_array(joins.astype(np.float32)) @ mentions.T)
    both.setdiag(0)
    both.eliminate_zeros()
    values = both.data.copy()
    for start, end in zip(both.indptr[:-1], both.indptr[1:], strict=True):
        if end - start > MAX_LINKS:
            row = values[start:end]
            row[np.argsort(-row, kind="stable")[MAX_LINKS:]] = 0
    kept = csr_array((values, both.indices, both.indptr), shape=both.shape)
    kept.eliminate_zeros()
    return csr_array(kept.maximum(kept.T)).astype(np.float32)
