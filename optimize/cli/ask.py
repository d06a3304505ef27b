"""`ragc ask`, `eval` and `search`: answers and retrieval, and how good they are."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import partial
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from ragc.errors import DataError, QuestionError, RagcError, SettingsError, VersionError
from ragc.optimize.cli import show
from ragc.optimize.cli.interruption import interruptible
from ragc.passage import split_groups
from ragc.text.history import Turn

if TYPE_CHECKING:
    from ragc.answer import Answer
    from ragc.knowledge.project import Project
    from ragc.loop.policy import Risk
    from ragc.loop.rag import AgenticRAG
    from ragc.optimize.evaluation.evaluate import Evaluation
    from ragc.optimize.labelled.dataset import LabelledQuestion

Target = Annotated[
    str, Argument(help="A version (name@v2, name@latest, a folder), or a project folder: its current version.")
]
FAILED = 5  # exit code of a question that no source or model could be asked about
Point = Annotated[str, Option(help="Operating point: quality, balanced or economy.")]
Groups = Annotated[str, Option("--readers", help="The asker's groups, parted by commas; else what all may read.")]
STRATEGY = "auto, vector, keyword, hybrid or graph."


def open_target(target: str, artifacts: Path, project: Path | None, point: str) -> AgenticRAG:
    """Open a version, or a project at its current version or uncompiled."""
    from ragc.knowledge.project import mend_folder
    from ragc.serve.opening import load, open_latest

    place = Path(target)
    is_folder = place.is_dir() and "@" not in target and not (place / "manifest.json").is_file()
    is_project = is_folder or (place / "ragc.toml").is_file()
    with show.show_opening() as advance:
        if is_project or (place.name == "ragc.toml" and place.is_file()):  # the file is refused, in words that fit
            if project is not None:
                raise RagcError(f"{target} is a project itself.", "Give --project with a version, such as name@v2.")
            return open_latest(target, point=point or None, progress=advance)
        try:
            return load(target, artifacts=artifacts, project=project, point=point or None, progress=advance)
        except VersionError as error:
            if "@" in target or place.exists():
                raise
            raise VersionError(
                f"There is no project folder {target}. {error.what}",
                f"{mend_folder(place)}. Or name a version that `ragc ls` lists.",
            ) from error


def run_ask(
    target: Target,
    question: Annotated[
        list[str] | None, Argument(help="The question; without it, or of -, one a line is read.")
    ] = None,
    trace: Annotated[bool, Option(help="Show the path and the steps.")] = False,
    stream: Annotated[bool, Option(help="Print the answer as it is written.")] = False,
    readers: Groups = "",
    point: Point = "",
    project: show.Moved = None,
    artifacts: show.Artifacts = show.DEFAULT_ARTIFACTS,
) -> None:
    """Answer one question, or one a line, with its citations.

    On a terminal the lines are a conversation, which Ctrl-D ends; piped they are independent, and each is repeated.
    """
    from ragc.serve.opening import find_project

    rag = open_target(target, artifacts, project, point).readable_by(split_groups(readers, ","))
    doctor = f"ragc doctor {find_project(target, artifacts, project).argument}"
    if question and question != ["-"]:
        if code := _answer_question(rag, " ".join(question), trace, stream, doctor):
            raise typer.Exit(code)
        return
    if isinstance(sys.stdin, TextIOWrapper):
        sys.stdin.reconfigure(errors="surrogateescape")  # a line that is not UTF-8 is refused, the others answered
    code, history = 0, list[Turn]() if sys.stdin.isatty() else None
    with interruptible() as check:
        for line in filter(str.strip, iter(partial(_read_line, history is not None), "")):
            check()
            if history is None and not show.AS_JSON.get():
                typer.echo(f"> {line.strip().encode(errors='replace').decode()}")
            try:
                code = max(code, _answer_question(rag, line, trace, stream, doctor, flat=True, history=history))
            except QuestionError as error:
                code = max(code, error.exit_code)
                show.print_error(error)
    if code:
        raise typer.Exit(code)


def _read_line(talks: bool) -> str:
    """Return the next line of standard input, asked for on a terminal; "" at its end."""
    if talks:
        typer.echo("> ", nl=False, err=True)
    return sys.stdin.readline()


def _answer_question(
    rag: AgenticRAG,
    question: str,
    trace: bool,
    stream: bool,
    doctor: str,
    flat: bool = False,
    history: list[Turn] | None = None,
) -> int:
    """Print the answer, add it to a history, and return the exit code: that of a failure where there is none."""
    from ragc.notes import NoteKind

    as_json = show.AS_JSON.get()
    if stream and not as_json:
        import asyncio

        answer = asyncio.run(_stream_answer(rag, question, history))
    else:
        with show.show_progress("answering"):
            answer = rag(question, history)
    if history is not None:
        history += [Turn(role="user", content=question), Turn(role="assistant", content=answer.text)]
    if as_json:
        show.print_json(answer.as_dict(), compact=flat)
        return FAILED * (answer.outcome == "failed")
    if not stream:
        typer.echo(answer.shown)
    for citation in answer.citations:
        typer.echo(f"  [{citation.n}] {citation.title}  ({citation.id})")
        if citation.copies:
            typer.echo(f"      also {', '.join(citation.copies)}")
        if citation.reason:
            typer.echo(f"      reached by {citation.reason}")
    calls, seconds = show.count_noun(answer.usage.calls, "model call"), f"{answer.usage.seconds:.2f} s"
    sure = f"confidence {answer.confidence:.2f}"
    if answer.reviewed is not None:
        sure = " ".join(filter(None, ("reviewed", answer.reviewed.at[:10], f"({answer.reviewed.id})")))
    status = [answer.outcome, sure, calls, seconds, answer.version or "uncompiled", f"trace {answer.trace.id}"]
    typer.echo(f"  {' | '.join(status)}", err=True)
    if lacks := "; ".join(answer.degraded):
        typer.echo(f"  {lacks} ({doctor} says what is amiss)", err=True)
    if removed := next((note for note in answer.trace.path if NoteKind.LINKS_REMOVED.begins(note)), ""):
        typer.echo(f"  {removed} ([answer] links in ragc.toml names the hosts whose addresses stay)", err=True)
    if trace:
        typer.echo(f"  path: {answer.trace}")
        for step in answer.trace.steps:
            typer.echo(f"    {step.milliseconds:8.1f} ms  {step.name}: {step.output}")
    return FAILED * (answer.outcome == "failed")


async def _stream_answer(rag: AgenticRAG, question: str, history: list[Turn] | None) -> Answer:
    """Print the draft as it comes; one that is withdrawn is marked so, and what takes its place begins a line."""
    from ragc.answer import Token, Withdrawn

    async for event in rag.stream(question, history):
        if isinstance(event, Token):
            typer.echo(event.text, nl=False)
        elif isinstance(event, Withdrawn):
            typer.echo("\n(withdrawn)")
    typer.echo()
    answer: Answer = event  # the last of them
    return answer


def run_eval(
    target: Target,
    split: Annotated[
        str | None, Option(help="train, dev or test, parted by commas; test, and of --search train,dev.")
    ] = None,
    questions: Annotated[Path | None, Option(help="Another file of labelled questions, all of it used.")] = None,
    point: Point = "",
    moved: show.Moved = None,
    program: show.Program = "",
    metric: Annotated[str, Option(help="Beside --program: MODULE:FUNCTION, which scores.")] = "",
    record: Annotated[Path | None, Option(help="Keep the replies of language models in this file.")] = None,
    replay: Annotated[Path | None, Option(help="Take them from this file, and ask no language model.")] = None,
    max_calls: Annotated[int | None, Option(min=0, help="Beside --record: stop after so many calls.")] = None,
    losses: Annotated[bool, Option(help="Only tell at which stage questions are lost; of test, sums.")] = False,
    search: Annotated[
        bool, Option("--search", help="Measure a project's retrieval alone: recall, all gold found, nDCG.")
    ] = False,
    beir: Annotated[
        Path | None, Option(help="Beside --search: a folder with corpus.jsonl, queries.jsonl, qrels/test.tsv.")
    ] = None,
    strategy: Annotated[str, Option(help=f"Beside --search: {STRATEGY}")] = "",
    k: Annotated[str, Option("-k", help="Beside --search: ranks, parted by commas.")] = "",
    all_: show.All = False,
    artifacts: show.Artifacts = show.DEFAULT_ARTIFACTS,
) -> None:
    """Measure a program, and plain RAG beside it, question by question in turns."""
    if search:
        given = {"questions": questions, "point": point, "project": moved, "program": program, "record": record}
        show.refuse_beside("--search", search, **given, replay=replay, losses=losses)
        _eval_search(Path(target), beir, split, strategy or "auto", k or "2,5,8,10")
        return
    if beir or strategy or k:
        raise SettingsError("--beir, --strategy and -k are of the search.", "Add --search, or leave them out.")
    split = split or "test"
    show.refuse_beside("--program", program, point=point, project=moved, record=record, replay=replay, losses=losses)
    show.refuse_beside("--replay", replay, record=record)
    if (max_calls is not None and not record) or (metric and not program):
        raise SettingsError("--max-calls goes with --record, and --metric with --program.", "Give both, or neither.")
    if program:
        _eval_program(target, program, questions, metric, split, all_, artifacts)
        return
    from ragc.optimize.compiler.runs.replay import evaluate_by_record
    from ragc.optimize.evaluation.evaluate import evaluate_side_by_side, open_side
    from ragc.optimize.labelled.dataset import read_labelled
    from ragc.optimize.labelled.reviewed import hold_out
    from ragc.optimize.labelled.split import find_previous_splits
    from ragc.optimize.registry.versions import read_ancestors
    from ragc.serve.opening import find_project

    rag, project = open_target(target, artifacts, moved, point), find_project(target, artifacts, moved)
    version = rag.runtime.version
    sealed = read_ancestors(target, artifacts) or read_ancestors(version, project.artifacts) if version else []
    if questions is not None:
        labelled, split = read_labelled(questions), questions.name
    else:
        labelled = _read_splits(project, split, find_previous_splits(sealed))
    spoke = [*(one.digest for one in sealed[:1]), point, rag.runtime.library.corpus_digest]
    looks = _note_look(project, "eval", spoke, labelled)
    with show.show_progress("asking") as advance:
        programs = [hold_out(rag, labelled), rag.plain()]  # it gives no question its own reviewed answer
        if record or replay:
            sides = evaluate_by_record(programs, labelled, project, record, replay, max_calls, advance)
        else:
            asked = [open_side(one, project.settings.utility) for one in programs]
            sides = evaluate_side_by_side(asked, labelled, advance, together=1)
    if losses:
        tested = "test" in {*split.split(","), *(one.split for one in labelled)}
        show.print_losses(sides[0].grades, split, everything=all_, told=not tested)
    else:
        title = f"{version or f'{project.name} (uncompiled)'} on {split}"
        _print_evaluation(title, version, split, sides, looks, all_, rag.risk)


def _eval_program(
    target: str, program: str, questions: Path | None, metric: str, split: str, all_: bool, artifacts: Path
) -> None:
    """Measure a version of a program of somebody's own code."""
    from ragc.optimize.compiler.tasks.examples import import_task
    from ragc.optimize.compiler.tasks.module import evaluate_version, open_version

    task = import_task(program, questions, metric, "--questions FILE")
    with show.show_progress("asking") as advance:
        opened = open_version(target, *task, artifacts)
        found, looks = evaluate_version(opened, target, split, advance)
    _print_evaluation(f"{target} on {split}", target, split, [found], looks, all_)


def _note_look(project: Project, by: str, spoke: Sequence[str], labelled: Sequence[LabelledQuestion]) -> int:
    """Note a look at what is about to be asked, once for the same program, settings, documents and questions."""
    from ragc.optimize.registry.versions import identify_look, note_test_use

    texts = [question.conversation for question in labelled]
    look = identify_look([*spoke, project.settings.model_dump_json()], by, texts)
    return note_test_use(project.artifacts, project.name, by, texts, look)


def _print_evaluation(
    title: str,
    version: str,
    split: str,
    sides: Sequence[Evaluation],
    looks: int,
    all_: bool,
    risk: Risk | None = None,
) -> None:
    """Print what was measured of a program and, where there is one, of plain RAG beside it."""
    from ragc.notes import NoteKind
    from ragc.optimize.evaluation.grades import FIRST
    from ragc.optimize.evaluation.risk import check_risk, compare_curves, describe_curves, judge_grades
    from ragc.optimize.evaluation.stats import format_estimate, paired_test

    n, broken = len(sides[0].grades), [grade.answer for grade in sides[0].grades if grade.outcome == "failed"]
    given = sum(any(NoteKind.REVIEWED.begins(note) for note in grade.path) for grade in sides[0].grades)
    shape: dict[str, Any] = {"version": version, "split": split, "n": n, "looks": looks, "reviewed": given}
    names = (("this program", "metrics", "by_tag"), ("plain RAG", "plain", "plain_by_tag"))
    table = {name: side.metrics() for side, (name, *_) in zip(sides, names, strict=False)}
    for side, (name, metrics, by_tag) in zip(sides, names, strict=False):
        shape |= {metrics: table[name], by_tag: side.by_tag()}
    curves = compare_curves(
        {name: judge_grades(side.grades) for name, side in reversed([*zip(table, sides, strict=True)])}
    )
    shape |= {"risk": risk, "risk_coverage": curves}

    def tell() -> None:
        topics, worth = [grade.topic for grade in sides[0].grades], [[one.utility for one in s.grades] for s in sides]
        utility = table["this program"]["utility"]
        line = f"utility {format_estimate(utility.value, utility.ci, '.3f')}, {show.count_noun(n, 'question')}"
        if len(sides) > 1:
            line = f"against plain RAG: {paired_test(worth[1], worth[0], topics).describe_for('utility')}"
        typer.echo(f"{title}: {line}")
        units = "percent or mean [95 % interval by topic]"
        show.print_metrics(units, table, lead=0, only=() if all_ else FIRST)
        if given or all_:
            typer.echo(f"Reviewed answers, of other topics, were given to {given} of them.")
        if risk is not None:
            typer.echo(f"Stated risk: {risk.describe()}. {check_risk(risk, sides[0].measure('selective_risk'))}")
        if curves is not None and all_:
            typer.echo(describe_curves(curves))
        typer.echo(
            show.describe_looks(looks, "These questions, or some of them, were") + ("" if all_ else f" {show.ALL}")
        )

    if broken:
        typer.echo(f"{len(broken)} of {n} answers failed and count as not answered. The first: {broken[0]}", err=True)
    show.print_result(shape, tell)


def run_search(
    project: show.ProjectFolder,
    question: Annotated[str, Argument(help="What to look for.")],
    k: Annotated[int, Option("-k", min=1, max=100, help="How many passages.")] = 8,
    strategy: Annotated[str, Option(help=STRATEGY)] = "auto",
    readers: Groups = "",
) -> None:
    """Find the best passages for a question. The graph tells its way."""
    from ragc.knowledge.project import Project
    from ragc.loop.rag import check_question
    from ragc.serve.opening import open_library

    weight, graph = find_strategy(strategy)
    question = check_question(question)
    with show.show_opening() as advance:
        library = open_library(Project.open(project), progress=advance).readable_by(split_groups(readers, ","))
    missed: dict[str, str] = {}
    sources = [card.name for card in library.describe()]
    failed = lambda name, error: missed.update({name: str(error)})  # noqa: E731
    with show.show_progress("searching"):
        found = library.search(question, sources, k, weight, graph=graph, failed=failed)
    for name, problem in missed.items():
        typer.echo(f"without {name}: {problem}", err=True)
    shapes = [
        {"id": p.id, "source": p.source, "title": p.title, "score": round(p.score, 4), "method": p.method}
        | {"reason": p.reason if graph else "", "as_of": p.as_of.isoformat() if p.as_of else None, "text": p.text}
        for p in found
    ]
    rows = [[p.id, p.title, f"{p.score:.3f}", p.method, p.reason if graph else ""] for p in found]
    columns = ["passage", "title", "score", "found by", "way"]
    show.print_result(shapes, lambda: show.print_table(question, columns, rows))


def find_strategy(name: str) -> tuple[float, float]:
    """Return a strategy's weights of vectors and graph."""
    from ragc.knowledge.index.fusion import STRATEGIES

    if name not in STRATEGIES:
        raise SettingsError(f"There is no strategy {name!r}.", f"Use one of: {', '.join(STRATEGIES)}.")
    return STRATEGIES[name]


def _eval_search(project: Path, beir: Path | None, split: str | None, strategy: str, k: str) -> None:
    """Measure recall, all gold found, and nDCG on a labelled set."""
    from ragc.knowledge.project import Project
    from ragc.optimize.evaluation import retrieval
    from ragc.serve.opening import open_library

    find_strategy(strategy)
    depths = _parse_depths(k)
    if beir is not None and split is not None:
        raise SettingsError("--split is of the project's own questions.", "Leave it out beside --beir.")
    opened = Project.open(project)
    with show.show_opening() as advance:
        if beir is not None:
            name, labelled = beir.name, retrieval.read_judged(beir)
            library = retrieval.open_beir(opened, beir / "corpus.jsonl", advance)
        else:
            splits = split or "train,dev"
            name, questions = f"{opened.name} ({splits})", _read_splits(opened, splits)
            library = open_library(opened, progress=advance)
            if "test" in splits:
                _note_look(opened, "eval --search", [strategy, library.corpus_digest], _read_splits(opened, "test"))
            with opened.named():
                labelled = retrieval.build_search_set(questions, (passage.id for passage in library.passages()))
    with show.show_progress("searching") as advance:
        deepest = max(*depths, *retrieval.DEPTHS)
        ranked = retrieval.rank_questions(library, labelled, strategy, deepest, advance)
    found = retrieval.measure_rankings(ranked, strategy, depths)
    figures = [(figure, value) for figure, value in found.items() if figure not in {"strategy", "n"}]
    rows = [[name, f"{x:.1f} ms" if name.endswith("_ms") else f"{100 * x:.1f} %"] for name, x in figures]
    title = f"{strategy} on {name}: {show.count_noun(found['n'], 'question')}"
    show.print_result(found, lambda: show.print_table(title, ["figure", "value"], rows))


def _parse_depths(k: str) -> list[int]:
    """Read `2,5,8,10`, ranks from 1 to 100."""
    try:
        depths = sorted({int(depth) for depth in k.split(",")})
    except ValueError:
        depths = []
    if not depths or not 1 <= depths[0] <= depths[-1] <= 100:
        raise SettingsError(f"-k {k!r} is no list of ranks from 1 to 100.", "Write them like -k 2,5,8,10.")
    return depths


def _read_splits(project: Project, wanted: str, before: Mapping[str, str] | None = None) -> list[LabelledQuestion]:
    """Read the labelled questions of the splits that are named."""
    from ragc.optimize.labelled.dataset import read_labelled
    from ragc.optimize.labelled.split import split_questions

    parts = split_questions(read_labelled(project.labelled, project.folder), before=before)
    names = dict.fromkeys(name.strip() for name in wanted.split(","))
    if unknown := [name for name in names if name not in parts]:
        raise SettingsError(f"There is no split {unknown[0]!r}.", f"Use {', '.join(parts)}, parted by commas.")
    if not (found := [question for name in names for question in parts[name]]):
        raise DataError(f"No question is in {wanted}.", "Name another --split, or label more questions.")
    return found


VERBS = (run_ask, run_search, run_eval)
