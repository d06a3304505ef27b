"""Whether labelled questions fit the knowledge and each other: errors and warnings, each with its remedy."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import get_args

import numpy as np
from scipy.sparse import csr_array

from optimize.labelled.dataset import MIN_UNITS, LabelledQuestion, Outcome, Unread
from optimize.labelled.facts import STOP, normalise_text
from optimize.labelled.rules import ERRORS, WARNINGS, Knowledge, ProjectTables, read_corpus
from optimize.labelled.shortcuts import Shortcut, find_shortcuts
from optimize.labelled.split import SPLITS, split_questions
from program.errors import DataError
from program.knowledge.project import Project
from program.passage import Flaw, Passage

WIDTH = 0.3
FEWEST = math.ceil((1.96 / WIDTH) ** 2 - 1.96**2)
"""The fewest questions for a 95 % interval of WIDTH at worst, at a share of one half (Wilson 1927)."""
NEAR, SAME = 0.82, 0.9
"""The shares of letters in shared words, of the shorter question's and of both, from which two count as alike."""
MORE_TOPICS = "Label questions of three topics at least; thirty questions of twenty topics are a start."
LEAST_WORDS = 4  # shorter questions resemble each other by accident
SHOWN = 3  # findings that the error of the gate quotes
NONE, TOTAL = "-", "total"  # a question without the label, and the column of all splits
_ROWS = 256  # questions compared at a time, so that memory stays small


@dataclass(frozen=True, slots=True)
class DataFinding:
    """One thing wrong, and how to mend it."""

    id: str  # the id of the question; empty where it is no single one's
    line: int  # the line in the file, from 1; 0 where it is no single line's
    what: str  # what is wrong
    mend: str  # how to mend it
    file: str = ""  # the document, `<base>/<file>`; empty for the labelled questions


@dataclass(frozen=True, slots=True)
class CheckReport:
    """What a check found; with no errors the questions are fit for use."""

    questions: int  # the number of questions that were read
    errors: list[DataFinding] = field(default_factory=list)  # what would make a score wrong
    warnings: list[DataFinding] = field(default_factory=list)  # what would weaken a score
    shortcuts: list[Shortcut] = field(default_factory=list)  # what each feature alone predicts, the strongest first

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

    Errors would make a score wrong, warnings weaken one. `bases` names further knowledge bases, whose passages are
    known only when they are asked; `unread` and `flaws` are lines and documents with faults; `parts` are the splits
    where the `split` fields alone do not decide.
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
        report.warnings.extend(find_shortages(divided))
        report.shortcuts.extend(find_shortcuts(divided))
        report.warnings.extend(report.shortcut_warnings)
    for findings in (report.errors, report.warnings):
        findings.sort(key=lambda finding: (finding.file, finding.line))
    return report


def require_sound_labels(
    project: Project, questions: Sequence[LabelledQuestion], parts: Parts | None = None
) -> CheckReport:
    """Return the check of what is to be learnt. Raises `DataError` with first faults."""
    corpus = read_corpus(project)
    report = check_questions(questions, corpus.passages, corpus.tables, parts=parts)
    if report.passed:
        return report
    first = "; ".join(f"line {f.line} ({f.id}): {f.what}" for f in report.errors[:SHOWN])
    wrong = "1 label is" if len(report.errors) == 1 else f"{len(report.errors)} labels are"
    raise DataError(f"{wrong} not in order: {first}", "See them all with: ragc data check PROJECT")


def find_shortages(parts: Parts) -> Iterator[DataFinding]:
    """Yield what the splits lack; where a compile cannot begin, only why."""
    topics = {name: {q.cluster for q in part} for name, part in parts.items()}
    known, tested = len(set().union(*topics.values())), len(topics["test"])
    uses = {"train": "learn from", "test": "test on"}
    if empty := [use for name, use in uses.items() if not parts[name]]:
        if known < len(parts):
            held = "is 1 topic" if known == 1 else f"are {known} topics"
            why, mend = f"there {held}, and a topic is never in two splits", MORE_TOPICS
        else:
            why = f"the `split` fields, or the version begun from, put all {known} topics elsewhere"
            mend = "Leave `split` out of some, or divide them anew: ragc data split PROJECT --again."
        what = f"a compile cannot begin: no labelled question is left to {' or '.join(empty)}: {why}."
        yield DataFinding("", 0, what, mend)
        return
    if known < len(parts):
        split = ", ".join(f"{name} {len(part)}" for name, part in topics.items())
        what = f"topics: {known} ({split}); a compile can choose on none and prove no gain."
        yield DataFinding("", 0, what, MORE_TOPICS)
    elif tested < MIN_UNITS:
        what = f"topics to test on: {tested}; with fewer than {MIN_UNITS} a compile can prove no gain."
        yield DataFinding("", 0, what, "Label questions of more topics: about 30 % of the questions are for test.")
    counts = Counter(q.outcome for q in parts["test"] if q.outcome)
    few = [f"{outcome} {counts[outcome]}" for outcome in get_args(Outcome) if counts[outcome] < FEWEST]
    if counts and few:
        what = f"test questions by outcome: {', '.join(few)}; an interval no wider than {WIDTH} takes {FEWEST} of each."
        yield DataFinding("", 0, what, "Label more of them: what is not asked in the test is not known.")


LabelCounts = dict[str, dict[str, dict[str, int]]]


def count_labels(questions: Sequence[LabelledQuestion]) -> LabelCounts:
    """Count questions by label, value (commonest first) and split (`total` last)."""
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


Pair = tuple[LabelledQuestion, LabelledQuestion, bool]
"""Two questions, the words of one nearly all among the other's, and whether both have nearly the same words."""


def _find_leaks(questions: Sequence[LabelledQuestion], pairs: Iterable[Pair]) -> Iterator[DataFinding]:
    split = [q for q in questions if q.split]
    yield from _find_shared(split, "the topic", lambda q: (q.topic,) if q.topic else ())
    yield from _find_shared(split, "the evidence", lambda q: tuple(i for i in q.evidence if "#" in i))
    for first, other, _ in pairs:
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


def _find_repeats(pairs: Iterable[Pair]) -> Iterator[DataFinding]:
    """Yield questions in the words, and with the labels, of another of their split."""
    told = set()
    for first, other, same in pairs:
        one, two = ((q.split, q.outcome, {*q.alternatives}, {*q.evidence}) for q in (first, other))
        if same and one == two and other.id not in told:
            told.add(other.id)
            what = f"it is nearly the question {first.id}, with the same labels: {first.question!r}."
            yield _point_at(other, what, "Drop one of them, or ask for something else.")


def _find_near_duplicates(questions: Sequence[LabelledQuestion]) -> list[Pair]:
    """Return pairs of questions by the letters of the words they share, counted by a sparse product."""
    texts = [normalise_text(q.question).replace(f" {STOP} ", " ").split() for q in questions]
    rows = [n for n, words in enumerate(texts) if len(words) >= LEAST_WORDS]
    if len(rows) < 2:
        return []
    vocabulary: dict[str, int] = {}
    columns = [vocabulary.setdefault(word, len(vocabulary)) for n in rows for word in dict.fromkeys(texts[n])]
    ends = np.cumsum([0, *(len(set(texts[n])) for n in rows)])
    has = csr_array((np.ones(len(columns), np.float32), columns, ends), shape=(len(rows), len(vocabulary)))
    weight = np.array([len(word) + 1 for word in vocabulary], np.float32)
    length, weighted = has @ weight, csr_array(has.multiply(weight)).T.tocsr()
    pairs = []
    for start in range(0, len(rows), _ROWS):
        shared = (has[start : start + _ROWS] @ weighted).toarray()
        own, others = length[start : start + _ROWS, None], length[None, :]
        same = 2 * shared >= SAME * (own + others)
        for i, j in zip(*np.nonzero(shared >= NEAR * np.minimum(own, others)), strict=True):
            if j > i + start:
                pairs.append((questions[rows[i + start]], questions[rows[j]], bool(same[i, j])))
    return pairs
