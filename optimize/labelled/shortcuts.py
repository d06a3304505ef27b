"""Shortcuts in labelled questions: what should not matter to a label, and yet predicts it.

A program that is compiled on such questions learns the shortcut in place of the label: where every vague question is
short, it asks back whenever a question is short.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

import numpy as np
from numpy.typing import NDArray

from ragc.optimize.labelled.dataset import LabelledQuestion

WARN_ABOVE = 0.75  # the AUC above which a shortcut is worth a warning
LEAST = 10  # the fewest questions with a label, and without it, for which an AUC is told: with fewer it is chance
TOGETHER = "together"
_FOLDS = 5
_BINS = 8
_COMMON = 3  # a first word or a topic of fewer questions is one of the rare ones


@dataclass(frozen=True, slots=True)
class Shortcut:
    """How well one feature predicts one label of a split."""

    split: str  # `train`, `dev` or `test`
    label: str  # `outcome`, `route`, `strategy` or `source`
    value: str  # the value of the label
    feature: str
    """`length`, `question mark`, `first word`, `digit`, `topic`, or `together`: the first four in one model."""
    auc: float  # area under the ROC curve of cross-validated predictions; 0.5 is what the majority gets
    n: int  # questions of the split that carry the label at all
    positives: int  # those of them that have the value
    mend: str = ""  # which questions would break the shortcut; empty where it is not worth a warning

    @property
    def warns(self) -> bool:
        """Whether the shortcut is worth a warning."""
        return self.auc > WARN_ABOVE

    def describe(self) -> str:
        """Return what predicts which label, and how well, as a sentence."""
        what = f"{', '.join(_SURFACE)} together tell" if self.feature == TOGETHER else f"{self.feature} alone tells"
        return f"a shortcut in {self.split}: {what} {self.label} {self.value} with an AUC of {self.auc:.2f}."


def find_shortcuts(parts: Mapping[str, Sequence[LabelledQuestion]]) -> list[Shortcut]:
    """Return the AUC of each feature for each label of each split, highest first.

    A label with fewer than LEAST questions that have it, or have it not, is left out. `topic` is not held against a
    knowledge base: the questions of a topic share documents, and a document lies in one base.
    """
    found = [shortcut for split, part in parts.items() for shortcut in _find_in_split(split, part)]
    return sorted(found, key=lambda s: (-s.auc, s.split, s.label, s.value, s.feature))


def _read_first_word(question: LabelledQuestion) -> str:
    found = re.search(r"[^\W\d_]+(?:['’][^\W\d_]+)*", question.question)
    return found[0].casefold() if found else ""


Feature = Callable[[LabelledQuestion], str]
_SURFACE: Mapping[str, Feature] = {
    "length": lambda q: str(len(q.question.split())),
    "question mark": lambda q: "with" if "?" in q.question else "without",
    "first word": _read_first_word,
    "digit": lambda q: "with" if re.search(r"\d", q.question) else "without",
}
_FEATURES: Mapping[str, Feature] = {**_SURFACE, "topic": lambda q: q.topic}
_LABELS: Mapping[str, Callable[[LabelledQuestion], tuple[str, ...]]] = {
    "outcome": lambda q: (q.outcome,) if q.outcome else (),
    "route": lambda q: (q.route,) if q.route else (),
    "strategy": lambda q: (q.strategy,) if q.strategy else (),
    "source": lambda q: q.sources,
}


def _find_in_split(split: str, questions: Sequence[LabelledQuestion]) -> Iterator[Shortcut]:
    for label, values_of in _LABELS.items():
        carrying = [(q, values) for q in questions if (values := values_of(q))]
        if len(carrying) < 2 * LEAST:
            continue
        wanted = [name for name in _FEATURES if name != "topic" or label != "source"]
        traits = {name: [_FEATURES[name](q) for q, _ in carrying] for name in wanted}
        columns = {name: _number_traits(name, traits[name]) for name in wanted}
        for value in sorted({value for _, values in carrying for value in values}):
            has = [value in values for _, values in carrying]
            if LEAST <= sum(has) <= len(has) - LEAST:
                for feature, auc in _measure_aucs(columns, has).items():
                    found = Shortcut(split, label, value, feature, round(auc, 3), len(has), sum(has))
                    mend = _suggest_questions(found, traits.get(feature, ()), has) if found.warns else ""
                    yield replace(found, mend=mend)


def _number_traits(name: str, traits: Sequence[str]) -> list[int]:
    """Return traits as category numbers: lengths by quantile, rare ones as one."""
    if name == "length":
        lengths = np.array([int(trait) for trait in traits])
        edges = np.unique(np.quantile(lengths, np.linspace(0, 1, _BINS + 1)[1:-1]))
        return [int(place) for place in np.searchsorted(edges, lengths)]
    counts = Counter(traits)
    places = {trait: place for place, trait in enumerate(sorted(t for t, n in counts.items() if n >= _COMMON))}
    return [places.get(trait, len(places)) for trait in traits]


def _measure_aucs(columns: Mapping[str, Sequence[int]], has: Sequence[bool]) -> dict[str, float]:
    """Return the AUC of each feature's out-of-fold log-odds, and of their sum."""
    from scipy.stats import rankdata

    y = np.array(has)
    odds = {name: _predict_log_odds(np.array(column), y) for name, column in columns.items()}
    odds[TOGETHER] = np.sum([odds[name] for name in _SURFACE], axis=0)
    positives, negatives = int(y.sum()), int((~y).sum())
    least = positives * (positives + 1) / 2
    return {name: float((rankdata(o)[y].sum() - least) / (positives * negatives)) for name, o in odds.items()}


def _predict_log_odds(column: NDArray[np.int64], y: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return log-odds of the label by category, from the other folds, smoothed."""
    shuffled = np.random.default_rng(0).permutation(len(y))
    fold = np.empty(len(y), dtype=int)
    for side in (True, False):  # stratified: each fold has its share of either side
        of_side = shuffled[y[shuffled] == side]
        fold[of_side] = np.arange(len(of_side)) % _FOLDS
    counts = np.zeros((_FOLDS, 2, int(column.max()) + 1))
    np.add.at(counts, (fold, y.astype(int), column), 1)
    others = counts.sum(axis=0) - counts + 1.0
    logs = np.log(others / others.sum(axis=2, keepdims=True))
    odds: NDArray[np.float64] = (logs[:, 1] - logs[:, 0])[fold, column]
    return odds


def _suggest_questions(found: Shortcut, traits: Sequence[str], has: Sequence[bool]) -> str:
    """Return a sentence on the questions that would break the shortcut."""
    name = f"{found.label} {found.value}"
    if found.feature == TOGETHER:
        return f"Mix lengths, question marks, first words and digits alike with {name} and without it."
    if found.feature == "length":
        middle = median(map(int, traits))
        traits = [f"over {middle:g}" if int(words) > middle else f"at most {middle:g}" for words in traits]
    inside, outside = ([trait for trait, one in zip(traits, has, strict=True) if one == side] for side in (True, False))
    shares = {trait: (inside.count(trait) / len(inside), outside.count(trait) / len(outside)) for trait in set(traits)}
    telling = max(sorted(shares), key=lambda trait: abs(shares[trait][0] - shares[trait][1]))
    what = {
        "length": f"questions of {telling} words",
        "question mark": f"questions {telling} a question mark",
        "digit": f"questions {telling} a digit",
        "first word": f"questions that begin with {telling!r}",
        "topic": f"questions of the topic {telling!r}",
    }[found.feature]
    have, others = ("lack", "have") if shares[telling][0] > shares[telling][1] else ("have", "lack")
    of_inside, of_outside = (f"{100 * share:.0f} %" for share in shares[telling])
    are_such = f"of those that have it {of_inside} are such, of the others {of_outside}"
    return f"Add {what} that {have} {name}, and other questions that {others} it ({are_such})."
