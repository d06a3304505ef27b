"""Whether labelled questions fit the knowledge and each other: errors and warnings, each with its remedy."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import get_args

from ragc.errors import DataError
from ragc.knowledge.project import Project
from ragc.optimize.labelled.dataset import SPLITS, DataFinding, LabelledQuestion, Outcome
from ragc.optimize.labelled.leaks import Link, link_questions
from ragc.optimize.labelled.rules import ERRORS, WARNINGS, Knowledge, read_corpus
from ragc.optimize.labelled.shortcuts import Shortcut, find_shortcuts
from ragc.optimize.labelled.split import split_questions
from ragc.optimize.labelled.units import MIN_UNITS
from ragc.passage import Flaw

WIDTH = 0.3
FEWEST = math.ceil((1.96 / WIDTH) ** 2 - 1.96**2)
"""The fewest questions for a 95 % interval of WIDTH at worst, at a share of one half (Wilson 1927)."""
MORE_TOPICS = (
    "Label questions of three topics at least; thirty questions of twenty topics are a start. "
    "Topics with a question in common count as one."
)
SHOWN = 3  # findings that the error of the gate quotes
NONE, TOTAL = "-", "total"  # a question without the label, and the column of all splits


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
    knowledge: Knowledge,
    unread: Sequence[DataFinding] = (),
    flaws: Sequence[Flaw] = (),
    parts: Parts | None = None,
    project: str = "PROJECT",
) -> CheckReport:
    """Find every contradiction between the questions, the knowledge and the splits.

    Errors would make a score wrong, warnings weaken one. `unread` and `flaws` are lines and documents with faults;
    `parts` are the splits where the `split` fields alone do not decide, `project` is the folder that remedies name.
    """
    report = CheckReport(len(questions))
    for flaw in flaws:
        findings = report.errors if flaw.lost else report.warnings
        findings.append(DataFinding("", flaw.line, f"{flaw.what}.", flaw.mend, flaw.path))
    report.errors.extend(unread)
    for question in questions:
        for rules, findings in ((ERRORS, report.errors), (WARNINGS, report.warnings)):
            findings.extend(
                _point_at(question, *complaint) for rule in rules for complaint in rule(question, knowledge)
            )
    links, divided = link_questions(tuple(questions)), split_questions(questions)
    where = {question.id: split for split, part in divided.items() for question in part}
    report.errors.extend(_find_contradictions(links.near))
    report.errors.extend(_find_leaks(links.binding, where))
    report.warnings.extend(_find_leaks(links.loose, where))
    report.warnings.extend(_find_repeats(links.near))
    if questions and not unread:
        report.warnings.extend(find_shortages(parts or divided, project))
        report.shortcuts.extend(find_shortcuts(parts or divided))
        report.warnings.extend(report.shortcut_warnings)
    for findings in (report.errors, report.warnings):
        findings.sort(key=lambda finding: (finding.file, finding.line))
    return report


def require_sound_labels(
    project: Project, questions: Sequence[LabelledQuestion], parts: Parts | None = None
) -> CheckReport:
    """Return the check of what is to be learnt. Raises `DataError` with first faults."""
    report = check_questions(questions, read_corpus(project), parts=parts, project=project.argument)
    if report.passed:
        return report
    first = "; ".join(f"line {f.line} ({f.id}): {f.what}" for f in report.errors[:SHOWN])
    wrong = "1 label is" if len(report.errors) == 1 else f"{len(report.errors)} labels are"
    raise DataError(f"{wrong} not in order: {first}", f"See them all with: ragc data check {project.argument}")


def find_shortages(parts: Parts, project: str) -> Iterator[DataFinding]:
    """Yield what a project's splits lack; where a compile cannot begin, only why."""
    topics = {name: {q.cluster for q in part} for name, part in parts.items()}
    known, tested = len(link_questions(tuple(q for part in parts.values() for q in part)).groups), len(topics["test"])
    uses = {"train": "learn from", "test": "test on"}
    if empty := [use for name, use in uses.items() if not parts[name]]:
        if known < len(parts):
            held = "is 1 topic" if known == 1 else f"are {known} topics"
            why, mend = f"there {held}, and a topic is never in two splits", MORE_TOPICS
        else:
            why = f"the `split` fields, or the version begun from, put all {known} topics elsewhere"
            mend = f"Leave `split` out of some, or divide them anew: ragc data split {project} --again."
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
    return DataFinding(question.id, question.line, what, mend, question.file)


def _find_leaks(links: Iterable[Link], where: Mapping[str, str]) -> Iterator[DataFinding]:
    """Yield each thing shared by questions of two splits, once a split."""
    seen = set()
    for link in links:
        split, other = where[link.other.id], where[link.first.id]
        if split != other and (link.shared, split) not in seen:
            seen.add((link.shared, split))
            what = f"{link.shared} is in {split} and, with {link.first.id}, in {other}."
            mend = "Put both into one split, or let `ragc data split --again` divide the questions."
            yield _point_at(link.other, what, mend)


def _find_contradictions(links: Iterable[Link]) -> Iterator[DataFinding]:
    """Yield questions in the very words of another one that has another outcome."""
    for link in links:
        one, two = link.first, link.other
        if link.equal and one.outcome and two.outcome and one.outcome != two.outcome:
            what = f"it is {two.outcome}, but the same question, {one.id} in line {one.line}, is {one.outcome}."
            yield _point_at(two, what, "Correct one of the two outcomes, or drop one of the questions.")


def _find_repeats(links: Iterable[Link]) -> Iterator[DataFinding]:
    """Yield questions in the words, and with the labels, of another of their split."""
    seen = set()
    for link in links:
        one, two = ((q.split, q.outcome, {*q.alternatives}, {*q.evidence}) for q in (link.first, link.other))
        if link.repeats and one == two and link.other.id not in seen:
            seen.add(link.other.id)
            what = f"it is nearly the question {link.first.id}, with the same labels: {link.first.question!r}."
            yield _point_at(link.other, what, "Drop one of them, or ask for something else.")
