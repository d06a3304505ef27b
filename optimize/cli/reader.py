"""`ragc reader train`: a reader of one's own, from questions with the passages that answer them or do not."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from ragc.errors import require_packages
from ragc.optimize.cli.interruption import INTERRUPTED
from ragc.optimize.cli.show import print_result, print_table, show_progress

DATA = "SQuAD's JSON, or JSONL with question, context, answers and maybe title; FILE:SHARE draws a share each epoch."


def run_train(
    data: Annotated[list[str], Argument(metavar="DATA", help=DATA)],
    out: Annotated[Path, Option(help="The folder to make; or that of a training that was stopped, to go on.")],
    dev: Annotated[list[Path] | None, Option(help="A file held out, for the card's figures; once or more.")] = None,
    teacher: Annotated[Path | None, Option(help="An encoder of sentence-transformers, to learn from.")] = None,
    start: Annotated[Path | None, Option(help="A reader with weights.safetensors, to go on from.")] = None,
    keep: Annotated[float, Option(min=0, max=1, help="Share of the weights of --start in those of the end.")] = 0.0,
    epochs: Annotated[int, Option(min=1, max=100, help="Rounds over the data.")] = 4,
    batch: Annotated[int, Option(min=1, max=1024, help="Questions of a step.")] = 8,
    passages: Annotated[int, Option(min=1, max=9, help="Of a question: its own, and others found.")] = 4,
    learning_rate: Annotated[float, Option(min=1e-9, max=1, help="Of the reader; a teacher has a quarter.")] = 1e-4,
    seed: Annotated[int, Option(min=0, max=2**31 - 1, help="Another seed gives other weights.")] = 0,
    licence: Annotated[str, Option(help="The data's licence, for the card.")] = "",
) -> None:
    """Train a reader, and write it with its card."""
    require_packages("`ragc reader train`", "train", "torch", "transformers", "accelerate", "onnx")
    from ragc.optimize.reader.examples import DataFile, read_examples
    from ragc.optimize.reader.train import Training, make_reader

    if keep and not start:
        raise typer.BadParameter("--keep is a share of the weights of --start. Give that too.")
    training = Training(epochs, seed, learning_rate, batch, passages, keep, start, teacher)
    try:
        with show_progress("training", patient=True) as advance:
            files = [DataFile.read(word) for word in data]
            held_out = [DataFile(path, 1.0, read_examples(path)) for path in dev or ()]
            card = make_reader(files, held_out, out, training, licence, advance)
    except KeyboardInterrupt:
        typer.echo("stopped. Give the same command again to go on.", err=True)
        raise typer.Exit(INTERRUPTED) from None
    print_result(card, lambda: _print_card(card, out))


def _print_card(card: Mapping[str, Any], out: Path) -> None:
    for file in card["held_out"]:
        rows = [[name, f"{value:.4f}"] for name, value in file["figures"].items() if name != "questions"]
        print_table(f"{file['questions']} questions of {file['file']}", ["figure", "value"], rows)
    typer.echo(f'{card["training"]["steps"]} steps. Use it in ragc.toml: [models] reader = "{out.resolve()}"')


VERBS = (run_train,)
