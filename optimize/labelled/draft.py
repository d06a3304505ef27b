"""Questions drafted for a project's own documents, for a person to keep or drop.

A language model, where there is one, writes a question that a passage answers, and the words that answer it. Without
one the documents' own structure asks, in their own words and so in any language:

1. A heading asks for the first sentence below it, for its figures where they stand together.
2. The key of a row and the name of a column ask for a cell.
3. A term asks for what stands behind its colon, or at the beginning of a line behind its dash.

The first of each document come first, then passages that no label uses. An answer that was imported without its
evidence is looked up in the documents, too.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from typing import NamedTuple

import dspy

from ragc.knowledge.ingest.amounts import read_amount
from ragc.knowledge.library import Library
from ragc.knowledge.project import Project
from ragc.loop.reviewed import TAG, Drafts, Row, find_fault
from ragc.models.catalog import is_local, open_models
from ragc.optimize.labelled.dataset import LabelledQuestion, read_labelled
from ragc.optimize.labelled.rules import read_corpus
from ragc.passage import TITLE_STEP, Passage, document_of
from ragc.text.facts import holds, normalise_text, states
from ragc.text.pieces import ASKS, SENTENCE_ENDS, Piece, split_cells, split_pieces

TEMPLATES: Mapping[str, str] = {"asks": "{name}", "heading": "{above}: {name}?", "cell": "{above}: {name}, {column}?"}
"""A question, by what asks it: a heading that is a question, a heading or a term, or a cell by its row and column."""
DASHES = (" - ", " – ", " — ")
LONGEST = 300  # characters of a fact
FEW = 5  # words about the figures of a sentence that are its fact; else the sentence is
HITS = 12  # passages among which an answer is looked up
LEAST_HELD = 0.3  # the share of an answer's words that a piece has to hold
LEAST_RUN = 0.5  # the share of an answer's words that make a fact, one after the other, where they hold no figure
_TERM = re.compile(r"([^\s:;.!?][^:;.!?]{0,59}?)(?:\s?: |( [-–—] ))(\S.*)", re.DOTALL)
_log = logging.getLogger(__name__)


class DraftQuestion(dspy.Signature):
    """Write a question that a user who has not seen the passage would ask, and that the passage answers by itself."""

    title: str = dspy.InputField()
    passage: str = dspy.InputField()
    question: str = dspy.OutputField(desc="one question, in words of a user, not of the passage")
    fact: str = dspy.OutputField(desc="the fewest words that answer it, copied from one sentence of the passage")


def find_drafts(
    project: Project, limit: int, advance: Callable[[int, int], None]
) -> tuple[list[Row], dict[str, Passage]]:
    """Return at most so many drafts that wait, and the passages by id.

    What waited before comes first; new ones are added to the project's drafts.
    """
    corpus, drafts = read_corpus(project), Drafts(project)
    passages = {
        id_: one
        for id_, one in corpus.passages.items()
        if document_of(one) not in corpus.tables and not one.superseded_by and all(one.readers)
    }
    files = [file for file in (project.labelled, project.reviewed) if file.is_file() and file.stat().st_size]
    labelled = [question for file in files for question in read_labelled(file, project.folder)]
    waiting = drafts.list_waiting(passages.get)[:limit]
    if len(waiting) < limit:
        known = {*drafts.list_all()}
        models = open_models(project.settings.models, project.settings.provider)
        writer = models.propose or (None if is_local(models.write) else models.write)
        made = _ask_model(writer, passages, labelled, known) if writer else _read_structure(passages, labelled)
        for row in made:
            if row["id"] not in known and not find_fault(row, passages.get):
                waiting.append(row)
                advance(len(waiting), limit)
            if len(waiting) == limit:
                break
        drafts.add(waiting)
    return waiting, passages


def _ask_model(
    lm: dspy.BaseLM, passages: Mapping[str, Passage], labelled: Iterable[LabelledQuestion], known: set[str]
) -> Iterator[Row]:
    """Yield a draft a passage that no label uses, as a language model writes it."""
    used, predict = {id_ for question in labelled for id_ in question.evidence}, dspy.Predict(DraftQuestion)
    for _, passage in _place_passages(passages):
        if passage.id in used or document_of(passage) in used or _name_draft(passage) in known:
            continue
        try:
            with dspy.context(lm=lm):
                found = predict(title=passage.title, passage=passage.text)
        except Exception as error:  # DSPy raises what it likes, and the next passage may fare better
            _log.warning("no question for %s: %s", passage.id, str(error)[:200])
            continue
        if found.question.strip():
            yield _make_draft(passage, found.question.strip(), found.fact.strip(), _name_draft(passage))


def _read_structure(passages: Mapping[str, Passage], labelled: Sequence[LabelledQuestion]) -> list[Row]:
    """Return the drafts that headings, cells and terms make, without those whose question or answer is labelled."""
    used = {id_ for question in labelled for id_ in question.evidence}
    told = {(id_, normalise_text(f)) for q in labelled for id_ in q.evidence for one in q.alternatives for f in one}
    found: list[tuple[tuple[bool, int], Row]] = []
    for place, passage in _place_passages(passages):
        for n, (question, fact) in enumerate(_read_passage(passage)):
            given = states(question, fact)  # as a price is that tells two rows apart
            short = len(normalise_text(fact).strip()) < 2  # any answer may hold it
            if not (given or short or len(fact) > LONGEST) and (passage.id, normalise_text(fact)) not in told:
                found.append(((passage.id in used, place + n), _make_draft(passage, question, fact)))
    times = Counter(normalise_text(row["question"]) for _, row in found)
    times.update(normalise_text(question.question) for question in labelled)
    alone = (one for one in found if times[normalise_text(one[1]["question"])] == 1)
    return [row for _, row in sorted(alone, key=lambda one: one[0])]


def _place_passages(passages: Mapping[str, Passage]) -> list[tuple[int, Passage]]:
    """Return the passages with their place in their document, the first of each document first."""
    by_document: dict[str, list[Passage]] = defaultdict(list)
    for passage in passages.values():
        by_document[document_of(passage)].append(passage)
    placed = [pair for found in by_document.values() for pair in enumerate(found)]
    return sorted(placed, key=lambda pair: pair[0])


def _read_passage(passage: Passage) -> Iterator[tuple[str, str]]:
    """Yield a question and its answer for each heading, cell and term of a passage."""
    *steps, name = passage.title.split(TITLE_STEP)
    above, whole = ", ".join(steps), ", ".join((*steps, name))
    for n, piece in enumerate(split_pieces(passage.text)):
        if piece.value:
            row, column = _name_cell(piece)
            if passage.name and column and column not in passage.name:
                row = passage.name
            yield (
                _fill("cell", whole, row, column) if column else _fill("heading", whole, row),
                piece.text[piece.value :],
            )
        elif (term := _TERM.fullmatch(piece.text)) and (not term[2] or _leads_line(piece, passage.text)):
            yield _fill("heading", whole, term[1]), term[3].rstrip(SENTENCE_ENDS)
        elif n == 0 and "~" not in passage.id and not piece.text.endswith(":"):
            short, said = shorten_fact(piece.text), piece.text.rstrip(SENTENCE_ENDS)
            fact = short if len(short.split()) <= FEW and states(piece.text, short) else said
            yield _fill("asks" if name[-1:] in ASKS else "heading", above, name), fact


def _leads_line(piece: Piece, text: str) -> bool:
    """Tell whether a piece stands at the beginning of its line or item, and holds one dash."""
    return (piece.start == 0 or text[piece.start - 1] == "\n" or bool(piece.items)) and (
        sum(map(piece.text.count, DASHES)) == 1
    )


def _name_cell(piece: Piece) -> tuple[str, str]:
    """Return the key of a cell's row, and the name of its column; of a row without a header that is empty."""
    *keys, last = split_cells(piece.text[: piece.value])
    last = last.rstrip(":; ")
    return (", ".join(key.partition(": ")[2] or key for key in keys), last) if keys else (last, "")


def _fill(template: str, above: str, name: str, column: str = "") -> str:
    return TEMPLATES[template].format(above=above, name=name, column=column).removeprefix(": ")


def _name_draft(passage: Passage, question: str = "") -> str:
    return f"draft-{hashlib.sha256(f'{passage.id} {question}'.encode()).hexdigest()[:8]}"


def _make_draft(passage: Passage, question: str, fact: str, id_: str = "") -> Row:
    """Return a labelled question as a file holds it."""
    groups = sorted({groups[0] for groups in passage.readers})
    return {
        "id": id_ or _name_draft(passage, question),
        "question": question,
        "topic": passage.title,
        **({"readers": groups} if groups else {}),
        **{"outcome": "answered", "route": "simple", "evidence": [passage.id], "facts": [fact], "tags": [TAG]},
    }


class Proposal(NamedTuple):
    """A passage that states an answer, and the fact in its words."""

    evidence: str
    fact: str | tuple[str, ...]


def find_support(question: str, answers: Sequence[str], library: Library, source: str = "") -> Proposal | None:
    """Return the best passage that states an answer or nearly so, if any.

    It is none of the file `source`. An answer that stands there word for word is the fact. Else it is the longest run
    of its words that a piece has, figures if it holds any: the piece has to have the answer's numbers and names, and
    the run a figure or half of the answer.
    """
    sources = list({passage.source: None for passage in library.passages()})
    if not sources:
        return None
    hits = [one for one in library.search(f"{question} {answers[0]}", sources, HITS) if not one.superseded_by]
    hits = [one for one in hits if document_of(one).rpartition("/")[2] != source]
    for passage in hits:
        if states(passage.whole, answers):
            return Proposal(passage.id, tuple(answers) if len(answers) > 1 else answers[0])
    runs = [
        (len(run.split()), -n, run, passage.id)
        for n, passage in enumerate(hits)
        for piece in split_pieces(passage.text)
        for answer in answers
        if holds(piece.text, answer, LEAST_HELD) and (run := _find_run(answer, piece.text))
    ]
    _, _, run, evidence = max(runs, default=(0, 0, "", ""))
    return Proposal(evidence, run) if run else None


def shorten_fact(text: str) -> str:
    """Return a text from its first figure to the word behind its last one.

    A currency before the first is part of it. It is the whole text where there is no figure.
    """
    words = text.split()
    figures = [n for n, word in enumerate(words) if any(map(str.isdigit, word))]
    if figures:
        first = figures[0]
        paid = first > 0 and read_amount(" ".join(words[first - 1 : first + 1])) is not None
        words = words[first - paid : figures[-1] + 2]
    return " ".join(words).strip(".,;:!?()\"'“”„")


def _find_run(answer: str, piece: str) -> str:
    """Return the longest run of words that both have, as the piece writes it; empty for one that says too little."""
    said, written = answer.split(), piece.split()
    words, others = ([normalise_text(word).strip(" .") for word in side] for side in (said, written))
    match = SequenceMatcher(None, words, others, autojunk=False).find_longest_match()
    fact = shorten_fact(" ".join(written[match.b : match.b + match.size]))
    enough = any(map(str.isdigit, fact)) or match.size >= max(2, LEAST_RUN * len(said))
    return fact if enough and states(piece, fact) else ""
