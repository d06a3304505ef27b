"""Whether labelled questions fit the knowledge and each other: errors and warnings, each with its remedy."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from optimize.datarules import ERRORS, WARNINGS, Knowledge, NoTables, Tables
from optimize.dataset import LabelledQuestion, Unread, splits
from optimize.leaks import Leak, leaks
from optimize.stats import MIN_UNITS
from program.knowledge.source import Passage


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing wrong: with which question (its id and line), what, and how to mend it."""

    id: str
    line: int
    what: str
    mend: str


@dataclass(frozen=True, slots=True)
class Report:
    """What a check found in `questions` questions; with no errors the questions are fit for use."""

    questions: int
    errors: list[Finding] = field(default_factory=list)
    warnings: list[Finding] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        return not self.errors


def check(
    questions: Sequence[LabelledQuestion],
    passages: Mapping[str, Passage],
    tables: Tables | None = None,
    bases: Collection[str] = (),
    unread: Sequence[Unread] = (),
) -> Report:
    """Every contradiction between the questions, the knowledge and the splits.

    Errors would make a score wrong: evidence that does not exist, or that no sub-query has a word of, facts it does
    not state, labels at odds with each other, a reference answer that would not count as correct, anything shared by
    two splits, and lines that are `unread`. `bases` names further knowledge bases, whose passages are known only when
    they are asked.
    Warnings weaken one: bare numbers, sub-queries that look up none of the evidence.
    """
    knowledge = Knowledge(passages, tables or NoTables(), bases)
    report = Report(len(questions))
    report.errors.extend(Finding(one.id, one.line, one.error.what, one.error.mend) for one in unread)
    for question in questions:
        for rules, findings in ((ERRORS, report.errors), (WARNINGS, report.warnings)):
            findings += [
                Finding(question.id, question.line, what, mend)
                for rule in rules
                for what, mend in rule(question, knowledge)
            ]
    report.errors.extend(_finding(leak) for leak in leaks(questions))
    for findings in (report.errors, report.warnings):
        findings.sort(key=lambda finding: finding.line)
    return report


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


def too_few(questions: Sequence[LabelledQuestion]) -> list[Finding]:
    """Where the topics do not go round the three splits, or are too few to test on: a warning, of no line."""
    divided = splits(questions)
    if lacks := missing(divided):
        return [Finding("", 0, f"a compile cannot begin: {lacks[0]}", lacks[1])]
    parts = {name: {q.cluster for q in part} for name, part in divided.items()}
    topics, test = len(set().union(*parts.values())), len(parts["test"])
    if topics < len(parts):
        split = ", ".join(f"{name} {len(part)}" for name, part in parts.items())
        return [
            Finding(
                "",
                0,
                f"topics: {topics} ({split}); a compile can choose on none and prove no gain",
                "label questions of at least three topics; thirty questions of twenty topics are a start",
            )
        ]
    if test < MIN_UNITS:
        return [
            Finding(
                "",
                0,
                f"topics to test on: {test}; with fewer than {MIN_UNITS} a compile can prove no gain",
                "label questions of more topics: about 30 % of the questions are for test",
            )
        ]
    return []


def _finding(leak: Leak) -> Finding:
    return Finding(leak.question.id, leak.question.line, leak.what, leak.mend)
