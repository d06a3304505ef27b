"""`ragc ask` and `eval`: answers, and how good they are."""

from __future__ import annotations

import sys
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from optimize.cli.interruption import interruptible
from optimize.cli.show import Json, counted, number, percent, print_json, print_table, progress
from program.errors import RagcError, VersionError

if TYPE_CHECKING:
    from program.loop.rag import AgenticRAG

Target = Annotated[str, typer.Argument(help="A version (name@v2, name@latest, a folder) or a project folder.")]
Artifacts = Annotated[str, typer.Option(help="Where versions are kept.", envvar="RAGC_ARTIFACTS")]
Moved = Annotated[Path | None, typer.Option("--project", help="A version's project folder, when it moved since.")]
Point = Annotated[str, typer.Option(help="Operating point: quality, balanced or economy.")]


def register(app: typer.Typer) -> None:
    """Adds the verbs."""
    app.command()(ask)
    app.command("eval")(evaluate)


def opened(
    target: str,
    artifacts: str,
    point: str,
    quiet: bool,
    calls_per_question: float | None = None,
    min_utility: float | None = None,
    usd_per_question: float | None = None,
    project: Path | None = None,
) -> AgenticRAG:
    """The program a target names: a version, or a project's latest version, or the project uncompiled."""
    from program.serve.opening import load, open_latest

    wanted: dict[str, Any] = {"point": point or None}
    wanted |= {"calls_per_question": calls_per_question, "min_utility": min_utility}
    wanted |= {"usd_per_question": usd_per_question}
    with progress("indexing", quiet) as advance:
        place = Path(target)
        if (
            (place / "ragc.toml").is_file()
            or (place.is_dir() and "@" not in target and not (place / "manifest.json").is_file())
            or (place.name == "ragc.toml" and place.is_file())  # refused, in words that fit
        ):
            if project is not None:
                raise RagcError(f"{target} is a project itself.", "Give --project with a version, such as name@v2.")
            return open_latest(target, **wanted, progress=advance)
        try:
            program: AgenticRAG = load(target, artifacts=artifacts or None, project=project, **wanted, progress=advance)
        except VersionError as error:
            if "@" in target or place.exists():
                raise
            raise VersionError(f"There is no project folder {target}. {error.what}", error.mend) from error
        return program


def ask(
    target: Target,
    question: Annotated[str | None, typer.Argument(help="The question; without it, one a line is read.")] = None,
    trace: Annotated[bool, typer.Option(help="Show the path and the steps.")] = False,
    stream: Annotated[bool, typer.Option(help="Print the answer as it is written.")] = False,
    point: Point = "",
    calls_per_question: Annotated[float | None, typer.Option(help="The best setting of at most so many.")] = None,
    min_utility: Annotated[float | None, typer.Option(help="The setting of fewest calls with at least this.")] = None,
    usd_per_question: Annotated[float | None, typer.Option(help="The best setting of at most so many dollars.")] = None,
    project: Moved = None,
    artifacts: Artifacts = "",
    json: Json = False,
) -> None:
    """One answer with its citations."""
    rag = opened(target, artifacts, point, json, calls_per_question, min_utility, usd_per_question, project)
    if question is not None or sys.stdin.isatty():
        _answer(rag, question or "", trace, stream, json)
        return
    from program.errors import QuestionError

    if isinstance(sys.stdin, TextIOWrapper):
        sys.stdin.reconfigure(errors="surrogateescape")  # a line that is not UTF-8 is refused, the others answered

    failed = False
    with interruptible() as check:
        for line in filter(str.strip, sys.stdin):
            check()
            try:
                _answer(rag, line, trace, stream, json, compact=True)
            except QuestionError as error:
                failed = True
                typer.echo(f"error: {error}", err=True)
    if failed:
        raise typer.Exit(2)


def _answer(rag: AgenticRAG, question: str, trace: bool, stream: bool, json: bool, compact: bool = False) -> None:
    if stream and not json:
        import asyncio

        answer = asyncio.run(_streamed(rag, question))
    else:
        answer = rag(question)
    if json:
        import orjson

        typer.echo(orjson.dumps(answer.as_dict(), option=0 if compact else orjson.OPT_INDENT_2).decode())
        return
    if not stream:
        typer.echo(answer.text)
    for citation in answer.citations:
        typer.echo(f"  [{citation.n}] {citation.title}  ({citation.id})")
    usage = answer.usage
    typer.echo(
        f"  {answer.outcome} | confidence {answer.confidence:.2f} | {usage.calls} model calls | {usage.seconds:.2f} s",
        err=True,
    )
    if told := "; ".join(answer.trace.stood_in):
        typer.echo(f"  {told} (ragc doctor PROJECT says what is amiss)", err=True)
    if trace:
        typer.echo(f"  path: {answer.trace}")
        for step in answer.trace.steps:
            typer.echo(f"    {step.milliseconds:8.1f} ms  {step.name}: {step.output}")


async def _streamed(rag: AgenticRAG, question: str) -> Any:
    """The answer; its drafted text goes to stdout as it comes. A withheld draft is followed by what replaces it."""
    from program.answer import Answer
    from program.loop.drivers import Progress

    drafted = ""
    answer: Answer | None = None
    async for event in rag.stream(question):
        if isinstance(event, Answer):
            answer = event
        elif not isinstance(event, Progress):
            drafted += event.text
            typer.echo(event.text, nl=False)
    assert answer is not None
    typer.echo("" if drafted.split() == answer.text.split() else f"\n{answer.text}")
    return answer


def evaluate(
    target: Target,
    split: Annotated[str, typer.Option(help="train, dev or test.")] = "test",
    questions: Annotated[Path | None, typer.Option(help="Another file of labelled questions, all of it used.")] = None,
    point: Point = "",
    moved: Moved = None,
    artifacts: Artifacts = "",
    json: Json = False,
) -> None:
    """Every metric with its 95 % interval (clustered by topic), plain RAG beside it."""
    from optimize.compiler.publish import read_ancestors
    from optimize.evaluation.evaluate import evaluate as evaluate_
    from optimize.labelled.dataset import read_labelled
    from optimize.labelled.split import find_previous_splits, split_questions
    from optimize.registry.versions import note_test_use
    from program.serve.opening import find_project

    rag = opened(target, artifacts, point, quiet=json, project=moved)
    project = find_project(target, artifacts or None, moved)
    if questions is not None:
        asked, split = read_labelled(questions), questions.name
    else:
        sealed = read_ancestors(target, artifacts or None) if rag.runtime.version else []
        parts = split_questions(read_labelled(project.labelled, project.folder), before=find_previous_splits(sealed))
        if split not in parts:
            raise RagcError(f"There is no split {split!r}.", f"Use one of: {', '.join(parts)}.")
        asked = parts[split]
    looks = note_test_use(project.artifacts, project.name, "eval", [question.question for question in asked])
    with progress("asking", quiet=json) as advance:
        found = evaluate_(rag, asked, project.settings.utility, advance)
        plain = evaluate_(rag.plain(), asked, project.settings.utility, advance)
    metrics, control = found.metrics(), plain.metrics()
    if json:
        print_json(
            {
                "version": rag.runtime.version,
                "split": split,
                "n": len(asked),
                "metrics": metrics,
                "plain": control,
                "by_tag": found.by_tag(),
                "looks": looks,
                "plain_by_tag": plain.by_tag(),
            }
        )
        return
    rows = [
        [name, show(metrics.get(name)), show(control.get(name)), str(metrics[name]["n"])]
        for name in metrics
        for show in (_formatter(name),)
    ]
    title = f"{rag.runtime.version or project.name + ' (uncompiled)'} on {split}: {counted(len(asked), 'question')}"
    print_table(title, ["metric", "this program", "plain RAG", "n"], rows)
    typer.echo(f"These questions, or some of them, were looked at {counted(looks, 'time')}.")


def _formatter(name: str) -> Any:
    plain_numbers = {
        "utility",
        "model_calls",
        "tokens",
        "usd",
        "seconds_p50",
        "seconds_p95",
        "answer_relevancy",
    }
    return number if name in plain_numbers else percent
