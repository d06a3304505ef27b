"""Whether labelled questions fit the knowledge and each other: errors and warnings, each with its remedy."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import get_args

from optimize.labelled.dataset import MIN_UNITS, LabelledQuestion, Outcome, Unread
from optimize.labelled.facts import STOP, normalise_text
from optimize.labelled.rules import ERRORS, WARNINGS, Knowledge, ProjectTables, read_corpus
from optimize.labelled.shortcuts import Shortcut, find_shortcuts
from optimize.labelled.split import SPLITS, split_questions
from program.errors import DataError
from program.passage import Flaw, Passage
from program.project import Project

WIDTH = 0.3
FEWEST = math.ceil((1.96 / WIDTH) ** 2 - 1.96**2)
"""The fewest questions for a 95 % interval of WIDTH at worst, at a share of one half (Wilson 1927)."""
NEAR = 90.0
"""The token_set_ratio, 0 to 100, from which two questions count as one."""
LEAST_WORDS = 4
"""The fewest words of a question that is compared: shorter ones resemble each other by accident."""
SHOWN = 3
"""The findings that the error of the gate quotes."""
NONE = "-"
"""The value that stands for a question without the label."""
TOTAL = "total"
_ROWS = 256  # questions compared at a time, so that memory stays small


@dataclass(frozen=True, slots=True)
class DataFinding:
    """One thing wrong, and how to mend it."""

    id: str
    """The id of the question; empty where it is no single one's."""
    line: int
    """The line in the file, from 1; 0 where it is no single line's."""
    what: str
    """What is wrong."""
    mend: str
    """How to mend it."""
    file: str = ""
    """The document, `<base>/<file>`; empty for the labelled questions."""


@dataclass(frozen=True, slots=True)
class CheckReport:
    """What a check found; with no errors the questions are fit for use."""

    questions: int
    """The number of questions that were read."""
    errors: list[DataFinding] = field(default_factory=list)
    """What would make a score wrong."""
    warnings: list[DataFinding] = field(default_factory=list)
    """What would weaken a score."""
    shortcuts: list[Shortcut] = field(default_factory=list)
    """What each feature alone predicts, the strongest first."""

    @property
    def passed(self) -> bool:
        """Whether the check found no error."""
        return not self.errors

    @property
    def shortcut_warnings(self) -> list[DataFinding]:
        """A warning for the strongest shortcut of each label of each split."""
        strongest: dict[tuple[str, str, str], Shortcut] = {}
        for one in self.shortcuts:
            strongest.setdefault((one.split, one.label, one.value), one)
        return [DataFinding("", 0, one.describe(), one.mend) for one in strongest.values() if one.warns]


Parts = Mapping[str, Sequence[LabelledQuestion]]


def check_questions(
    questions: Sequence[LabelledQuestion],
    passages: Mapping[str, Passage],
    tables: ProjectTables | None = None,
    bases: Collection[str] = (),
    unread: Sequence[Unread] = (),
    flaws: Sequence[Flaw] = (),
    parts: Parts | None = None,
) -> CheckReport:
    """Find every contradiction between the questions, the knowledge and the splits.

    Errors would make a score wrong: evidence that does not exist, or that no sub-query has a word of, facts it does
    not state, labels at odds with each other, a reference answer that would not count as correct, anything shared by
    two splits, lines that are `unread`, and documents that lost part of what they say. Warnings weaken one: bare
    numbers, rivals beside facts, sub-queries that look up none of the evidence, passages that answer too, repeats,
    shortcuts, too few topics or questions of an outcome. `bases` names further knowledge bases, whose passages are
    known only when they are asked; `parts` are the splits where the `split` fields alone do not decide.
    """
    knowledge = Knowledge(passages, tables or ProjectTables(), bases)
    report = CheckReport(len(questions))
    for flaw in flaws:
        findings = report.errors if flaw.lost else report.warnings
        findings.append(DataFinding("", flaw.line, f"{flaw.what}.", flaw.mend, flaw.path))
    report.errors.extend(DataFinding(one.id, one.line, one.error.what, one.error.mend) for one in unread)
    for question in questions:
        for rules, findings in ((ERRORS, report.errors), (WARNINGS, report.warnings)):
            findings.extend(
                _point_at(question, *complaint) for rule in rules for complaint in rule(question, knowledge)
            )
    pairs = _find_near_duplicates(questions)
    report.errors.extend(_find_leaks(questions, pairs))
    report.warnings.extend(_find_repeats(pairs))
    if questions and not unread:
        divided = parts or split_questions(questions)
        report.warnings.extend(_find_shortages(divided))
        report.shortcuts.extend(find_shortcuts(divided))
        report.warnings.extend(report.shortcut_warnings)
    for findings in (report.errors, report.warnings):
        findings.sort(key=lambda finding: (finding.file, finding.line))
    return report


def require_sound_labels(
    project: Project, questions: Sequence[LabelledQuestion], parts: Parts | None = None
) -> CheckReport:
    """Return the check of the questions that a compile is to learn from.

    Raises `DataError`, with the first findings, when labels contradict the knowledge or each other.
    """
    corpus = read_corpus(project)
    report = check_questions(questions, corpus.passages, corpus.tables, parts=parts)
    if report.passed:
        return report
    first = "; ".join(f"line {f.line} ({f.id}): {f.what}" for f in report.errors[:SHOWN])
    wrong = "1 label is" if len(report.errors) == 1 else f"{len(report.errors)} labels are"
    raise DataError(f"{wrong} not in order: {first}", "See them all with: ragc data check PROJECT")


def find_empty_split(parts: Parts) -> tuple[str, str] | None:
    """Return why a compile cannot begin, and the way out; None when it can."""
    uses = {"train": "learn from", "test": "test on"}
    empty = [use for name, use in uses.items() if not parts[name]]
    if not empty:
        return None
    topics = len({q.cluster for part in parts.values() for q in part})
    lacks = f"no labelled question is left to {' or '.join(empty)}"
    if topics < len(parts):
        held = "is 1 topic" if topics == 1 else f"are {topics} topics"
        return (
            f"{lacks}: there {held}, and a topic is never in two splits",
            f"label questions of at least {len(parts)} topics; thirty questions of twenty topics are a start",
        )
    return (
        f"{lacks}: the `split` fields, or the version begun from, put all {topics} topics elsewhere",
        "leave `split` out of some, or divide them anew: ragc data split PROJECT --again",
    )


LabelCounts = dict[str, dict[str, dict[str, int]]]


def count_labels(questions: Sequence[LabelledQuestion]) -> LabelCounts:
    """Count questions by label, value and split, with `total` as the last split.

    Values come commonest first, "-" for a question without the label; a question with several tags or sources counts
    once under each.
    """
    labels: dict[str, Callable[[LabelledQuestion], Sequence[str | None]]] = {
        **{"all": lambda q: ["questions"], "outcome": lambda q: [q.outcome], "route": lambda q: [q.route]},
        **{"strategy": lambda q: [q.strategy], "source": lambda q: q.sources or [None]},
        **{"tag": lambda q: q.tags or [None], "topic": lambda q: [q.topic]},
    }
    columns = [*SPLITS, *([NONE] if any(q.split is None for q in questions) else []), TOTAL]
    counts: LabelCounts = {}
    for label, values_of in labels.items():
        table: dict[str, dict[str, int]] = {}
        for question in questions:
            for value in values_of(question):
                row = table.setdefault(value or NONE, dict.fromkeys(columns, 0))
                row[question.split or NONE] += 1
                row[TOTAL] += 1
        counts[label] = dict(sorted(table.items(), key=lambda item: (-item[1][TOTAL], item[0])))
    return counts


def _point_at(question: LabelledQuestion, what: str, mend: str) -> DataFinding:
    return DataFinding(question.id, question.line, what, mend)


def _find_shortages(parts: Parts) -> Iterator[DataFinding]:
    """Yield where topics or outcomes are too few to learn from or to test on."""
    if lacks := find_empty_split(parts):
        yield DataFinding("", 0, f"a compile cannot begin: {lacks[0]}.", f"{lacks[1][0].upper()}{lacks[1][1:]}.")
        return
    topics = {name: {q.cluster for q in part} for name, part in parts.items()}
    known, tested = len(set().union(*topics.values())), len(topics["test"])
    if known < len(parts):
        split = ", ".join(f"{name} {len(part)}" for name, part in topics.items())
        what = f"topics: {known} ({split}); a compile can choose on none and prove no gain."
        yield DataFinding("", 0, what, "Label questions of three topics at least; thirty of twenty topics are a start.")
    elif tested < MIN_UNITS:
        what = f"topics to test on: {tested}; with fewer than {MIN_UNITS} a compile can prove no gain."
        yield DataFinding("", 0, what, "Label questions of more topics: about 30 % of the questions are for test.")
    counts = Counter(q.outcome for q in parts["test"] if q.outcome)
    few = [f"{outcome} {counts[outcome]}" for outcome in get_args(Outcome) if counts[outcome] < FEWEST]
    if counts and few:
        what = f"test questions by outcome: {', '.join(few)}; an interval no wider than {WIDTH} takes {FEWEST} of each."
        yield DataFinding("", 0, what, "Label more of them: what is not asked in the test is not known.")


@dataclass(frozen=True, slots=True)
class _Pair:
    """Two questions, the words of one nearly all among the other's."""

    first: LabelledQuestion
    other: LabelledQuestion
    same: bool
    """Whether both have nearly the same words."""


def _find_leaks(questions: Sequence[LabelledQuestion], pairs: Iterable[_Pair]) -> Iterator[DataFinding]:
    """Yield each topic, passage and pair of questions that is in two splits."""
    split = [q for q in questions if q.split]
    yield from _find_shared(split, "the topic", lambda q: (q.topic,) if q.topic else ())
    yield from _find_shared(split, "the evidence", lambda q: tuple(i for i in q.evidence if "#" in i))
    for pair in pairs:
        first, other = pair.first, pair.other
        if first.split and other.split and first.split != other.split:
            what = f"it is nearly the question {first.id} of {first.split}: {first.question!r}."
            yield _point_at(other, what, "Reword one of them, or put both into one split.")


def _find_shared(
    questions: Sequence[LabelledQuestion], name: str, keys: Callable[[LabelledQuestion], Sequence[str]]
) -> Iterator[DataFinding]:
    first: dict[str, LabelledQuestion] = {}
    told = set()
    for question in questions:
        for key in keys(question):
            other = first.setdefault(key, question)
            if other.split != question.split and (key, question.split) not in told:
                told.add((key, question.split))
                what = f"{name} {key!r} is in {question.split} and, with {other.id}, in {other.split}."
                mend = "Put both into one split, or let `ragc data split --again` divide the questions."
                yield _point_at(question, what, mend)


def _find_repeats(pairs: Iterable[_Pair]) -> Iterator[DataFinding]:
    """Yield questions in the words, and with the labels, of another of their split."""
    told = set()
    for pair in pairs:
        (split, labels), (other_split, other_labels) = (
            (q.split, (q.outcome, frozenset(q.alternatives), frozenset(q.evidence))) for q in (pair.first, pair.other)
        )
        if pair.same and pair.other.id not in told and split == other_split and labels == other_labels:
            told.add(pair.other.id)
            what = f"it is nearly the question {pair.first.id}, with the same labels: {pair.first.question!r}."
            yield _point_at(pair.other, what, "Drop one of them, or ask for something else.")


def _find_near_duplicates(questions: Sequence[LabelledQuestion]) -> list[_Pair]:
    from rapidfuzz import fuzz

    texts = [normalise_text(q.question).replace(f" {STOP} ", " ").strip() for q in questions]
    pairs = []
    for one, other in sorted(_pair_alike([text.split() for text in texts])):
        if fuzz.token_set_ratio(texts[one], texts[other], score_cutoff=NEAR):
            same = fuzz.token_sort_ratio(texts[one], texts[other], score_cutoff=NEAR) > 0
            pairs.append(_Pair(questions[one], questions[other], same))
    return pairs


def _pair_alike(texts: Sequence[Sequence[str]]) -> Iterator[tuple[int, int]]:
    """Yield pairs of texts that share words of half the shorter one's letters.

    All pairs of thousands of questions are too many to compare letter by letter; a sparse product counts what each
    pair shares.
    """
    import numpy as np
    from scipy.sparse import csr_array

    rows = [n for n, words in enumerate(texts) if len(words) >= LEAST_WORDS]
    vocabulary: dict[str, int] = {}
    columns = [[vocabulary.setdefault(word, len(vocabulary)) for word in dict.fromkeys(texts[n])] for n in rows]
    if len(rows) < 2:
        return
    ends = np.cumsum([0, *map(len, columns)])
    flat = np.concatenate([np.asarray(c) for c in columns])
    has = csr_array((np.ones(len(flat), np.float32), flat, ends), shape=(len(rows), len(vocabulary)))
    weight = np.array([len(word) for word in vocabulary], np.float32)
    length = has @ weight
    weighted = csr_array(has.multiply(weight)).T.tocsr()
    for start in range(0, len(rows), _ROWS):
        shared = (has[start : start + _ROWS] @ weighted).toarray()
        shorter = np.minimum(length[start : start + _ROWS, None], length[None, :])
        for i, j in zip(*np.nonzero(shared >= shorter / 2), strict=True):
            if j > i + start:
                yield rows[i + start], rows[j]
