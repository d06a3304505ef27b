"""Answers that people reviewed, given again to a question that means the same: no model is called for them.

1. A labelled question with its answer is one, once it is sealed with a version; a review is one from when it is made.
2. The embedder finds the nearest; their numbers, names and negations have to be those of the question, which may not
   be theirs with one place changed.
3. A decision says how probably both ask for the same, by whether the reader finds one answer to both. How sure it has
   to be is compiled (`SAME` before that). Where nothing is cited, only the very words count.
4. An answer holds as long as what it cites, or all documents where it cites nothing, is as it was; for those who may
   read all of it, until a day if one is named.

Labelled questions that were drafted, and wait for a person, are beside them.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from filelock import FileLock
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, ValidationError

from ragc.answer import Answer, Citation, Outcome, Reviewed
from ragc.errors import DataError
from ragc.knowledge.library import Library
from ragc.knowledge.project import Project
from ragc.loop.same_question import AnswerSource, agree_on, spell_question
from ragc.passage import Passage
from ragc.storage import append_row, decode_row, keep_last, read_json_rows, write_whole
from ragc.text.facts import states
from ragc.text.history import Asked
from ragc.text.pieces import Claim, Piece, split_pieces

if TYPE_CHECKING:
    from ragc.models.embedded.decider import LocalDecider

FILE = "reviewed.jsonl"  # of the answers that a version carries
DIGEST = 16  # hexadecimal digits of a passage's
NEAREST = 3  # reviewed questions that a question is compared with
NEAR = 0.5  # the least cosine of two questions that are compared
SAME, LEAST_SAME = 0.7, 0.6
"""The least probability that two questions ask for the same: before a compile, and the least that one may find."""
SOURCES_KEPT = 8192  # of answers
NOT_KNOWN = "This is not in the documents."
DRAFTS, TAG = "drafts.jsonl", "draft"
Row = dict[str, Any]
FindPassage = Callable[[str], Passage | None]


class Review(BaseModel):
    """Who says that an answer is right, of what, and how long."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    at: str  # when it was reviewed, UTC, ISO 8601
    seconds: float = 0.0  # the time that the reviewer took
    trace: str = ""  # the trace of the answer
    version: str = ""  # the version that gave it
    by: str = ""  # who reviewed it
    until: date | None = None  # the last day on which it is given
    retired: bool = False  # whether it is given no more, and nothing is learned from it
    seen: dict[str, str] = {}
    """The digest of each passage that the answer rests on, by id; of all documents under an empty id."""

    def __hash__(self) -> int:
        return hash((self.at, self.trace))


class KnownAnswer(BaseModel):
    """A labelled question as far as its answer is given again."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    id: str
    question: str
    topic: str = ""
    history: tuple[Any, ...] = ()
    readers: tuple[str, ...] = ()
    outcome: Outcome = Outcome.ANSWERED
    facts: tuple[str | tuple[str, ...], ...] = ()
    evidence: tuple[str, ...] = ()
    answer: str = ""
    reviewed: Review | None = None


class SourceChanged(Exception):
    """Why a reviewed answer is not given: in a clause."""


@dataclass(frozen=True, slots=True)
class _Held:
    """The answers that are given, a row of the vector of each question, and its place by its words."""

    answers: tuple[KnownAnswer, ...] = ()
    vectors: NDArray[np.float32] = field(default_factory=lambda: np.zeros((0, 1), np.float32))
    places: Mapping[str, Sequence[int]] = field(default_factory=dict)


class ReviewedAnswers:
    """The reviewed answers of a program. Safe from many threads; a file that changed is read again."""

    def __init__(
        self,
        file: Path | None,
        decider: LocalDecider,
        sealed: Iterable[KnownAnswer] = (),
        same: float = SAME,
        barred: Callable[[str], frozenset[str]] = lambda question: frozenset(),
    ) -> None:
        """Give those `sealed` with a version and those in a file of reviews, which count first.

        `same` is the least probability of the decision; `barred` names the ids that a question is not given.
        """
        self.same = same
        self._file, self._decider, self._sealed, self._barred = file, decider, tuple(sealed), barred
        self._lock, self._finding = threading.Lock(), threading.Lock()
        self._stamp: Any = None
        self._kept: OrderedDict[tuple[str, str], AnswerSource | None] = OrderedDict()
        self._held = _Held()

    def sealed_with(self, rows: bytes, same: float) -> ReviewedAnswers:
        """Return them with those that a version carries."""
        return ReviewedAnswers(self._file, self._decider, read_answers(rows.splitlines()), same)

    def barring(self, barred: Callable[[str], frozenset[str]]) -> ReviewedAnswers:
        """Return them for an evaluation, where not every question is given all."""
        return ReviewedAnswers(self._file, self._decider, self._sealed, self.same, barred)

    def list_answers(self) -> list[KnownAnswer]:
        """Return all of them, retired ones too."""
        found = {one.id: one for one in self._sealed}
        if self._file is not None and self._file.is_file():
            found |= {one.id: one for one in read_answers(self._file.read_bytes().splitlines())}
        return list(found.values())

    def find(self, asked: Asked, library: Library) -> Answer | None:
        """Return the answer to a reviewed question that means the same, or None.

        Where something was said before, the question has to be in the very words. What was reviewed is not given for
        another day of asking.
        """
        held = self._read()
        if not held.answers or asked.today not in (None, date.today()):
            return None
        near = [(1.0, held.answers[at]) for at in held.places.get(spell_question(asked.question), ())]
        if not near and not asked.history:
            near = self.rank_near(asked.question, library, held)
        barred = self._barred(asked.question)
        for chance, known in near:
            if chance >= self.same and known.id not in barred and asked.readers.issuperset(known.readers):
                try:
                    return _give(known, *self._state(known, library), chance)
                except SourceChanged:
                    continue
        return None

    def explain_disuse(self, known: KnownAnswer, library: Library) -> str:
        """Return in a clause why an answer is not given to anybody; "" for one that is."""
        if why := tell_end(known):
            return why
        try:
            self._state(known, library)
        except SourceChanged as changed:
            return str(changed)
        return ""

    def list_changed(self, library: Library) -> dict[str, str]:
        """Return by question why its answer, which was given, holds no more."""
        told = {one.question: self.explain_disuse(one, library) for one in self.list_answers() if not tell_end(one)}
        return {question: why for question, why in told.items() if why}

    def _read(self) -> _Held:
        """Return what is held, read again where the file changed."""
        stamp = None
        if self._file is not None and self._file.is_file():
            found = self._file.stat()
            stamp = found.st_mtime_ns, found.st_size, found.st_ino
        if (stamp, date.today()) == self._stamp or not self._lock.acquire(blocking=not self._held.answers):
            return self._held
        try:
            given = tuple(one for one in self.list_answers() if not tell_end(one))
            vectors = self._decider.embedder.encode([one.question for one in given])
            places: dict[str, list[int]] = {}
            for at, one in enumerate(given):
                places.setdefault(spell_question(one.question), []).insert(0, at)  # the last counts first
            self._held, self._stamp = _Held(given, vectors, places), (stamp, date.today())
        finally:
            self._lock.release()
        return self._held

    def rank_near(self, question: str, library: Library, held: _Held | None = None) -> list[tuple[float, KnownAnswer]]:
        """Return the answers to the nearest questions, each with its probability."""
        held = held or self._read()
        cosines = held.vectors @ self._decider.embedder.encode([question])[0]
        near = [int(at) for at in np.argsort(-cosines)[:NEAREST] if cosines[at] >= NEAR]
        agreed = agree_on(question)
        known = [held.answers[at] for at in near if agree_on(held.answers[at].question) == agreed]
        stand = [(source, one) for one in known if (source := self._find_source(one, library)) is not None]
        found = [(source.decide(question, one.question, self._decider.reader), one) for source, one in stand]
        return sorted(found, key=lambda pair: -pair[0])

    def _find_source(self, known: KnownAnswer, library: Library) -> AnswerSource | None:
        """Return where an answer stands, None where it does not hold."""
        key = known.model_dump_json(), library.index_digest
        with self._finding:
            if key not in self._kept:
                found = None
                with suppress(SourceChanged):
                    pieces = self._find_pieces(known, library)
                    found = AnswerSource.of_pieces(known.question, pieces, known.answer, self._decider.reader)
                keep_last(self._kept, {key: found}, SOURCES_KEPT)
            return self._kept[key]

    def _state(self, known: KnownAnswer, library: Library) -> tuple[str, list[Passage]]:
        """Return an answer's text, marks in it, and the passages that they cite.

        Raises `SourceChanged` where it does not hold as it did, or not all of it may be read.
        """
        for id_, digest in (known.reviewed.seen if known.reviewed else {}).items():
            if digest != _digest_source(id_, library):
                raise SourceChanged("its source changed" if id_ else "the documents changed")
        pieces = self._find_pieces(known, library)
        cited = list(dict.fromkeys(passage for passage, _ in pieces))
        if known.answer or known.outcome is not Outcome.ANSWERED:
            marks = "".join(f"[{n}]" for n in range(1, len(cited) + 1))
            text, end = known.answer.strip() or NOT_KNOWN, "." * known.answer.strip().endswith(".")
            return f"{text.removesuffix(end)} {marks}{end}" if marks else text, cited
        claims = (Claim.quote(piece.shown, cited.index(passage) + 1).text for passage, piece in pieces if piece)
        return " ".join(dict.fromkeys(claims)), cited

    def _find_pieces(self, known: KnownAnswer, library: Library) -> list[tuple[Passage, Piece | None]]:
        """Return the passages that an answer cites, with the piece of each that states a fact.

        Raises `SourceChanged` as `_state`.
        """
        passages = [passage for id_ in known.evidence if (passage := library.find_passage(id_)) is not None]
        if len(passages) < len(known.evidence):
            raise SourceChanged("its source is gone")
        if known.outcome is not Outcome.ANSWERED:
            return []
        found = [(fact, self._find_piece(known.question, fact, passages)) for fact in known.facts]
        if not known.answer and (lacks := [fact for fact, place in found if place is None]):
            raise SourceChanged(f"its source does not state {lacks[0]!r}")
        places: list[tuple[Passage, Piece | None]] = [place for _, place in found if place is not None]
        return [*places, *((one, None) for one in passages if known.answer and one not in [p for p, _ in places])]

    def _find_piece(self, question: str, fact: Any, passages: Sequence[Passage]) -> tuple[Passage, Piece] | None:
        """Return the piece that states a fact, of several that in which the question is answered; None without one."""
        stating = [
            (passage, piece)
            for passage in passages
            for piece in split_pieces(passage.text)
            if states(f"{piece.shown}\n\n{piece.text}", fact)
        ]
        if len(stating) > 1:
            read = self._decider.reader.read(question, [(passage.subject, passage.text) for passage, _ in stating])
            scores = [one.best_within(piece.start, piece.end)[0] for one, (_, piece) in zip(read, stating, strict=True)]
            return stating[int(np.argmax(scores))]
        return stating[0] if stating else None


def tell_end(known: KnownAnswer) -> str:
    """Return in a clause why an answer is given no more, or ""."""
    review = known.reviewed
    if review and review.retired:
        return "it was retired"
    if review and review.until and date.today() > review.until:
        return f"it held until {review.until}"
    if known.history:
        return "its question follows on from another"
    if known.outcome is Outcome.ANSWERED:
        return "" if known.evidence and (known.facts or known.answer) else "it has no answer with a source"
    if known.outcome is Outcome.CLARIFY and not known.answer:
        return "nobody wrote what is asked back"
    return "" if review and review.seen else "it was not reviewed over these documents"


def read_answers(lines: Iterable[bytes]) -> Iterator[KnownAnswer]:
    """Yield the answers in lines of JSON; what is none is passed over."""
    for row in filter(None, map(decode_row, lines)):
        with suppress(ValidationError):
            yield KnownAnswer.model_validate(row)


def see_sources(evidence: Sequence[str], library: Library) -> dict[str, str]:
    """Return the digests of passages, or without any of all documents."""
    return {id_: _digest_source(id_, library) for id_ in evidence or ("",)}


def write_answer(project: Project, row: Mapping[str, Any], id_: str = "", *, file: Path | None = None) -> None:
    """Write an answer in place of that of its id; an empty row only drops that."""
    file, id_ = file or project.reviewed, id_ or str(row["id"])
    with FileLock(project.private / "reviewed.lock"):
        lines = file.read_bytes().splitlines(keepends=True) if file.is_file() else []
        kept = [line for line in lines if (decode_row(line) or {}).get("id") != id_]
        if len(kept) < len(lines):
            write_whole(file, b"".join(kept))
        if row:
            append_row(file, row)


def _digest_source(id_: str, library: Library) -> str:
    """Return the digest of a passage, or under an empty id of all documents."""
    if not id_:
        return library.corpus_digest
    passage = library.find_passage(id_)
    text = f"{passage.title}\n{passage.text}\n{passage.superseded_by}" if passage else ""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:DIGEST]


def _give(known: KnownAnswer, text: str, passages: Sequence[Passage], chance: float) -> Answer:
    ids = tuple(passage.id for passage in passages)
    return Answer(
        text=text,
        outcome=known.outcome,
        citations=tuple(Citation(n, p.source, p.id, p.title, copies=p.copies) for n, p in enumerate(passages, 1)),
        confidence=chance,
        sources=tuple(dict.fromkeys(passage.source for passage in passages)),
        retrieved=ids,
        found=ids,
        reviewed=Reviewed(known.id, known.reviewed.at if known.reviewed else ""),
    )


class Drafts:
    """A project's drafts of labelled questions, each to be kept or dropped by a person.

    A draft that is kept is a labelled question. A file of the project's private folder holds what became of each, the
    last line of an id counts, so that nobody is asked again of what was kept or dropped.
    """

    def __init__(self, project: Project) -> None:
        self._project, self._file = project, project.private / DRAFTS

    def list_all(self) -> dict[str, Row]:
        """Return every draft by its id; what was decided has a `state`, kept or dropped."""
        rows = read_json_rows(self._file) if self._file.is_file() else ()
        return {str(row["id"]): row for row in rows if row and "id" in row}

    def list_waiting(self, find: FindPassage) -> list[Row]:
        """Return those that nobody decided on and whose passages state their facts."""
        return [row for row in self.list_all().values() if "state" not in row and not find_fault(row, find)]

    def add(self, rows: Iterable[Row]) -> None:
        """Add drafts of new ids."""
        known = self.list_all()
        self._file.parent.mkdir(parents=True, exist_ok=True)
        for row in rows:
            if row["id"] not in known:
                append_row(self._file, row)

    def keep(
        self,
        id_: str,
        find: FindPassage,
        changes: Mapping[str, Any] | None = None,
        *,
        by: str = "",
        seconds: float = 0.0,
    ) -> Row:
        """Add a draft to the labelled questions, and return that label.

        `changes` are to its question and facts. Raises `DataError` for a draft that is not known, and for facts that
        its passages do not state.
        """
        draft = self._require_draft(id_)
        label = {**draft, **(changes or {})}
        if fault := "It asks nothing." if not label["question"].strip() else find_fault(label, find):
            raise DataError(fault, "Take its words from the passage, or drop the draft.")
        at = datetime.now(UTC).isoformat(timespec="seconds")
        review = Review(at=at, seconds=round(seconds, 1), by=by).model_dump(mode="json", exclude_defaults=True)
        label |= {"tags": [*(tag for tag in label["tags"] if tag != TAG), "reviewed"], "reviewed": review}
        write_answer(self._project, label, file=self._project.labelled)
        append_row(self._file, {**draft, "state": "kept"})
        return label

    def drop(self, id_: str) -> None:
        """Drop a draft. Raises `DataError` for one that is not known."""
        append_row(self._file, {**self._require_draft(id_), "state": "dropped"})

    def reopen(self, id_: str) -> None:
        """Take back what was decided on a draft, or raise `DataError`."""
        append_row(self._file, self._require_draft(id_))
        write_answer(self._project, {}, id_, file=self._project.labelled)

    def _require_draft(self, id_: str) -> Row:
        """Return a draft as it was before it was decided on."""
        found = self.list_all().get(id_)
        if found is None:
            raise DataError(f"There is no draft {id_}.", "`ragc data draft PROJECT --json` lists their ids.")
        return {name: value for name, value in found.items() if name != "state"}


def find_fault(row: Row, find: FindPassage) -> str:
    """Return in a sentence why a draft cannot be a label, or an empty text."""
    passages: Sequence[Passage | None] = [find(id_) for id_ in row["evidence"]]
    text = "\n\n".join(passage.whole for passage in passages if passage)
    if not passages or None in passages or not row["facts"]:
        return "Its passage is not there." if row["facts"] else "It states no fact."
    return next((f"Its passage does not state “{fact}”." for fact in row["facts"] if not states(text, fact)), "")
