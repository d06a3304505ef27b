"""The reader as a torch module, its batches, and its export as one int8 ONNX file.

MiniLM has a head for the answer's span and one for whether there is any.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch.nn.utils.rnn import pad_sequence
from transformers import BertModel
from transformers.utils import logging

from optimize.reader.examples import ReadingExample
from program.errors import ModelError
from program.models.embedded.encoder import minilm_folder
from program.models.embedded.reader import FILE, PAIR_TOKENS, SEP, join_head

ANSWER_WEIGHT = 1.0  # of the loss of "answers", beside that of the span
HEAD_PACE = 3  # times the learning rate that the heads have
LAYER_DECAY = 0.9  # of the learning rate, from a layer to the one before it
CLOSED = -1e4  # the logit of a place where no answer may stand
POOL = 40  # batches whose examples are sorted by length together
USUAL_TOKENS = 160  # of an example, about
OPSET = 17
INPUTS, OUTPUTS = ["words", "types", "open"], ["start", "end", "answers"]

Batch = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Training:
    """How a reader is trained. Another value of any of these is another training, which no checkpoint continues."""

    epochs: int = 4
    seed: int = 0
    learning_rate: float = 1e-4
    batch_tokens: int = 4_096  # tokens of a batch, padding counted
    frozen: int = 1  # layers that stay as they are, from the first; the embeddings always do
    dropout: float = 0.1  # of the embedded tokens
    bfloat16: bool = False  # multiply in bfloat16; faster where the processor can (AVX-512 BF16, AMX)


class ReaderNet(torch.nn.Module):
    """MiniLM with the two heads, its embeddings and first layers frozen."""

    def __init__(self, training: Training, attention: str = "sdpa") -> None:
        super().__init__()
        logging.disable_progress_bar()
        logging.set_verbosity_error()  # else it warns that the pooler, which no reader has, is left out
        self.bert: Any = BertModel.from_pretrained(
            minilm_folder(),
            add_pooling_layer=False,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
            attn_implementation=attention,
        )
        self.bert.embeddings.dropout = torch.nn.Dropout(training.dropout)
        self.span = torch.nn.Linear(self.bert.config.hidden_size, 2)
        self.answers = torch.nn.Linear(self.bert.config.hidden_size, 1)
        for frozen in (self.bert.embeddings, *self.bert.encoder.layer[: training.frozen]):
            frozen.requires_grad_(False)

    def forward(
        self, words: torch.Tensor, types: torch.Tensor, open: torch.Tensor, mask: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return the logits `start` and `end` (pairs, tokens) and `answers` (pairs,)."""
        states = self.bert(inputs_embeds=words, token_type_ids=types, attention_mask=mask).last_hidden_state
        start, end = self.span(states).masked_fill(~open.bool()[..., None], CLOSED).unbind(-1)
        return start, end, self.answers(states[:, 0])[:, 0]

    def read(self, batch: Batch) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return the logits of a batch of token ids."""
        words = self.bert.embeddings.word_embeddings(batch["ids"])
        found: tuple[torch.Tensor, torch.Tensor, torch.Tensor] = self(
            words, batch["types"], batch["open"], batch["mask"]
        )
        return found

    def list_trained(self) -> dict[str, torch.nn.Parameter]:
        """Return by name the weights that training changes."""
        return {name: value for name, value in self.named_parameters() if value.requires_grad}


def compute_loss(net: ReaderNet, batch: Batch) -> torch.Tensor:
    """Return the batch's mean loss, of the span and of whether there is one.

    The span of a passage that does not answer is the first token (Devlin et al. 2019, arXiv 1810.04805, section 4.3).
    """
    start, end, answers = net.read(batch)
    start, end = start.log_softmax(-1), end.log_softmax(-1)
    losses = []
    for row, spans in enumerate(batch["spans"]):
        firsts, lasts = zip(*(spans or ((0, 0),)), strict=True)
        losses.append(-torch.logsumexp(start[row, list(firsts)] + end[row, list(lasts)], 0))
    answered = torch.tensor([float(bool(spans)) for spans in batch["spans"]])
    silent = torch.nn.functional.binary_cross_entropy_with_logits(answers, answered)
    return torch.stack(losses).mean() + ANSWER_WEIGHT * silent


def make_optimizer(net: ReaderNet, training: Training) -> torch.optim.Optimizer:
    """Return AdamW: thrice the rate for heads, less for layers near the input."""
    heads = [*net.span.parameters(), *net.answers.parameters()]
    groups: list[dict[str, Any]] = [{"params": heads, "peak": HEAD_PACE * training.learning_rate}]
    for depth, layer in enumerate(reversed(net.bert.encoder.layer[training.frozen :])):
        groups.append({"params": list(layer.parameters()), "peak": training.learning_rate * LAYER_DECAY**depth})
    return torch.optim.AdamW(groups, betas=(0.9, 0.98), weight_decay=0.01, fused=True)


@dataclass(frozen=True, slots=True)
class Encoded:
    """A question and a window of a passage as token ids; `spans` are (first, last) tokens of answers."""

    ids: tuple[int, ...]
    text_at: int  # where the passage's text begins; what is before it is never an answer
    spans: tuple[tuple[int, int], ...]


class PairEncoder:
    """Encodes questions with passages as `[CLS] question [SEP] title [SEP] text [SEP]`."""

    def __init__(self) -> None:
        self._tokenizer: Tokenizer = Tokenizer.from_file(str(minilm_folder() / "tokenizer.json"))
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self._kept: dict[str, Any] = {}

    def encode(self, example: ReadingExample, random: Random) -> Encoded:
        """Return the pair, of a long text a window around an answer or the beginning."""
        question, title, text = (self._read(part) for part in (example.question, example.title, example.text))
        head = join_head(question.ids, title.ids)
        room = PAIR_TOKENS - len(head) - 1
        spans = [found for start, end in example.spans() if (found := _tokens_of(text.offsets, start, end))]
        start = _choose_window(spans, len(text.ids), room, random) if spans and len(text.ids) > room else 0
        shown = text.ids[start : start + room]
        at = len(head) - start
        inside = tuple((a + at, b + at) for a, b in spans if start <= a and b < start + room)
        return Encoded((*head, *shown, SEP), len(head), inside)

    def _read(self, text: str) -> Any:
        if text not in self._kept:
            self._kept[text] = self._tokenizer.encode(text, add_special_tokens=False)
        return self._kept[text]


def _tokens_of(offsets: Sequence[tuple[int, int]], start: int, end: int) -> tuple[int, int] | None:
    inside = [n for n, (a, b) in enumerate(offsets) if a < end and b > start]
    return (inside[0], inside[-1]) if inside else None


def _choose_window(spans: Sequence[tuple[int, int]], length: int, room: int, random: Random) -> int:
    """Return where a window of a long text begins: anywhere that holds the whole of an answer."""
    first, last = random.choice(spans)
    if last - first >= room:
        return first
    return min(max(0, random.randint(last - room + 1, first)), length - room)


def make_batches(encoded: Sequence[Encoded], tokens: int, random: Random) -> list[list[Encoded]]:
    """Return batches of about so many tokens, of like lengths, in random order."""
    batches: list[list[Encoded]] = []
    size = POOL * max(1, tokens // USUAL_TOKENS)
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


def collate(batch: Sequence[Encoded]) -> Batch:
    """Return padded tensors of shape (pairs, tokens), and each pair's spans.

    `open` marks the places where an answer may stand: the text's, and the first one, which says that there is none.
    """
    ids = pad_sequence([torch.tensor(one.ids) for one in batch], batch_first=True)
    places = torch.arange(ids.shape[1])
    lengths = torch.tensor([[len(one.ids)] for one in batch])
    questions = torch.tensor([[one.ids.index(SEP)] for one in batch])  # where they end
    texts = torch.tensor([[one.text_at] for one in batch])
    mask = places < lengths
    open = ((places >= texts) & (places < lengths - 1)) | (places == 0)
    masks = {"mask": mask, "types": mask & (places > questions), "open": open}
    return {"ids": ids, **{name: one.long() for name, one in masks.items()}, "spans": [one.spans for one in batch]}


def require_onnx() -> None:
    """Raise `ModelError` when the package onnx is not installed."""
    try:
        import onnx  # noqa: F401
    except ImportError as error:
        raise ModelError("The package onnx is not installed.", 'Run: python -m pip install "ragc[train]"') from error


def export_reader(weights: Path, out: Path, training: Training) -> Path:
    """Write `reader.onnx` into a folder, and return its path.

    Its weights are in int8, about 11 MB. Its inputs are `words` (pairs, tokens, 384), the embeddings' rows of the
    token ids, and `types` and `open` (pairs, tokens), none of which is padding; its outputs are logits: `start` and
    `end` (pairs, tokens), `answers` (pairs,). The word embeddings are not in it: they are those of the MiniLM package,
    which training leaves as they are.

    Raises `ModelError` when the package onnx is not installed.
    """
    require_onnx()
    from onnxruntime.quantization import QuantType, quantize_dynamic

    net = ReaderNet(training, attention="eager")
    net.load_state_dict(load_file(weights), strict=False)
    net.eval()
    axes = {0: "pairs", 1: "tokens"}
    whole = torch.ones(2, 16, dtype=torch.long)
    given = (torch.zeros(2, 16, net.bert.config.hidden_size), whole, whole)
    with TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        full = Path(folder) / FILE
        torch.onnx.export(
            net,
            given,
            str(full),
            input_names=INPUTS,
            output_names=OUTPUTS,
            dynamic_axes=dict.fromkeys(INPUTS, axes) | {"start": axes, "end": axes, "answers": {0: "pairs"}},
            opset_version=OPSET,
            dynamo=False,
        )
        quantize_dynamic(full, out / FILE, per_channel=True, weight_type=QuantType.QInt8)
    return out / FILE
