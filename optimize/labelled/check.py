"""Whether labelled questions fit the knowledge and each other: errors and warnings, each with its remedy."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import get_args

from optimize.evaluation.stats import MIN_UNITS
from optimize.labelled.datarules import ERRORS, WARNINGS, Knowledge, NoTables, Tables
from optimize.labelled.dataset import LabelledQuestion, Outcome, Unread, splits
from optimize.labelled.leaks import Leak, leaks, near_duplicates, repeats
from optimize.labelled.shortcuts import SURFACE, TOGETHER, Shortcut, find_shortcuts
from program.passage import Flaw, Passage

WIDTH = 0.3
FEWEST = math.ceil((1.96 / WIDTH) ** 2 - 1.96**2)
"""The fewest questions for a 95 % interval of WIDTH at worst, at a share of one half (Wilson 1927)."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing wrong, and how to mend it."""

    id: str
    """Of the question; empty where it is no single one's."""
    line: int
    """In the file, from 1; 0 where it is no single line's."""
    what: str
    mend: str
    file: str = ""
    """Of a document, `<base>/<file>`; empty for the labelled questions."""


@dataclass(frozen=True, slots=True)
class Report:
    """What a check found; with no errors the questions are fit for use."""

    questions: int
    errors: list[Finding] = field(default_factory=list)
    warnings: list[Finding] = field(default_factory=list)
    shortcuts: list[Shortcut] = field(default_factory=list)
    """What each feature alone predicts, the strongest first; those above the bar are among the warnings."""

    @property
    def passed(self) -> bool:
        return not self.errors


def check(
    questions: Sequence[LabelledQuestion],
    passages: Mapping[str, Passage],
    tables: Tables | None = None,
    bases: Collection[str] = (),
    unread: Sequence[Unread] = (),
    flaws: Sequence[Flaw] = (),
) -> Report:
    """Find every contradiction between the questions, the knowledge and the splits.

    Errors would make a score wrong: evidence that does not exist, or that no sub-query has a word of, facts it does
    not state, labels at odds with each other, a reference answer that would not count as correct, anything shared by
    two splits, lines that are `unread`, and documents that lost part of what they say. `bases` names further knowledge
    bases, whose passages are known only when they are asked.
    Warnings weaken one: bare numbers, rivals beside facts, sub-queries that look up none of the evidence, passages
    that answer too, repeats, shortcuts, too few topics or questions of an outcome.
    """
    knowledge = Knowledge(passages, tables or NoTables(), bases)
    report = Report(len(questions))
    for flaw in flaws:
        found = Finding("", flaw.line, f"{flaw.what}.", flaw.mend, flaw.path)
        (report.errors if flaw.lost else report.warnings).append(found)
    report.errors.extend(Finding(one.id, one.line, one.error.what, one.error.mend) for one in unread)
    for question in questions:
        for rules, findings in ((ERRORS, report.errors), (WARNINGS, report.warnings)):
            findings += [
                Finding(question.id, question.line, what, mend)
                for rule in rules
                for what, mend in rule(question, knowledge)
            ]
    pairs = near_duplicates(questions)
    report.errors.extend(map(_finding, leaks(questions, pairs)))
    report.warnings.extend(map(_finding, repeats(pairs)))
    if questions and not unread:
        report.warnings.extend(_of_the_set(questions))
        report.shortcuts.extend(find_shortcuts(splits(questions)))
        report.warnings.extend(shortcut_warnings(report.shortcuts))
    for findings in (report.errors, report.warnings):
        findings.sort(key=lambda finding: (finding.file, finding.line))
    return report


def shortcut_warnings(shortcuts: Sequence[Shortcut]) -> Iterator[Finding]:
    """Tell of the strongest shortcut of each label of each split, where it is worth a warning."""
    strongest: dict[tuple[str, str, str], Shortcut] = {}
    for one in shortcuts:
        strongest.setdefault((one.split, one.label, one.value), one)
    for one in strongest.values():
        if one.warns:
            what = f"{one.feature} alone tells" if one.feature != TOGETHER else f"{', '.join(SURFACE)} together tell"
            told = f"a shortcut in {one.split}: {what} {one.label} {one.value} with an AUC of {one.auc:.2f}."
            yield Finding("", 0, told, one.mend)


def missing(parts: Mapping[str, Sequence[LabelledQuestion]]) -> tuple[str, str] | None:
    """Why a compile cannot begin on these splits, and the way out; None when it can."""
    uses = {"train": "learn from", "test": "test on"}
    empty = [use for name, use in uses.items() if not parts[name]]
    if not empty:
        return None
    topics = len({q.cluster for part in parts.values() for q in part})
    lacks = f"no labelled question is left to {' or '.join(empty)}"
    if topics < len(parts):
        held = "1 topic" if topics == 1 else f"{topics} topics"
        return (
            f"{lacks}: there {'is' if topics == 1 else 'are'} {held}, and a topic is never in two splits",
            f"label questions of at least {len(parts)} topics; thirty questions of twenty topics are a start",
        )
    return (
        f"{lacks}: the `split` fields, or the version begun from, put all {topics} topics elsewhere",
        "leave `split` out of some, or divide them anew: ragc data split PROJECT --again",
    )


def _of_the_set(questions: Sequence[LabelledQuestion]) -> Iterator[Finding]:
    """Where topics or outcomes are too few to learn from or to test on."""
    divided = splits(questions)
    if lacks := missing(divided):
        yield Finding("", 0, f"a compile cannot begin: {lacks[0]}.", f"{lacks[1][0].upper()}{lacks[1][1:]}.")
        return
    parts = {name: {q.cluster for q in part} for name, part in divided.items()}
    topics, test = len(set().union(*parts.values())), len(parts["test"])
    if topics < len(parts):
        split = ", ".join(f"{name} {len(part)}" for name, part in parts.items())
        what = f"topics: {topics} ({split}); a compile can choose on none and prove no gain."
        yield Finding("", 0, what, "Label questions of three topics at least; thirty of twenty topics are a start.")
    elif test < MIN_UNITS:
        what = f"topics to test on: {test}; with fewer than {MIN_UNITS} a compile can prove no gain."
        yield Finding("", 0, what, "Label questions of more topics: about 30 % of the questions are for test.")
    counts = Counter(q.outcome for q in divided["test"] if q.outcome)
    few = [f"{outcome} {counts[outcome]}" for outcome in get_args(Outcome) if counts[outcome] < FEWEST]
    if counts and few:
        what = f"test questions by outcome: {', '.join(few)}; an interval no wider than {WIDTH} takes {FEWEST} of each."
        yield Finding("", 0, what, "Label more of them: what is not asked in the test is not known.")


def _finding(leak: Leak) -> Finding:
    return Finding(leak.question.id, leak.question.line, leak.what, leak.mend)
