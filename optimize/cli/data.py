"""`ragc data check`, `split`, `import` and `draft`: labelled questions validated, counted, divided, made."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from ragc.errors import DataError
from ragc.optimize.cli.draft import run_draft
from ragc.optimize.cli.show import ProjectFolder, count_noun, describe_looks, print_result, print_table, show_progress

if TYPE_CHECKING:
    from ragc.optimize.labelled.check import CheckReport, LabelCounts
    from ragc.optimize.labelled.dataset import DataFinding
    from ragc.optimize.labelled.imports import ImportReport
    from ragc.optimize.labelled.reviewed import JoinedReviews

PRINTED = 50  # errors, and warnings, that are printed at most; `--json` has all


def run_check(folder: ProjectFolder) -> None:
    """Check that questions, knowledge and splits agree, and count them by label.

    Exit code 1 when they do not, 2 when a line cannot be read.
    """
    from ragc.knowledge.project import Project
    from ragc.optimize.labelled.check import check_questions, count_labels
    from ragc.optimize.labelled.dataset import read_lines
    from ragc.optimize.labelled.reviewed import join_reviewed
    from ragc.optimize.labelled.rules import read_corpus
    from ragc.optimize.labelled.split import split_questions
    from ragc.optimize.registry.versions import count_test_uses

    project = Project.open(folder)
    questions, unread = read_lines(project.labelled)
    with show_progress("checking"):
        corpus, reviewed = read_corpus(project), join_reviewed(project, split_questions(questions))
        questions, parts, unread = reviewed.questions, reviewed.parts, [*unread, *reviewed.unread]
        report = check_questions(questions, corpus, unread, corpus.read.flaws, parts, project.argument)
    labels, labelled = count_labels(questions), project.labelled.name
    looks = count_test_uses(project.artifacts, project.name, [one.conversation for one in parts["test"]])
    counts = {"reviewed": reviewed.joined, "reviewed_left_out": reviewed.left_out, "labels": labels}
    shape = {"passed": report.passed, **asdict(report), **counts, "test_looks": looks}

    def tell() -> None:
        if questions:
            _print_counts(labels, looks)
        _print_check(report, labelled, len(unread), reviewed)

    print_result(shape, tell, int(not report.passed and not unread))
    if unread:
        files = " and ".join(sorted({one.file or labelled for one in unread}))
        what = f"{count_noun(len(unread), 'line')} of {files} cannot be read."
        raise DataError(what, "Mend what is told, and check again.")


def _print_check(report: CheckReport, labelled: str, unread: int, reviewed: JoinedReviews) -> None:
    _print_shortcuts(report)
    for kind, findings in (("error", report.errors), ("warning", report.warnings)):
        for finding in findings[:PRINTED]:  # no table: an id that is broken in two cannot be copied
            typer.echo(f"{kind}: {_locate_finding(finding, labelled)}\n    {finding.mend}")
        if len(findings) > PRINTED:
            typer.echo(f"{len(findings) - PRINTED} more {kind}s: --json lists them all.")
    read = count_noun(report.questions, "question")
    if unread:
        read = f"{count_noun(report.questions + unread, 'line')}, {read} read"
    amiss = f"{count_noun(len(report.errors), 'error')}, {count_noun(len(report.warnings), 'warning')}"
    typer.echo(f"{read}: {amiss}")
    if reviewed.joined or reviewed.left_out:
        out = f"; {reviewed.left_out} left out, which share a passage or words with test questions"
        typer.echo(f"{reviewed.joined} of them reviewed{out * bool(reviewed.left_out)}")


def _locate_finding(finding: DataFinding, labelled: str) -> str:
    where = finding.file or labelled
    if finding.what.startswith(f"{where} line {finding.line}"):  # of a line that cannot be read it says so itself
        return finding.what
    line = f" line {finding.line}" if finding.line else ""
    return f"{where}{line}{f' ({finding.id})' if finding.id else ''}: {finding.what}"


def _print_shortcuts(report: CheckReport) -> None:
    """Print for each label the strongest shortcut of each split."""
    from ragc.optimize.labelled.dataset import SPLITS

    best: dict[str, dict[str, str]] = {}
    for one in report.shortcuts:
        best.setdefault(f"{one.label} {one.value}", {}).setdefault(one.split, f"{one.auc:.2f} {one.feature}")
    columns = [name for name in SPLITS if any(name in row for row in best.values())]
    rows = [[label, *(row.get(name, "-") for name in columns)] for label, row in sorted(best.items())]
    if rows:
        print_table("strongest shortcut, AUC (0.50: none)", ["label", *columns], rows)


def _print_counts(counts: LabelCounts, looks: int) -> None:
    columns = list(counts["all"]["questions"])
    rows = [
        [f"{label} {value}", *(str(n or "") for n in numbers.values())]
        for label, values in counts.items()
        for value, numbers in values.items()
    ]
    print_table("labelled questions", ["label", *columns], rows)
    typer.echo(describe_looks(looks, "The test split was"))


def run_split(
    folder: ProjectFolder,
    seed: Annotated[int, Option(help="Another seed divides otherwise.")] = 0,
    again: Annotated[bool, Option("--again", help="Divide anew, whatever the `split` fields say.")] = False,
) -> None:
    """Divide the questions by whole topics. About 50/20/30 are written."""
    from ragc.knowledge.project import Project
    from ragc.optimize.labelled.dataset import read_labelled
    from ragc.optimize.labelled.split import split_questions, write_splits

    project = Project.open(folder)
    questions = read_labelled(project.labelled, project.folder)
    if again:
        questions = [question.model_copy(update={"split": None}) for question in questions]
    parts = split_questions(questions, seed)
    if empty := [name for name, part in parts.items() if not part]:
        raise DataError(f"No question is left for {' and '.join(empty)}.", "Label questions of at least three topics.")
    changed = write_splits(project.labelled, {one.id: name for name, part in parts.items() for one in part})
    sizes = {name: len(part) for name, part in parts.items()}
    listed = ", ".join(f"{name} {size}" for name, size in sizes.items())
    line = f"{listed}; {count_noun(changed, 'line')} changed in {project.labelled.name}"
    print_result({"changed": changed, "splits": sizes}, lambda: typer.echo(line))


def run_import(
    folder: ProjectFolder,
    source: Annotated[Path, Argument(help="The set: a table, test cases, a public set, or a BEIR folder.")],
    format: Annotated[
        str,
        Option(
            help="beir, hotpotqa, 2wiki, musique, squad, csv (.xlsx too), ragas, deepeval, promptfoo or evals;"
            " else told by the file."
        ),
    ] = "",
    base: Annotated[str, Option(help="The knowledge base to make; the format's name if not given.")] = "",
    limit: Annotated[int | None, Option(min=1, help="Take the first so many questions only.")] = None,
    question: Annotated[str, Option(metavar="COLUMN", help="The column of the questions.")] = "",
    answer: Annotated[str, Option(metavar="COLUMN", help="The column of the answers.")] = "",
    abstain: Annotated[bool, Option("--abstain", help="Abstain from questions without an answer.")] = False,
) -> None:
    """Bring in questions and answers: a table, a tool's test cases, a public set.

    An answer without a context is looked up in the documents of the project. The project is made if there is none.
    """
    from ragc.optimize.labelled.imports import import_set

    with show_progress("importing"):
        report = import_set(folder, source, format, base, limit, question=question, answer=answer, abstain=abstain)
    print_result(report, lambda: _print_imported(report, folder))


def _print_imported(report: ImportReport, folder: Path) -> None:
    questions, passages = count_noun(report.questions, "question"), count_noun(report.passages, "passage")
    typer.echo(f"{questions} and {passages} of {report.format} into {folder}")
    for flaw in report.flaws:
        typer.echo(f"  {flaw}", err=True)
    if report.proposed:
        answers = count_noun(report.proposed, "answer")
        typer.echo(f"  found in your documents, evidence and facts proposed (tag `proposed`): {answers}", err=True)
    if report.unchecked:
        answers = count_noun(report.unchecked, "answer")
        typer.echo(f"  in no evidence word for word, and so no facts: {answers}", err=True)
    if report.contrary:
        questions = count_noun(report.contrary, "unanswerable question")
        typer.echo(f"  left out, since the set answers the same words elsewhere: {questions}", err=True)
    typer.echo(f"Next: ragc data check {shlex.quote(str(folder))}")


VERBS = (run_check, run_split, run_import, run_draft)
