"""`ragc search` and `eval-search`: retrieval, and how good it is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from optimize.cli.show import Json, counted, print_json, print_table, progress

if TYPE_CHECKING:
    from optimize.labelled.dataset import LabelledQuestion
    from program.project import Project

Strategy = Annotated[str, typer.Option(help="auto, vector, keyword, hybrid or graph.")]
Folder = Annotated[Path, typer.Argument(help="The project folder.")]


def register(app: typer.Typer) -> None:
    """Adds the verbs."""
    app.command()(search)
    app.command("eval-search")(evaluate_search)


def shares(strategy: str) -> tuple[float, float]:
    """What a strategy gives the dense part and the graph. Raises `SettingsError` for one that does not exist."""
    from program.errors import SettingsError
    from program.knowledge.index.fusion import STRATEGIES

    if strategy not in STRATEGIES:
        raise SettingsError(f"There is no strategy {strategy!r}.", f"Use one of: {', '.join(STRATEGIES)}.")
    return STRATEGIES[strategy]


def search(
    project: Folder,
    question: Annotated[str, typer.Argument(help="What to look for.")],
    k: Annotated[int, typer.Option("-k", min=1, max=100, help="How many passages.")] = 8,
    strategy: Strategy = "auto",
    json: Json = False,
) -> None:
    """Retrieval only: the best passages for a question, and the way to those that the graph reached."""
    weight, graph = shares(strategy)
    from program.loop.rag import asked
    from program.project import Project
    from program.serve.opening import open_library

    question = asked(question)
    library = open_library(Project.open(project))
    names = [card.name for card in library.describe()]
    missed: dict[str, str] = {}
    found = library.search(
        question, names, k, weight, graph=graph, failed=lambda name, error: missed.update({name: str(error)})
    )
    for name, problem in missed.items():
        typer.echo(f"without {name}: {problem}", err=True)
    if json:
        print_json(
            [
                {
                    "id": p.id,
                    "source": p.source,
                    "title": p.title,
                    "score": round(p.score, 4),
                    "method": p.method,
                    "reason": p.reason if graph else "",
                    "as_of": p.as_of.isoformat() if p.as_of else None,
                    "text": p.text,
                }
                for p in found
            ]
        )
        return
    rows = [[p.id, p.title, f"{p.score:.3f}", p.method, p.reason if graph else ""] for p in found]
    print_table(question, ["passage", "title", "score", "found by", "way"], rows)


def evaluate_search(
    project: Folder,
    beir: Annotated[
        Path | None,
        typer.Option(
            help="A folder with corpus.jsonl, queries.jsonl and qrels/test.tsv; else the project's questions."
        ),
    ] = None,
    split: Annotated[
        str | None,
        typer.Option(help="Of the project's questions, train,dev unless given; a look at test is counted."),
    ] = None,
    strategy: Strategy = "auto",
    k: Annotated[str, typer.Option("-k", help="Ranks, parted by commas; further ones add R@k and all@k.")] = "2,5,8,10",
    json: Json = False,
) -> None:
    """Recall, all gold found, and nDCG on a labelled set, under the project's settings."""
    shares(strategy)
    from optimize.evaluation import retrieval as se
    from program.errors import SettingsError
    from program.project import Project
    from program.serve.opening import open_library

    try:
        depths = sorted({int(depth) for depth in k.split(",")})
    except ValueError:
        depths = []
    if not depths or not 1 <= depths[0] <= depths[-1] <= 100:
        raise SettingsError(f"-k {k!r} is no list of ranks from 1 to 100.", "Write them like -k 2,5,8,10.")
    opened = Project.open(project)
    with progress("indexing", quiet=json) as advance:
        if beir is not None and split is not None:
            raise SettingsError("--split is of the project's own questions.", "Leave it out beside --beir.")
        if beir is not None:
            name, labelled = beir.name, se.read_beir(beir)
            library = se.open_beir(opened, beir / "corpus.jsonl", advance)
        else:
            chosen = split or "train,dev"
            name, questions = f"{opened.name} ({chosen})", _own_questions(opened, chosen)
            library = open_library(opened, progress=advance)
            labelled = se.build_search_set(questions, (passage.id for passage in library.passages()))
    with progress("searching", quiet=json) as advance:
        ranked = se.rank_questions(library, labelled, strategy, max(*depths, *se.DEPTHS), advance)
    found = se.measure_rankings(ranked, strategy, depths)
    if json:
        print_json(found)
        return
    shown = {name: value for name, value in found.items() if name not in ("strategy", "n")}
    rows = [
        [name, f"{value:.1f} ms" if name.endswith("_ms") else f"{100 * value:.1f} %"] for name, value in shown.items()
    ]
    print_table(f"{strategy} on {name}: {counted(found['n'], 'question')}", ["figure", "value"], rows)


def _own_questions(project: Project, wanted: str) -> list[LabelledQuestion]:
    """Return the labelled questions of the splits that are named; those of test count as looked at.

    Raises `SettingsError` for a split that does not exist, `DataError` where no question is left.
    """
    from optimize.labelled.dataset import read_labelled
    from optimize.labelled.split import split_questions
    from optimize.registry.versions import note_test_use
    from program.errors import DataError, SettingsError

    parts = split_questions(read_labelled(project.labelled, project.folder))
    names = [name.strip() for name in wanted.split(",")]
    if unknown := [name for name in names if name not in parts]:
        raise SettingsError(f"There is no split {unknown[0]!r}.", f"Use {', '.join(parts)}, parted by commas.")
    found = [question for name in dict.fromkeys(names) for question in parts[name]]
    if not found:
        raise DataError(f"No question is in {wanted}.", "Name another --split, or label more questions.")
    if "test" in names:
        note_test_use(project.artifacts, project.name, "eval-search", [question.question for question in parts["test"]])
    return found
