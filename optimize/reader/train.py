"""Train a reader: steps over batches, averaged weights, and a checkpoint that a training goes on from."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import orjson
import torch
from safetensors.torch import save_file

from optimize.reader import network
from optimize.reader.data import TrainingData
from optimize.reader.measure import measure_reader
from program.errors import StudyError
from program.models.embedded.reader import CARD, Reader
from program.storage import digest_file

if TYPE_CHECKING:
    from program.knowledge.index.build import Advance

CHECKPOINT, WEIGHTS = "checkpoint.pt", "weights.safetensors"
ASIDE = ".new"  # how the name of a file that is being written ends
SAVE_SECONDS = 120.0  # between two checkpoints: what a kill loses at most
KEEP = 0.998  # of the averaged weights, at each step
WARM_UP = 0.05  # of all steps, over which the learning rate rises
LOSS_KEEP = 0.98  # of the loss that is told, at each step

Tell = Callable[[str], None]


def train_reader(
    data: TrainingData,
    out: Path,
    training: network.Training,
    advance: Advance = lambda done, of: None,
    tell: Tell = lambda line: None,
) -> int:
    """Train on the data, and return the number of steps.

    The averaged weights that do best on the held-out questions after an epoch are left in `out/weights.safetensors`,
    the last ones where none are held out. A training that was cut off goes on from `out/checkpoint.pt`. The sizes
    depend on no clock: the same seed on the same machine gives the same weights. `tell` is given a line an epoch.

    Raises `StudyError` for a checkpoint of another training. `KeyboardInterrupt` from `advance` loses no step.
    """
    run = _Run(data, out, training)
    run.load_checkpoint()
    if run.epoch == training.epochs:
        return run.step
    data.find_negatives(advance)
    sizes = [len(run.list_batches(epoch)) for epoch in range(training.epochs)]
    run.save_checkpoint()  # claims the folder
    for epoch in range(run.epoch, training.epochs):
        told = run.run_epoch(epoch, sum(sizes[:epoch]), sum(sizes), advance)
        tell(f"epoch {epoch + 1} of {training.epochs}: {told}")
    return run.step


class _Run:
    """A training under way: its net, optimizer and averaged weights, and how far it is."""

    def __init__(self, data: TrainingData, out: Path, training: network.Training) -> None:
        self.epoch = self.step = 0  # those that are behind
        self.best: dict[str, float] | None = None  # the figures of the weights kept
        self._data, self._out, self._training = data, out, training
        self._key = data.compute_key(training)
        self._encoder = network.PairEncoder()
        torch.manual_seed(training.seed)
        self._net = network.ReaderNet(training)
        self._trained = self._net.list_trained()
        self._averaged = {name: value.detach().clone() for name, value in self._trained.items()}
        self._optimizer = network.make_optimizer(self._net, training)
        self._saved = time.monotonic()

    def list_batches(self, epoch: int) -> list[list[network.Encoded]]:
        random = Random(f"{self._training.seed}/{epoch}")
        encoded = [self._encoder.encode(one, random) for one in self._data.draw_epoch(random)]
        return network.make_batches(encoded, self._training.batch_tokens, random)

    def run_epoch(self, epoch: int, before: int, total: int, advance: Advance) -> str:
        """Take the steps left of an epoch, keep its weights if they are best, and return its figures."""
        lost, seen = 0.0, 0
        for step, batch in enumerate(self.list_batches(epoch), before):
            if step < self.step:
                continue
            lost = LOSS_KEEP * lost + (1 - LOSS_KEEP) * self._take_step(batch, step, total)
            self.step, seen = step + 1, seen + 1
            if time.monotonic() - self._saved > SAVE_SECONDS:
                self.save_checkpoint()
            try:
                advance(self.step, total)
            except KeyboardInterrupt:
                self.save_checkpoint()
                raise
        self.epoch = epoch + 1
        found = self._measure_averaged() if self._data.held_out else {}
        if self.best is None or not found or _worth(found) > _worth(self.best):
            self.best = found
            self._write(WEIGHTS, self._save_averaged)
        self.save_checkpoint()
        loss = {"loss": lost / (1 - LOSS_KEEP**seen)} if seen else {}
        return ", ".join(f"{name} {value:.3f}" for name, value in (loss | found).items())

    def _take_step(self, batch: list[network.Encoded], step: int, total: int) -> float:
        self._net.train()
        for group in self._optimizer.param_groups:
            group["lr"] = group["peak"] * min(
                step / total / WARM_UP, (1 - step / total) / (1 - WARM_UP)
            )  # up, then down in a line
        with torch.autocast("cpu", torch.bfloat16, self._training.bfloat16):
            loss = network.compute_loss(self._net, network.collate(batch))
        if not torch.isfinite(loss):
            raise StudyError(f"The loss of step {step} is no number.", "Begin anew with a smaller --learning-rate.")
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self._net.parameters(), 1.0)
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        keep = min(KEEP, (1 + step) / (10 + step))
        with torch.no_grad():
            torch._foreach_lerp_(list(self._averaged.values()), list(self._trained.values()), 1 - keep)
        return loss.item()

    def load_checkpoint(self) -> None:
        path = self._out / CHECKPOINT
        if not path.is_file():
            return
        try:
            kept = torch.load(path, weights_only=True)
            ours = kept["key"] == self._key
        except Exception as error:  # whatever torch raises of a file that is none of its own
            raise StudyError(f"{path} cannot be read: {error}.", "Delete it to begin anew.", path=str(path)) from error
        if not ours:
            mend = "Give another folder, or delete this one."
            raise StudyError(f"{self._out} holds a training of other data or settings.", mend, path=str(path))
        self._net.load_state_dict(kept["net"], strict=False)
        self._optimizer.load_state_dict(kept["optimizer"])
        self._averaged = kept["averaged"]
        torch.set_rng_state(kept["random"])
        self.epoch, self.step, self.best = kept["epoch"], kept["step"], kept["best"]

    def save_checkpoint(self) -> None:
        reached = {"key": self._key, "epoch": self.epoch, "step": self.step, "best": self.best}
        weights = {"net": self._trained, "averaged": self._averaged, "optimizer": self._optimizer.state_dict()}
        self._write(CHECKPOINT, partial(torch.save, {**reached, **weights, "random": torch.get_rng_state()}))
        self._saved = time.monotonic()

    def _measure_averaged(self) -> dict[str, float]:
        """Return the figures of the averaged weights on the held-out questions, exported as they would be served."""
        with TemporaryDirectory() as place:
            folder = Path(place)
            self._save_averaged(folder / WEIGHTS)
            graph = network.export_reader(folder / WEIGHTS, folder, self._training)
            (folder / CARD).write_bytes(orjson.dumps({"sha256": digest_file(graph)}))
            return measure_reader(Reader(folder), self._data.held_out)

    def _save_averaged(self, file: Path) -> None:
        save_file({name: value.contiguous() for name, value in self._averaged.items()}, file)

    def _write(self, name: str, write: Callable[[Path], Any]) -> None:
        self._out.mkdir(parents=True, exist_ok=True)
        aside = self._out / f"{name}{ASIDE}"
        write(aside)
        aside.replace(self._out / name)


def _worth(found: Mapping[str, float]) -> float:
    return found["exact"] + found.get("auc_sum", 0.0)
