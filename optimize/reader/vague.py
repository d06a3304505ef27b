"""The prior of a reader for vague questions: which kind of rivals a question leaves open, before any label.

1. Each vague question of a file stands beside its twin, which names one of the rivals. Both are read over the passages
   of their own, and among the NEAREST of their group, as a search would find them.
2. Every kind of rivals is a case. It is right where the question is vague and at least half of its rivals are among
   the labelled options, and half of these among its rivals; where no kind is, each is.
3. The kinds of a question compete in one softmax with "none of them".
4. The logits are moved from the file's share of vague questions to VAGUE (Saerens et al. 2002).
5. What comes out stands in the reader's card.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, ValidationError

from ragc.errors import DataError
from ragc.models.embedded.encoder import Embedder
from ragc.models.embedded.features import EvidenceText
from ragc.models.embedded.heads import fit_statement
from ragc.models.embedded.reader import Reader
from ragc.models.embedded.rivals import Kind, read_rivals
from ragc.optimize.reader.examples import write_rows
from ragc.optimize.reader.statement import dump_head, make_flat_head

NEAREST = 8  # passages of a group beside which a question is read, its own among them
VAGUE = 0.1  # share of a user's questions that are taken to be vague, before any label


class _Page(BaseModel):
    id: str
    title: str
    context: str


class VagueExample(BaseModel):
    """A question with its passages; `options` are what a vague one leaves open, in their words.

    A `group` holds the questions on the pages of one organisation.
    """

    pair: str
    group: str = ""
    question: str
    vague: bool
    options: list[str]
    passages: list[_Page]

    @property
    def texts(self) -> list[EvidenceText]:
        """The passages, their tables as rows."""
        return [EvidenceText(page.title, write_rows(page.context)) for page in self.passages]


def read_vague(path: Path) -> list[VagueExample]:
    """Return the questions of a JSONL file. Raises `DataError` for what is none."""
    try:
        return [VagueExample.model_validate_json(line) for line in path.read_bytes().splitlines() if line.strip()]
    except (OSError, ValidationError) as error:
        mend = "Give JSONL with pair, group, question, vague, options and passages (id, title, context) in each line."
        raise DataError(f"{path} cannot be read: {error}.", mend, path=str(path)) from error


def fit_vague(reader: Reader, examples: list[VagueExample], embedder: Embedder) -> dict[str, Any]:
    """Return the arrays of a head as lists, by name."""
    rows, labels, groups = list[dict[str, Any]](), list[int](), list[str]()
    for n, one in enumerate([*examples, *list_nearest(examples, embedder)]):
        texts = one.texts
        asked, *vectors = embedder.encode([one.question, *(text.embedded for text in texts)])
        kinds, measures = read_rivals(one.question, texts, np.stack(vectors) @ asked, reader)
        right = [one.vague and names_options(kind, one.options) for kind in kinds]
        rows += [{"rivals": row} for row in measures]
        labels += [int(hit or (one.vague and not any(right))) for hit in right]
        groups += [f"{n}"] * len(kinds)
    found = fit_statement(rows, labels, groups, make_flat_head(rows, "rivals"))
    share = sum(one.vague for one in examples) / len(examples)
    shift = np.log(VAGUE / (1 - VAGUE)) - np.log(share / (1 - share))
    return dump_head(replace(found, calibration=np.array([1, shift], np.float32)))


def list_nearest(examples: list[VagueExample], embedder: Embedder) -> list[VagueExample]:
    """Return each question over the nearest passages of its group by cosine.

    Its own are among them.
    """
    pages = defaultdict[str, dict[str, _Page]](dict)
    for one in examples:
        pages[one.group] |= {page.id: page for page in one.passages}
    texts = {
        name: [EvidenceText(p.title, write_rows(p.context)).embedded for p in own.values()]
        for name, own in pages.items()
    }
    vectors = {name: embedder.encode(own) for name, own in texts.items()}
    found = []
    for one, asked in zip(examples, embedder.encode([one.question for one in examples]), strict=True):
        every, own = list(pages[one.group].values()), {page.id for page in one.passages}
        nearest = [every[at] for at in np.argsort(-(vectors[one.group] @ asked), kind="stable")]
        first = sorted(nearest, key=lambda page: page.id not in own)[:NEAREST]
        found.append(one.model_copy(update={"passages": [page for page in nearest if page in first]}))
    return found


def names_options(kind: Kind, options: list[str]) -> bool:
    """Tell whether half of a kind's rivals are among some options, and of these half."""
    names = {rival.name.casefold() for rival in kind.rivals}
    hits = sum(any(option.casefold() in name for name in names) for option in options)
    return hits * 2 >= max(len(options), len(names))
