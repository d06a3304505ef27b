"""Where in a project's documents an answer stands, that came without its evidence."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import NamedTuple

from ragc.knowledge.ingest.amounts import read_amount
from ragc.knowledge.library import Library
from ragc.passage import document_of
from ragc.text.facts import holds, normalise_text, states
from ragc.text.pieces import split_pieces

HITS = 12  # passages among which an answer is looked up
LEAST_HELD = 0.3  # the share of an answer's words that a piece has to hold
LEAST_RUN = 0.5  # the share of an answer's words that make a fact, one after the other, where they hold no figure


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
