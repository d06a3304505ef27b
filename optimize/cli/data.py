"""`ragc data check`, `stats`, `split` and `import`: labelled questions validated, counted, divided, brought in."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from optimize.cli.show import Json, counted, print_json, print_table

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
    from optimize import datacheck
    from optimize.corpus import read_corpus
    from optimize.dataset import read_lines
    from program.errors import DataError
    from program.settings import Project

    project = Project.open(folder)
    questions, unread = read_lines(project.labelled)
    corpus = read_corpus(project)
    report = datacheck.check(questions, corpus.passages, corpus.tables, project.settings.knowledge, unread)
    if not unread:
        report.warnings[:0] = datacheck.too_few(questions)
    if json:
        print_json(
            {
                "passed": report.passed,
                "questions": report.questions,
                "errors": [asdict(finding) for finding in report.errors],
                "warnings": [asdict(finding) for finding in report.warnings],
            }
        )
    else:
        for title, findings in (("errors", report.errors), ("warnings", report.warnings)):
            if findings:
                rows = [[f"{f.line} {f.id}" if f.line else "all", f.what, f.mend] for f in findings[:PRINTED]]
                print_table(f"{title} in {project.labelled.name}", ["line, id", "what", "how to mend it"], rows)
            if len(findings) > PRINTED:
                typer.echo(f"{len(findings) - PRINTED} more {title}: --json lists them all.")
        for warning in corpus.warnings:
            typer.echo(warning, err=True)
        typer.echo(
            f"{counted(report.questions, 'question')}: {counted(len(report.errors), 'error')}, "
            f"{counted(len(report.warnings), 'warning')}"
        )
    if unread:
        raise DataError(
            f"{counted(len(unread), 'line')} of {project.labelled.name} cannot be read.",
            "Mend what is told, and check again.",
        )
    if not report.passed:
        raise typer.Exit(1)


def stats(folder: Folder, json: Json = False) -> None:
    """How many questions there are, by label and split."""
    from optimize.dataset import read_labelled
    from optimize.datastats import count
    from program.settings import Project

    project = Project.open(folder)
    counts = count(read_labelled(project.labelled, project.folder))
    if json:
        print_json(counts)
        return
    columns = list(counts["all"]["questions"])
    for label, values in counts.items():
        rows = [[value, *(str(n) if n else "" for n in numbers.values())] for value, numbers in values.items()]
        print_table(label, [label, *columns], rows)


def split(
    folder: Folder,
    seed: Annotated[int, typer.Option(help="Another seed divides otherwise.")] = 0,
    again: Annotated[bool, typer.Option("--again", help="Divide anew, whatever the `split` fields say.")] = False,
    json: Json = False,
) -> None:
    """Write a `split` into every question that has none: topics stay whole, about 50/20/30."""
    from optimize.dataset import read_labelled, splits
    from optimize.splitfile import write_splits
    from program.errors import DataError
    from program.settings import Project

    project = Project.open(folder)
    path = project.labelled
    questions = read_labelled(path, project.folder)
    if again:
        questions = [question.model_copy(update={"split": None}) for question in questions]
    parts = splits(questions, seed)
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
    from optimize.imports import import_set

    report = import_set(folder, source, format, base, limit)
    if json:
        print_json(asdict(report))
        return
    questions, passages = counted(report.questions, "question"), counted(report.passages, "passage")
    typer.echo(f"{questions} and {passages} of {report.format} into {folder}")
    if report.unchecked:
        typer.echo(f"  in no evidence word for word, and so no facts: {counted(report.unchecked, 'answer')}", err=True)
    typer.echo(f"Next: ragc data check {shlex.quote(str(folder))}")
