"""`ragc init`, `doctor` and `index`: a project folder, what it needs, and its index."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from ragc.optimize.cli.show import ProjectFolder, count_noun, print_result, print_table, show_progress

if TYPE_CHECKING:
    from ragc.knowledge.index.build import IndexReport
    from ragc.knowledge.project import Project
    from ragc.passage import ReadReport

PRINTED = 20  # flaws that are printed at most
TOML = """name = "{name}"
artifacts = "artifacts"

[models]                       # "local/..." needs no key and no download; any LiteLLM name works too
decide = "local/reader"
write = "local/reader"
embed = "local/minilm"

[knowledge.docs]               # one table for each knowledge base; its text is what the router goes by
kind = "documents"             # documents | graph | tables | web | http
path = "{path}"{gap}# .md .txt .html .pdf .docx .pptx .xlsx .csv .json .eml and more, folders too
about = "what this knowledge base holds"
asks = ["A question it answers?"]
not = []                       # boundary cases: "invoices and refunds: billing"

[answer]
links = []                     # hosts whose web addresses an answer may show, as "help.example.com"; others are removed

[labelled]
path = "labelled.jsonl"        # one JSON object a line: docs/your-own.md says how
"""
DOCUMENT = """---
title: Opening hours
as_of: 2026-01-01
authority: official
---
# Opening hours
Replace this with your own documents. The shop is open from 9 to 17 on working days.
"""
LABELLED = (
    '{"id":"q1","question":"When is the shop open?","topic":"hours","outcome":"answered","route":"simple",'
    '"sources":["docs"],"evidence":["docs/hours.md#opening-hours"],"facts":["9 to 17"],"tags":["single-fact"]}\n'
)


def run_init(folder: ProjectFolder) -> None:
    """Make a project folder to fill in, or of a folder of documents."""
    from ragc.errors import SettingsError
    from ragc.knowledge.ingest.folder import list_documents
    from ragc.serve.reference import name_from
    from ragc.storage import write_whole

    if (folder / "ragc.toml").exists():
        raise SettingsError(f"{folder} is a project already.", "Edit its ragc.toml, or choose another folder.")
    documents, above = list_documents(folder, deep=True), folder.resolve().parent
    place = "." if documents else "knowledge/docs"
    toml = TOML.format(name=name_from(folder.resolve().name), path=place, gap=" " * (22 - len(place)))
    files = {"ragc.toml": toml, ".gitignore": ".ragc/\n"}
    if not documents:
        files |= {"knowledge/docs/hours.md": DOCUMENT, "labelled.jsonl": LABELLED}
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        if not (folder / name).exists():
            write_whole(folder / name, text.encode())
    after = f"Put documents into {folder / place}"
    if documents:
        after = 'Documents are read where they lie (path = "." in ragc.toml)'
    elif list_documents(above):
        after += f". Those in {above} are read where they lie by: ragc init {shlex.quote(str(above))}"
    made = f"Made {folder}: {', '.join(files)}\n{after}"
    after = f'Next: ragc ask {shlex.quote(str(folder))} "your question"'
    print_result({"project": str(folder), "files": list(files)}, lambda: typer.echo(f"{made}\n{after}"))


def run_index(
    folder: ProjectFolder,
    engine: Annotated[str, Option(help="Where texts are embedded: local, or ray (the extra `ray`).")] = "local",
    workers: Annotated[int, Option(min=0, help="Ray workers; 0: one a processor.")] = 0,
    list_: Annotated[bool, Option("--list", help="Only print the ids that `evidence` may name.")] = False,
) -> None:
    """Index what changed; safe to interrupt."""
    from ragc.knowledge.index.build import index_project
    from ragc.knowledge.project import Project
    from ragc.optimize.labelled.rules import read_corpus

    project = Project.open(folder)
    if list_:
        with show_progress("reading"):
            corpus = read_corpus(project)
        titles = {p.id: p.title for p in corpus.passages.values()} | dict.fromkeys(corpus.tables, "a table")
        lines = "\n".join(f"{id_}\t{title}" for id_, title in titles.items())
        print_result([{"id": id_, "title": title} for id_, title in titles.items()], lambda: typer.echo(lines))
        return
    with show_progress("indexing") as advance:
        report = index_project(project, advance, engine=engine, workers=workers)
    read = read_corpus(project).read
    print_result({**asdict(report), "flaws": list(read.flaws)}, lambda: _print_indexed(report, read, project))


def _print_indexed(report: IndexReport, read: ReadReport, project: Project) -> None:
    state = "nothing changed" if report.unchanged else f"{report.embedded} embedded, {report.reused} reused"
    state = f"{count_noun(report.parsed, 'file')} read, {state}" if report.parsed else state
    passages, documents = count_noun(report.passages, "passage"), count_noun(report.documents, "document")
    typer.echo(f"{passages} of {documents} in {report.seconds:.1f} s: {state}")
    unread = [flaw for flaw in read.flaws if flaw.unread]
    others = [flaw for flaw in read.flaws if not flaw.unread]
    room = PRINTED - len(unread[:PRINTED])
    for head, flaws in ((read.tell_unread(), unread[:PRINTED]), ("In files that were read", others[:room])):
        for line in (f"{head}:", *(f"  {flaw}" for flaw in flaws)) if flaws else ():
            typer.echo(line, err=True)
    if len(read.flaws) > PRINTED:
        typer.echo(f"  {len(read.flaws) - PRINTED} more: ragc doctor {project.argument}", err=True)


def run_doctor(
    folder: Annotated[Path | None, Argument(metavar="[PROJECT]", help="The project folder.")] = None,
) -> None:
    """Check what is installed, reachable and set. Each problem has its remedy."""
    from ragc.optimize.report.doctor import examine_setup

    with show_progress("trying what is configured"):
        findings = examine_setup(folder)
    rows = [["ok" if f.good else "warning" if f.warning else "PROBLEM", f.what, f.mend] for f in findings]
    amiss = not all(finding.good or finding.warning for finding in findings)
    print_result(findings, lambda: print_table("ragc doctor", ["", "what", "remedy"], rows), int(amiss))


VERBS = (run_init, run_doctor, run_index)
