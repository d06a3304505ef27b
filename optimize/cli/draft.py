"""`ragc data draft`: questions drafted, and kept or dropped by a key."""

from __future__ import annotations

import getpass
import os
import shlex
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

from ragc.errors import DataError
from ragc.optimize.cli.show import AS_JSON, ProjectFolder, print_result, show_progress

if TYPE_CHECKING:
    from ragc.loop.reviewed import Drafts, FindPassage

KEYS = "k keep   d drop   e edit   b back   q go on later"
SHOWN = 600  # characters of a passage


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
