"""`ragc reader train`: a reader of one's own, from questions with the passages that answer them or do not."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from optimize.cli.interruption import INTERRUPTED
from optimize.cli.show import print_result, print_table, prints_json, show_progress
from optimize.compiler import MOST_SEED

MOST_EPOCHS = 100


def _positive(value: float | None) -> float | None:
    if value is not None and not 0 < value < math.inf:
        raise typer.BadParameter(f"{value} is no learning rate. Give a number above 0.")
    return value


def run_train(
    data: Annotated[
        list[str],
        Argument(
            metavar="DATA",
            help="SQuAD's JSON, or JSONL with question, context, answers and maybe title in each line. FILE:SHARE takes"
            " that share of it (above 0, at most 1), drawn anew each epoch.",
        ),
    ],
    out: Annotated[Path, Option(help="The folder to make; or that of a training that was stopped, to go on.")],
    dev: Annotated[Path | None, Option(help="A file held out, to choose the epoch and for the card.")] = None,
    epochs: Annotated[int | None, Option(min=1, max=MOST_EPOCHS, help="Rounds over the data; 4 if not given.")] = None,
    seed: Annotated[int, Option(min=0, max=MOST_SEED, help="Another seed gives other weights.")] = 0,
    learning_rate: Annotated[float | None, Option(callback=_positive, help="0.0001 if not given.")] = None,
    bfloat16: Annotated[
        bool, Option(help="Multiply in bfloat16: faster on processors with AVX-512 BF16 or AMX, slower on others.")
    ] = False,
    licence: Annotated[str, Option(help="The data's licence, for the card.")] = "",
    quiet: Annotated[bool, Option("--quiet", help="Show no progress.")] = False,
) -> None:
    """Train a reader, and write it with its card."""
    from optimize.reader.card import make_reader
    from optimize.reader.data import DataFile
    from optimize.reader.network import Training

    silent = quiet or prints_json()
    chosen = {"epochs": epochs, "learning_rate": learning_rate}
    given: dict[str, Any] = {name: value for name, value in chosen.items() if value}
    training = replace(Training(seed=seed, bfloat16=bfloat16), **given)

    def tell(line: str) -> None:
        if not silent:
            typer.echo(line, err=True)

    try:
        with show_progress("training", silent, patient=True) as advance:
            files = [DataFile.parse(word) for word in data]
            card = make_reader(files, out, training, dev, licence, advance, tell)
    except KeyboardInterrupt:
        typer.echo("stopped. Give the same command again to go on.", err=True)
        raise typer.Exit(INTERRUPTED) from None
    print_result(card, lambda: _print_card(card, out))


def _print_card(card: Mapping[str, Any], out: Path) -> None:
    if card["figures"]:
        rows = [[name, f"{value:.4f}"] for name, value in card["figures"].items()]
        print_table(f"{card['dev']['questions']} questions of {card['dev']['file']}", ["figure", "value"], rows)
    typer.echo(f'{card["training"]["steps"]} steps. Use it in ragc.toml: [models] reader = "{out.resolve()}"')


VERBS = (run_train,)
