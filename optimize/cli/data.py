"""`ragc data check`, `stats`, `split` and `import`: labelled questions validated, counted, divided, brought in."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from optimize.cli.show import Json, counted, print_json, print_table

if TYPE_CHECKING:
    from optimize.labelled.check import CheckReport, DataFinding

PRINTED = 50
"""Of errors, and of warnings, at most; `--json` has all."""
Folder = Annotated[Path, typer.Argument(help="The project folder.")]


def register(app: typer.Typer) -> None:
    """Adds the verbs, under `data`."""
    data = typer.Typer(help="Validate, count and divide the labelled questions.", no_args_is_help=True)
    for verb in (check, stats, split):
        data.command()(verb)
    data.command("import")(import_)
    app.add_typer(data, name="data")


def check(folder: Folder, json: Json = False) -> None:
    """Whether questions, knowledge and splits agree; exit code 1 when they do not, 2 when a line cannot be read."""
    from optimize.labelled import check as datacheck
    from optimize.labelled.dataset import read_lines
    from optimize.labelled.rules import read_corpus
    from program.errors import DataError
    from program.project import Project

    project = Project.open(folder)
    questions, unread = read_lines(project.labelled)
    corpus = read_corpus(project)
    bases = project.settings.knowledge
    report = datacheck.check_questions(questions, corpus.passages, corpus.tables, bases, unread, corpus.flaws)
    if json:
        print_json(
            {
                "passed": report.passed,
                "questions": report.questions,
                "errors": [asdict(finding) for finding in report.errors],
                "warnings": [asdict(finding) for finding in report.warnings],
                "shortcuts": [asdict(shortcut) for shortcut in report.shortcuts],
            }
        )
    else:
        _print_shortcuts(report)
        for title, findings in (("error", report.errors), ("warning", report.warnings)):
            for finding in findings[:PRINTED]:  # no table: an id that is broken in two cannot be copied
                typer.echo(f"{title}: {_told(finding, project.labelled.name)}\n    {finding.mend}")
            if len(findings) > PRINTED:
                typer.echo(f"{len(findings) - PRINTED} more {title}s: --json lists them all.")
        read = counted(report.questions, "question")
        if unread:
            read = f"{counted(report.questions + len(unread), 'line')}, {read} read"
        errors, warnings = counted(len(report.errors), "error"), counted(len(report.warnings), "warning")
        typer.echo(f"{read}: {errors}, {warnings}")
    if unread:
        raise DataError(
            f"{counted(len(unread), 'line')} of {project.labelled.name} cannot be read.",
            "Mend what is told, and check again.",
        )
    if not report.passed:
        raise typer.Exit(1)


def _told(finding: DataFinding, labelled: str) -> str:
    where = finding.file or labelled
    if finding.what.startswith(f"{where} line {finding.line}"):  # of a line that cannot be read it says so itself
        return finding.what
    line = f" line {finding.line}" if finding.line else ""
    return f"{where}{line}{f' ({finding.id})' if finding.id else ''}: {finding.what}"


def _print_shortcuts(report: CheckReport) -> None:
    """For each label the strongest shortcut of each split."""
    from optimize.labelled.split import SPLITS

    best: dict[str, dict[str, str]] = {}
    parts: list[str] = []
    for shortcut in report.shortcuts:
        row = best.setdefault(f"{shortcut.label} {shortcut.value}", {})
        row.setdefault(shortcut.split, f"{shortcut.auc:.2f} {shortcut.feature}")
        parts += [shortcut.split] if shortcut.split not in parts else []
    columns = [name for name in SPLITS if name in parts]
    rows = [[label, *(row.get(name, "-") for name in columns)] for label, row in sorted(best.items())]
    if rows:
        print_table("strongest shortcut, AUC (0.50: none)", ["label", *columns], rows)


def stats(folder: Folder, json: Json = False) -> None:
    """How many questions there are, by label and split, and how often the test split was looked at."""
    from optimize.labelled.check import count_labels
    from optimize.labelled.dataset import read_labelled
    from optimize.labelled.split import split_questions
    from optimize.registry.versions import count_test_uses
    from program.project import Project

    project = Project.open(folder)
    questions = read_labelled(project.labelled, project.folder)
    counts = count_labels(questions)
    looks = count_test_uses(project.artifacts, project.name, [q.question for q in split_questions(questions)["test"]])
    if json:
        print_json({**counts, "test_looks": looks})
        return
    columns = list(counts["all"]["questions"])
    for label, values in counts.items():
        rows = [[value, *(str(n) if n else "" for n in numbers.values())] for value, numbers in values.items()]
        print_table(label, [label, *columns], rows)
    typer.echo(f"The test split was looked at {counted(looks, 'time')}.")


def split(
    folder: Folder,
    seed: Annotated[int, typer.Option(help="Another seed divides otherwise.")] = 0,
    again: Annotated[bool, typer.Option("--again", help="Divide anew, whatever the `split` fields say.")] = False,
    json: Json = False,
) -> None:
    """Write a `split` into every question that has none: topics stay whole, about 50/20/30."""
    from optimize.labelled.dataset import read_labelled
    from optimize.labelled.split import split_questions, write_splits
    from program.errors import DataError
    from program.project import Project

    project = Project.open(folder)
    path = project.labelled
    questions = read_labelled(path, project.folder)
    if again:
        questions = [question.model_copy(update={"split": None}) for question in questions]
    parts = split_questions(questions, seed)
    if empty := [name for name, part in parts.items() if not part]:
        raise DataError(f"No question is left for {' and '.join(empty)}.", "Label questions of at least three topics.")
    changed = write_splits(path, {question.id: name for name, part in parts.items() for question in part})
    sizes = {name: len(part) for name, part in parts.items()}
    if json:
        print_json({"changed": changed, "splits": sizes})
        return
    shown = ", ".join(f"{name} {size}" for name, size in sizes.items())
    typer.echo(f"{shown}; {counted(changed, 'line')} changed in {path.name}")


def import_(
    folder: Folder,
    source: Annotated[Path, typer.Argument(help="The set: a file, or a BEIR folder.")],
    format: Annotated[
        str, typer.Option(help="beir, hotpotqa, 2wiki, musique, squad or csv; told by the file if not given.")
    ] = "",
    base: Annotated[str, typer.Option(help="The knowledge base to make; the format's name if not given.")] = "",
    limit: Annotated[int | None, typer.Option(min=1, help="Take the first so many questions only.")] = None,
    json: Json = False,
) -> None:
    """A public question set as a knowledge base and labelled questions; the project is made when there is none."""
    from optimize.labelled.imports import import_set

    report = import_set(folder, source, format, base, limit)
    if json:
        print_json(asdict(report))
        return
    questions, passages = counted(report.questions, "question"), counted(report.passages, "passage")
    typer.echo(f"{questions} and {passages} of {report.format} into {folder}")
    if report.unchecked:
        typer.echo(f"  in no evidence word for word, and so no facts: {counted(report.unchecked, 'answer')}", err=True)
    typer.echo(f"Next: ragc data check {shlex.quote(str(folder))}")
