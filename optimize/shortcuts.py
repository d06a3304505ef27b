"""Shortcuts in labelled questions: what should not matter to a label, and yet predicts it.

A program that is compiled on such questions learns the shortcut in place of the label: where every vague question is
short, it asks back whenever a question is short.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from optimize.dataset import LabelledQuestion

WARN_ABOVE = 0.75
"""The AUC above which a shortcut is worth a warning."""
LEAST = 10
"""The fewest questions with a label, and without it, for which an AUC is told: with fewer it is chance."""
_FOLDS = 5
_BINS = 8
_COMMON = 3
"""A first word or a topic of fewer questions is one of the rare ones."""
TOGETHER = "together"

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Feature = Callable[[LabelledQuestion], str]


@dataclass(frozen=True, slots=True)
class Shortcut:
    """How well one feature alone tells the questions of a split that have a label from those that have not."""

    split: str
    label: str
    """`outcome`, `route`, `strategy` or `source`."""
    value: str
    feature: str
    """`length`, `question mark`, `first word`, `digit`, `topic`, or `together`: the first four in one model."""
    auc: float
    """Area under the ROC curve of cross-validated predictions; 0.5 is what the majority gets."""
    n: int
    """Questions of the split that carry the label at all."""
    positives: int
    """Those of them that have the value."""
    mend: str = ""
    """Which questions would break it."""

    @property
    def warns(self) -> bool:
        """Whether the shortcut is worth a warning."""
        return self.auc > WARN_ABOVE


def find_shortcuts(parts: Mapping[str, Sequence[LabelledQuestion]]) -> list[Shortcut]:
    """Return the AUC of every feature for every label of every split, the strongest first.

    A label with fewer than LEAST questions that have it, or have it not, is left out. `topic` is not held against a
    knowledge base: the questions of a topic share documents, and a document lies in one base.
    """
    found = [shortcut for split, part in parts.items() for shortcut in _of_split(split, part)]
    return sorted(found, key=lambda s: (-s.auc, s.split, s.label, s.value, s.feature))


def _words(question: LabelledQuestion) -> list[str]:
    return question.question.split()


def _first_word(question: LabelledQuestion) -> str:
    found = re.search(r"[^\W\d_]+(?:['’][^\W\d_]+)*", question.question)
    return found[0].casefold() if found else ""


SURFACE: Mapping[str, Feature] = {
    "length": lambda q: str(len(_words(q))),
    "question mark": lambda q: "with" if "?" in q.question else "without",
    "first word": _first_word,
    "digit": lambda q: "with" if re.search(r"\d", q.question) else "without",
}
FEATURES: Mapping[str, Feature] = {**SURFACE, "topic": lambda q: q.topic}
_LABELS: Mapping[str, Callable[[LabelledQuestion], tuple[str, ...]]] = {
    "outcome": lambda q: (q.outcome,) if q.outcome else (),
    "route": lambda q: (q.route,) if q.route else (),
    "strategy": lambda q: (q.strategy,) if q.strategy else (),
    "source": lambda q: q.sources,
}


def _of_split(split: str, questions: Sequence[LabelledQuestion]) -> Iterator[Shortcut]:
    for label, values_of in _LABELS.items():
        carrying = [q for q in questions if values_of(q)]
        if len(carrying) < 2 * LEAST:
            continue
        columns = {name: _column(name, carrying) for name in FEATURES if name != "topic" or label != "source"}
        for value in sorted({value for q in carrying for value in values_of(q)}):
            has = [value in values_of(q) for q in carrying]
            if LEAST <= sum(has) <= len(has) - LEAST:
                for feature, auc in _aucs(columns, has).items():
                    mend = _mend(feature, label, value, carrying, has)
                    yield Shortcut(split, label, value, feature, round(auc, 3), len(has), sum(has), mend)


def _column(name: str, questions: Sequence[LabelledQuestion]) -> list[int]:
    """The feature of each question as the number of a category: lengths by quantile, rare values as one."""
    import numpy as np

    values = [FEATURES[name](q) for q in questions]
    if name == "length":
        lengths = np.array([int(value) for value in values])
        edges = np.unique(np.quantile(lengths, np.linspace(0, 1, _BINS + 1)[1:-1]))
        return [int(place) for place in np.searchsorted(edges, lengths)]
    counts = Counter(values)
    common = sorted(value for value, count in counts.items() if count >= _COMMON)
    return [common.index(value) if value in common else len(common) for value in values]


def _aucs(columns: Mapping[str, Sequence[int]], has: Sequence[bool]) -> dict[str, float]:
    """By feature the AUC of its out-of-fold log-odds; TOGETHER is naive Bayes: the sum over the surface features."""
    import numpy as np
    from scipy.stats import rankdata

    y = np.array(has)
    odds = {name: _log_odds(np.array(column), y) for name, column in columns.items()}
    odds[TOGETHER] = np.sum([odds[name] for name in SURFACE], axis=0)
    positives, negatives = int(y.sum()), int((~y).sum())
    least = positives * (positives + 1) / 2
    return {name: float((rankdata(o)[y].sum() - least) / (positives * negatives)) for name, o in odds.items()}


def _log_odds(column: NDArray[np.int64], y: NDArray[np.bool_]) -> NDArray[np.float64]:
    """log P(category | label) - log P(category | no label) of each question, by the other folds, add-one smoothed."""
    import numpy as np

    shuffled = np.random.default_rng(0).permutation(len(y))
    fold = np.empty(len(y), dtype=int)
    for side in (True, False):  # stratified: each fold has its share of either side
        of_side = shuffled[y[shuffled] == side]
        fold[of_side] = np.arange(len(of_side)) % _FOLDS
    size = int(column.max()) + 1
    counts = np.zeros((_FOLDS, 2, size))
    np.add.at(counts, (fold, y.astype(int), column), 1)
    others = counts.sum(axis=0) - counts + 1.0
    logs = np.log(others / others.sum(axis=2, keepdims=True))
    found: NDArray[np.float64] = (logs[:, 1] - logs[:, 0])[fold, column]
    return found


def _mend(feature: str, label: str, value: str, questions: Sequence[LabelledQuestion], has: Sequence[bool]) -> str:
    """The questions that would break the shortcut, in a sentence."""
    name = f"{label} {value}"
    inside = [q for q, one in zip(questions, has, strict=True) if one]
    outside = [q for q, one in zip(questions, has, strict=True) if not one]
    if feature == "length":
        a, b = (median(len(_words(q)) for q in part) for part in (inside, outside))
        more, less = ("short", "long") if a < b else ("long", "short")
        return (
            f"Add {less} questions with {name}, and {more} ones without it (the median has {a:g} words with it, "
            f"{b:g} without)."
        )
    if feature == TOGETHER:
        return f"Mix lengths, question marks, first words and digits alike with {name} and without it."
    of = FEATURES[feature]
    shares = {v: (_share(inside, of, v), _share(outside, of, v)) for v in {of(q) for q in questions}}
    telling = max(sorted(shares), key=lambda v: abs(shares[v][0] - shares[v][1]))
    more_with = shares[telling][0] > shares[telling][1]
    what = {
        "question mark": f"questions {telling} a question mark",
        "digit": f"questions {telling} a digit",
        "first word": f"questions that begin with {telling!r}",
        "topic": f"questions of the topic {telling!r}",
    }[feature]
    have, others = ("lack", "have") if more_with else ("have", "lack")
    return (
        f"Add {what} that {have} {name}, and other questions that {others} it "
        f"({100 * shares[telling][0]:.0f} % of those with it are such, {100 * shares[telling][1]:.0f} % of the others)."
    )


def _share(questions: Sequence[LabelledQuestion], of: Feature, value: str) -> float:
    return sum(of(q) == value for q in questions) / len(questions)
