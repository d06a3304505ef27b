"""`ragc data check`, `split`, `import` and `draft`: labelled questions validated, counted, divided, made."""

from __future__ import annotations

import getpass
import os
import shlex
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from ragc.errors import DataError
from ragc.optimize.cli.show import (
    AS_JSON,
    ProjectFolder,
    count_noun,
    describe_looks,
    print_result,
    print_table,
    show_progress,
)

if TYPE_CHECKING:
    from ragc.loop.reviewed import Drafts, FindPassage
    from ragc.optimize.labelled.check import CheckReport, LabelCounts
    from ragc.optimize.labelled.dataset import DataFinding
    from ragc.optimize.labelled.imports import ImportReport
    from ragc.optimize.labelled.reviewed import JoinedReviews

KEYS = "k keep   d drop   e edit   b back   q go on later"
SHOWN = 600  # characters of a passage
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
            typer.echo(f"{kind}: {_locate_finding(finding, labelled)}" + f"\n    {finding.mend}" * bool(finding.mend))
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


def run_draft(
    folder: ProjectFolder,
    limit: Annotated[int, Option(min=1, help="How many drafts at most.")] = 50,
    keep: Annotated[list[str] | None, Option(metavar="ID", help="Keep this draft; may be repeated.")] = None,
    drop: Annotated[list[str] | None, Option(metavar="ID", help="Drop this draft; may be repeated.")] = None,
) -> None:
    """Draft questions on your documents, to keep or drop by a key.

    Without a language model headings, cells and terms ask. What is kept goes into the file of labelled questions.
    Without a terminal the drafts are printed, one a line.
    """
    import orjson

    from ragc.knowledge.project import Project
    from ragc.loop.reviewed import Drafts
    from ragc.optimize.labelled.draft import find_drafts

    project = Project.open(folder)
    drafts = Drafts(project)
    with show_progress("drafting") as advance:
        waiting, passages = find_drafts(project, 0 if keep or drop else limit, advance)
    if keep or drop:
        with project.named():
            labels = [drafts.keep(id_, passages.get, by=getpass.getuser()) for id_ in keep or ()]
            for id_ in drop or ():
                drafts.drop(id_)
        print_result(labels, lambda: _tell_end(folder, len(labels), len(drop or ()), drafts, passages.get))
    elif AS_JSON.get() or not (sys.stdin.isatty() and sys.stdout.isatty()):
        print_result(waiting, lambda: typer.echo("\n".join(orjson.dumps(row).decode() for row in waiting)))
    else:
        counts = _decide(waiting, drafts, passages.get)
        _tell_end(folder, counts["k"], counts["d"], drafts, passages.get)


def _decide(waiting: Sequence[dict[str, Any]], drafts: Drafts, find: FindPassage) -> Counter[str]:
    """Show the drafts one by one until all are decided or it is to go on later; return how often which key counted."""
    done, by, problem = list[str](), getpass.getuser(), ""
    while len(done) < len(waiting):
        draft = waiting[len(done)]
        _print_draft(draft, find, f"{len(done) + 1} of {len(waiting)}, {done.count('k')} kept", problem)
        began, problem, changes = time.monotonic(), "", {}
        try:
            key = _read_key().lower()
            if key == "e":
                changes, key = _edit(draft), "k"
        except EOFError:
            key = "q"
        if key in ("q", "\x04", ""):
            break
        try:
            if key == "k":
                drafts.keep(draft["id"], find, changes, by=by, seconds=time.monotonic() - began)
            elif key == "d":
                drafts.drop(draft["id"])
            elif key == "b" and done:
                done.pop()
                drafts.reopen(waiting[len(done)]["id"])
        except DataError as error:
            problem = str(error)
        else:
            done += [key] if key in ("k", "d") else []
    return Counter(done)


def _read_key() -> str:
    """Return the next key, one too that was pressed before it was waited for."""
    try:
        import termios
        import tty
    except ImportError:  # on Windows, where no key is lost
        return typer.getchar()
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    try:
        tty.setcbreak(terminal, termios.TCSADRAIN)
        return os.read(terminal, 1).decode(errors="replace")
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


def _print_draft(draft: dict[str, Any], find: FindPassage, place: str, problem: str) -> None:
    typer.echo(f"\n{place}")
    for passage in filter(None, map(find, draft["evidence"])):
        text = passage.text if len(passage.text) <= SHOWN else f"{passage.text[:SHOWN]}..."
        typer.secho(f"{passage.id}\n{text}\n", dim=True)
    typer.secho(draft["question"], bold=True)
    typer.echo("\n".join(f"  {fact}" for fact in draft["facts"]))
    typer.echo(f"{problem}\n{KEYS}" if problem else KEYS)


def _edit(draft: dict[str, Any]) -> dict[str, Any]:
    """Return the question and the facts as they are typed; Enter leaves each as it is."""
    question = typer.prompt("question", draft["question"]).strip()
    facts = typer.prompt("facts, parted by |", " | ".join(draft["facts"]))
    return {"question": question, "facts": [fact.strip() for fact in facts.split("|") if fact.strip()]}


def _tell_end(folder: Path, kept: int, dropped: int, drafts: Drafts, find: FindPassage) -> None:
    left, named = len(drafts.list_waiting(find)), shlex.quote(str(folder))
    typer.echo(f"{kept} kept, {dropped} dropped, {left} left")
    typer.echo(f"Next: ragc data check {named}" + f"; go on with: ragc data draft {named}" * bool(left))


VERBS = (run_check, run_split, run_import, run_draft)
