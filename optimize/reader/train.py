"""Train a reader with `transformers.Trainer`, and write it with its card.

1. All epochs are drawn from the seed: groups of a question and its passages, those of like length side by side.
2. Where there is a teacher, it learns the labels first; the reader learns the labels and the teacher's logits.
3. Weights are averaged over the steps, and with those of the start (`keep`; Wortsman et al. 2022, arXiv 2109.01903).
4. The reader is exported, measured on the files held out, and described. Until then its folder holds checkpoints.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from random import Random
from typing import Any

import orjson
import torch
from jinja2 import Environment, FileSystemLoader
from safetensors.torch import save
from transformers import PrinterCallback, Trainer, TrainingArguments
from transformers.trainer_pt_utils import get_length_grouped_indices
from transformers.trainer_utils import set_seed

from ragc.errors import ModelError, StudyError
from ragc.models.embedded.encoder import MINILM, MINILM_SHA256, Embedder
from ragc.models.embedded.reader import CARD, PAIR_TOKENS, SPAN_TOKENS, STRIDE, Reader
from ragc.optimize.reader import network
from ragc.optimize.reader.examples import DataFile, ReadingExample, draw_groups, find_negatives, measure_reader
from ragc.storage import digest_file, write_whole

Advance = Callable[[int, int], None]  # called with the steps made so far and in all

CHECKPOINTS = "checkpoints"
HEAD_PACE = 3  # times the learning rate that the heads have
LAYER_DECAY = 0.9  # of the learning rate, from a layer to the one before it
TEACHER_PACE = 0.25  # times the learning rate that the teacher has
AVERAGE = 0.998  # of the averaged weights that stays, at each step


@dataclass(frozen=True, slots=True)
class Training:
    """How a reader is trained."""

    epochs: int = 4
    seed: int = 0
    learning_rate: float = 1e-4
    batch: int = 8  # questions of a step
    passages: int = 4  # of a question: its own, and others that search finds
    keep: float = 0.0  # share of the weights of the start in those of the end
    start: Path | None = None  # the folder of a reader to go on from
    teacher: Path | None = None  # the folder of an encoder to learn from


def make_reader(
    files: Sequence[DataFile],
    held_out: Sequence[DataFile],
    out: Path,
    training: Training,
    licence: str = "",
    advance: Advance = lambda done, of: None,
) -> dict[str, Any]:
    """Train a reader, leave it in a folder with its card, and return the card.

    The same seed on the same machine gives the same weights, cut off or not. Raises `StudyError` for a folder that
    holds anything else than this very training, `ModelError` for a start or teacher that is none.
    """
    texts = {one.text for file in files for one in file.examples}
    card: dict[str, Any] = {
        "minilm_sha256": MINILM_SHA256,
        "data": [file.describe() | {"share": file.share} for file in files],
        "held_out": [file.describe() | {"seen": sum(one.text in texts for one in file.examples)} for file in held_out],
        "licence": licence or "not stated",
        "training": {**asdict(training), "start": _name(training.start), "teacher": _name(training.teacher)},
        "ragc": version("ragc"),
    }
    nets = _load_nets(training)
    _claim(out, orjson.dumps(card))
    card["training"]["steps"] = _train(nets, files, out, training, advance)
    card["sha256"] = digest_file(network.export_reader(out))
    write_whole(out / CARD, orjson.dumps(card))  # a reader is not opened without
    for file, one in zip(held_out, card["held_out"], strict=True):
        one["figures"] = {"questions": one["questions"], **measure_reader(Reader(out), file.examples)}
    write_whole(out / "README.md", render_card(card).encode())
    write_whole(out / CARD, orjson.dumps(card, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
    advance(1, 1)  # whoever pressed Ctrl-C meanwhile finds a training to go on with
    shutil.rmtree(out / CHECKPOINTS)
    return card


def render_card(card: dict[str, Any]) -> str:
    """Return the model card as Markdown."""
    kept = Environment(loader=FileSystemLoader(Path(__file__).parent), trim_blocks=True, keep_trailing_newline=True)
    kept.filters["quote"] = lambda word: shlex.quote(str(word))
    limits = {"pair_tokens": PAIR_TOKENS, "span_tokens": SPAN_TOKENS, "stride": STRIDE}
    return kept.get_template("card.md.j2").render(card=card, **limits)


def _claim(out: Path, settings: bytes) -> None:
    claim, taken = out / CHECKPOINTS / "settings.json", out.exists() and (not out.is_dir() or any(out.iterdir()))
    if taken and not (claim.is_file() and claim.read_bytes() == settings):
        what = f"{out} holds {'a training of other data or settings' if claim.is_file() else 'something already'}."
        raise StudyError(what, "Give --out a new folder.", path=str(out))
    claim.parent.mkdir(parents=True, exist_ok=True)
    write_whole(claim, settings)


def _name(folder: Path | None) -> dict[str, Any]:
    weights = sorted(folder.rglob("*.safetensors")) if folder else ()
    return {"folder": folder.resolve().name, "sha256": [digest_file(file) for file in weights]} if folder else {}


def _load_nets(training: Training) -> tuple[network.HeadedEncoder, network.HeadedEncoder | None, network.Collator]:
    """Return the reader, the teacher where there is one, and what makes their batches."""
    set_seed(training.seed)
    try:
        student = network.load_reader(training.start)
        teacher, tokenizer = network.load_teacher(training.teacher) if training.teacher else (None, None)
    except Exception as error:  # whatever torch and sentence-transformers raise of files that are none of theirs
        mend = "Give --start a reader's folder with weights.safetensors, --teacher an encoder of sentence-transformers."
        raise ModelError(f"--start or --teacher cannot be loaded: {error}.", mend) from error
    return student, teacher, network.Collator(teacher, tokenizer)


def _train(nets: Any, files: Sequence[DataFile], out: Path, training: Training, advance: Advance) -> int:
    """Leave `weights.safetensors` in a folder, and return the number of steps."""
    (student, teacher, collator), groups, steps = nets, _draw_epochs(files, training, advance), 0
    trained = {name: value for name, value in student.named_parameters() if value.requires_grad}
    start = {name: value.detach().clone() for name, value in trained.items()}
    for net in filter(None, (teacher, student)):
        trainer = _Trainer(net, _make_arguments(out / CHECKPOINTS / net.name, training), collator, groups)
        trainer.remove_callback(PrinterCallback)
        trainer.advance, trainer.teacher = advance, teacher if net is student else None
        whole = (out / CHECKPOINTS / net.name).glob("checkpoint-*/trainer_state.json")  # written last
        last = max((str(file.parent) for file in whole), key=lambda name: int(name.rpartition("-")[2]), default=None)
        trainer.train(resume_from_checkpoint=last)
        for weight, state in trainer.optimizer.state.items():
            weight.data.copy_(state["average"])
        steps = int(trainer.state.global_step)
        net.requires_grad_(False).eval()
    write_whole(out / network.WEIGHTS, save({n: one.cpu().lerp(start[n], training.keep) for n, one in trained.items()}))
    return steps


def _draw_epochs(files: Sequence[DataFile], training: Training, advance: Advance) -> list[list[ReadingExample]]:
    """Return the groups of all epochs in the order of training."""
    embedder, negatives, drawn = Embedder(MINILM), [], list[list[ReadingExample]]()
    for n, file in enumerate(files):
        advance(n, len(files))
        negatives.append(find_negatives(file.examples, embedder))
    for epoch in range(training.epochs):
        random, groups = Random(f"{training.seed}/{epoch}"), list[list[ReadingExample]]()
        for file, found in zip(files, negatives, strict=True):
            chosen = random.sample(range(len(found)), max(1, round(file.share * len(found))))
            examples, others = [file.examples[n] for n in chosen], [found[n] for n in chosen]
            groups += draw_groups(examples, others, training.passages, random)
        lengths = [max(len(one.question) + len(one.text) for one in group) for group in groups]
        generator = torch.Generator().manual_seed(random.getrandbits(32))
        drawn += [groups[n] for n in get_length_grouped_indices(lengths, training.batch, generator=generator)]
    return drawn


def _make_arguments(folder: Path, training: Training) -> TrainingArguments:
    gpu, cpu = torch.cuda.is_available(), torch.cpu.get_capabilities()
    fast = torch.cuda.is_bf16_supported(False) if gpu else cpu.get("avx512_bf16") or cpu.get("amx_bf16")
    order = {"num_train_epochs": 1, "train_sampling_strategy": "sequential"}  # the groups are those of all, in order
    shares = {"warmup_steps": 0.05, "save_steps": 0.02}  # of all steps
    still = {"disable_tqdm": True, "report_to": "none", "remove_unused_columns": False, "save_total_limit": 1}
    return TrainingArguments(
        output_dir=str(folder),
        per_device_train_batch_size=training.batch,
        learning_rate=training.learning_rate,
        seed=training.seed,
        bf16=bool(fast),
        use_cpu=not torch.accelerator.is_available(),
        dataloader_num_workers=min(8, os.cpu_count() or 1) if gpu else 0,
        **order,
        **shares,
        **still,
    )


class _Trainer(Trainer):
    """Trains on labels, and on a teacher's logits where there is one."""

    teacher: network.HeadedEncoder | None
    advance: Advance

    def create_optimizer(self, model: Any = None) -> torch.optim.Optimizer:
        """Return AdamW: thrice the rate for heads, less for layers near the input."""
        rate = self.args.learning_rate * (1 if self.model.name == "reader" else TEACHER_PACE)
        trained = {name: value for name, value in self.model.named_parameters() if value.requires_grad}
        layers = {name: int(found[1]) + 1 for name in trained if (found := re.search(r"\.(\d+)\.", name))}
        depths = {name: max(layers.values()) - layers.get(name, 0) for name in trained}
        paces = {n: HEAD_PACE if n.startswith(("span.", "answers.")) else LAYER_DECAY**d for n, d in depths.items()}
        groups = [{"params": [value], "lr": paces[name] * rate} for name, value in trained.items()]
        self.optimizer = torch.optim.AdamW(groups, betas=(0.9, 0.98), weight_decay=0.01, fused=True)
        self.optimizer.register_step_post_hook(_average)
        return self.optimizer

    def compute_loss(self, model: Any, inputs: network.Batch, *_: Any, **__: Any) -> torch.Tensor:
        """Return the loss of a batch."""
        self.advance(self.state.global_step, self.state.max_steps)
        logits = model(**inputs[self.model.name])
        loss = network.compute_loss(logits, inputs)
        if self.teacher:
            with torch.no_grad(), self.accelerator.autocast():
                wanted = self.teacher(**inputs[self.teacher.name])
            loss = (loss + network.compute_soft_loss(logits, wanted, inputs)) / 2
        if not torch.isfinite(loss):
            what = f"The loss of step {self.state.global_step} is no number."
            raise StudyError(what, "Begin anew with a smaller --learning-rate.")
        return loss


@torch.no_grad()
def _average(optimizer: torch.optim.Optimizer, *_: Any) -> None:
    """Average each weight over the steps; the averages are part of the optimizer's state, and so of a checkpoint."""
    steps = int(next(iter(optimizer.state.values()))["step"])
    for weight, state in optimizer.state.items():
        state.setdefault("average", weight.clone()).lerp_(weight, 1 - min(AVERAGE, steps / (9 + steps)))
