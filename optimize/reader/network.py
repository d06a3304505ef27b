"""The reader and its teacher as torch modules, their batches and losses, and the export as one int8 ONNX file.

1. A group is a question with its own passage and passages that search finds and that do not answer it.
2. Each encoder has two heads: the span's first and last token, and whether the passage answers.
3. All tokens of a group's passages are in one softmax, with "none answers" (Clark and Gardner 2018, arXiv 1710.10723).
4. A teacher reads the same texts with its own tokenizer; its logits are read off at the student's tokens.
5. The student learns labels and the teacher's softened logits, half and half (Hinton et al. 2015, arXiv 1503.02531).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import torch
from safetensors.torch import load_file
from torch.nn.functional import binary_cross_entropy_with_logits, kl_div
from torch.nn.utils.rnn import pad_sequence
from transformers import BertModel
from transformers.utils import logging

from ragc.models.embedded.encoder import minilm_folder, open_tokenizer
from ragc.models.embedded.reader import FILE, PAIR_TOKENS, SEP, join_head
from ragc.optimize.reader.examples import ReadingExample

WEIGHTS = "weights.safetensors"
DROPOUT = 0.1  # of the student's embedded tokens
TEMPERATURE = 2.0  # that the logits of teacher and student are divided by
CLOSED = -1e4  # the logit of a place where no answer may stand
TEACHER_TOKENS = 384  # of a pair in the teacher's own tokens, at most
INPUTS, OUTPUTS = ["words", "types", "open"], ["start", "end", "answers"]

Batch = dict[str, Any]
Logits = tuple[torch.Tensor, torch.Tensor, torch.Tensor]  # start and end (pairs, tokens), and answers (pairs,)


class HeadedEncoder(torch.nn.Module):
    """An encoder with a head for the span and one for whether there is any; it reads the part `name` of a batch."""

    def __init__(self, encoder: Any, name: str) -> None:
        super().__init__()
        self.bert, self.name = encoder, name
        self.span = torch.nn.Linear(encoder.config.hidden_size, 2)
        self.answers = torch.nn.Linear(encoder.config.hidden_size, 1)

    def forward(self, open: torch.Tensor, at: torch.Tensor | None = None, **inputs: torch.Tensor) -> Logits:
        """Return the logits at the student's tokens; `at` are a teacher's own there."""
        states = self.bert(**inputs).last_hidden_state
        logits = self.span(states) if at is None else self.span(states).gather(1, at)
        start, end = logits.masked_fill(~open.bool()[..., None], CLOSED).unbind(-1)
        return start, end, self.answers(states[:, 0])[:, 0]


def load_reader(start: Path | None = None, attention: str = "sdpa") -> HeadedEncoder:
    """Return MiniLM with the heads, its embeddings frozen, as serving has them."""
    logging.disable_progress_bar()
    logging.set_verbosity_error()  # else it warns that the pooler, which no reader has, is left out
    still = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "attn_implementation": attention}
    net = HeadedEncoder(BertModel.from_pretrained(minilm_folder(), add_pooling_layer=False, **still), "reader")
    net.bert.embeddings.dropout = torch.nn.Dropout(DROPOUT)
    net.bert.embeddings.requires_grad_(False)
    if start:
        missing, unknown = net.load_state_dict(load_file(start / WEIGHTS), strict=False)
        if unknown or {"span.weight", "answers.weight"} & set(missing):
            raise ValueError(f"{WEIGHTS} are not those of a reader")
    return net


def load_teacher(folder: Path) -> tuple[HeadedEncoder, Any]:
    """Return an encoder of sentence-transformers with the heads, and its tokenizer."""
    from sentence_transformers import SentenceTransformer

    module = SentenceTransformer(str(folder.resolve(strict=True)), device="cpu", local_files_only=True)[0]
    module.tokenizer("", return_offsets_mapping=True)  # raises where it cannot say where tokens stand
    return HeadedEncoder(module.auto_model, "teacher"), module.tokenizer


def spread(logits: torch.Tensor, batch: Batch) -> torch.Tensor:
    """Return span logits of shape (groups, 1 + passages x tokens).

    Each is less its passage's "no answer". The first place of a group is "none answers", which has logit 0.
    """
    text = batch["reader"]["open"].bool().index_fill(1, torch.tensor(0, device=logits.device), False)
    shown = (logits - logits[:, :1]).float().masked_fill(~text, CLOSED)
    whole = shown.new_full((len(batch["spans"]), int(batch["slot"].max()) + 1, logits.shape[1]), CLOSED)
    whole[batch["group"], batch["slot"]] = shown
    return torch.cat([whole.new_zeros(len(whole), 1), whole.flatten(1)], 1)


def compute_loss(logits: Logits, batch: Batch) -> torch.Tensor:
    """Return the mean loss of the groups' spans, and of whether a passage answers."""
    spans = batch["spans"]
    at = spans.clamp(min=0).unbind(-1)
    start, end = (spread(one, batch).log_softmax(-1).gather(1, n) for one, n in zip(logits[:2], at, strict=True))
    likely = (start + end).masked_fill(spans[..., 0] < 0, -torch.inf).logsumexp(1)
    return -likely.mean() + binary_cross_entropy_with_logits(logits[2].float(), batch["answered"])


def compute_soft_loss(student: Logits, teacher: Logits, batch: Batch) -> torch.Tensor:
    """Return how far the student's logits are from the teacher's."""
    loss = 2 * binary_cross_entropy_with_logits(student[2].float(), teacher[2].float().sigmoid())
    for pair in zip(student[:2], teacher[:2], strict=True):
        ours, theirs = (spread(one, batch).div(TEMPERATURE).log_softmax(-1) for one in pair)
        loss = loss + kl_div(ours, theirs, reduction="batchmean", log_target=True) * TEMPERATURE**2
    return loss


class Pair(NamedTuple):
    """A question and a window of a passage in tokens."""

    input_ids: list[int]
    token_type_ids: list[int]
    open: list[int]  # 1 where an answer may stand: in the text, and at the first token, which says that there is none
    spans: list[tuple[int, int]]  # the first and last tokens of answers
    offsets: list[tuple[int, int]]  # where in the text each of its tokens begins and ends


class Collator:
    """Makes batches of groups, with what the teacher reads where there is one."""

    def __init__(self, teacher: HeadedEncoder | None = None, read: Any = None) -> None:
        self._tokenizer = open_tokenizer(minilm_folder())
        most = getattr(teacher.bert.config, "max_position_embeddings", TEACHER_TOKENS + 2) if teacher else 0
        self._read, self._most = read, min(TEACHER_TOKENS, most - 2)  # RoBERTa and MPNet count from 2

    def encode(self, one: ReadingExample) -> Pair:
        """Return the tokens of a pair, of a long text a window around an answer."""
        question, title, text = self._tokenizer.encode_batch(
            [one.question, one.title, one.text], add_special_tokens=False
        )
        head = join_head(question.ids, title.ids)
        room, start = PAIR_TOKENS - len(head) - 1, 0
        found = [(text.char_to_token(first), text.char_to_token(end - 1)) for first, end in one.spans()]
        spans = [(a, b) for a, b in found if a is not None and b is not None]
        if spans and len(text.ids) > room:
            random = Random(one.question)
            first, last = random.choice(spans)
            before = random.randint(0, max(room - 1 - (last - first), 0))
            start = min(max(first - before, 0), len(text.ids) - room)
        shown, at, asked = text.ids[start : start + room], len(head) - start, head.index(SEP) + 1
        words = [*head, *shown, SEP]
        types = [0] * asked + [1] * (len(words) - asked)
        open = [1] + [0] * (len(head) - 1) + [1] * len(shown) + [0]
        inside = [(a + at, b + at) for a, b in spans if start <= a and b < start + room]
        return Pair(words, types, open, inside, text.offsets[start : start + room])

    def __call__(self, groups: Sequence[Sequence[ReadingExample]]) -> Batch:
        """Return padded tensors of shape (pairs, tokens), and each group's spans; what pads spans is -1."""
        examples = [one for group in groups for one in group]
        pairs = [self.encode(one) for one in examples]
        inputs = {name: _pad(getattr(pair, name) for pair in pairs) for name in Pair._fields[:3]}
        slots = [n for group in groups for n in range(len(group))]
        # of the own passage, the first of its group; behind "none answers" each place is one further
        own = [pair.spans for pair, slot in zip(pairs, slots, strict=True) if not slot]
        batch = {
            "reader": {**inputs, "attention_mask": (inputs["input_ids"] > 0).long()},
            "spans": _pad(([(a + 1, b + 1) for a, b in spans] or [(0, 0)] for spans in own), -1),
            "group": torch.tensor([n for n, group in enumerate(groups) for _ in group]),
            "slot": torch.tensor(slots),
            "answered": torch.tensor([float(bool(pair.spans)) for pair in pairs]),
        }
        if self._read:
            batch["teacher"] = {**self._read_windows(examples, pairs), "open": inputs["open"]}
        return batch

    def _read_windows(self, examples: Sequence[ReadingExample], pairs: Sequence[Pair]) -> Batch:
        """Return what the teacher reads of the pairs, and its token at each token of the student's."""
        shown = [(pair.offsets[0][0], pair.offsets[-1][1]) if pair.offsets else (0, 0) for pair in pairs]
        windows = [f"{one.title}\n{one.text[slice(*bounds)]}" for one, bounds in zip(examples, shown, strict=True)]
        limits = {"truncation": True, "max_length": self._most, "padding": True, "return_tensors": "pt"}
        read = self._read([one.question for one in examples], windows, **limits)
        at = []
        for row, (one, pair, (begin, _)) in enumerate(zip(examples, pairs, shown, strict=True)):
            ends = [(a - begin, b - 1 - begin) for a, b in pair.offsets]
            found = [[read.char_to_token(row, len(one.title) + 1 + n, 1) or 0 for n in both] for both in ends]
            at.append([*[[0, 0]] * (len(pair.input_ids) - 1 - len(found)), *found, [0, 0]])
        return {**read, "at": _pad(at)}


def _pad(rows: Iterable[Any], value: int = 0) -> torch.Tensor:
    return pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=value)


def export_reader(folder: Path) -> Path:
    """Write `reader.onnx` in int8 beside `weights.safetensors`, and return its path.

    Its inputs are `words` (pairs, tokens, 384), the embeddings' rows of the token ids, and `types` and `open` (pairs,
    tokens), none of which is padding; its outputs are logits: `start` and `end` (pairs, tokens), `answers` (pairs,).
    """
    from onnxruntime.quantization import QuantType, quantize_dynamic

    net: Any = load_reader(folder, attention="eager").eval()
    read, axes = net.forward, {0: "pairs", 1: "tokens"}
    net.forward = lambda words, types, open: read(open, inputs_embeds=words, token_type_ids=types)
    given = torch.zeros(2, 16, net.bert.config.hidden_size), *torch.ones(2, 2, 16, dtype=torch.long)
    dynamic = dict.fromkeys(INPUTS, axes) | {"start": axes, "end": axes, "answers": {0: "pairs"}}
    names: dict[str, Any] = {"input_names": INPUTS, "output_names": OUTPUTS, "dynamic_axes": dynamic}
    with TemporaryDirectory() as made, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(net, given, f"{made}/{FILE}", opset_version=17, dynamo=False, **names)
        # in 7 of 8 bits: else products saturate on a processor without VNNI, which would read otherwise than others
        kind: dict[str, Any] = {"per_channel": True, "weight_type": QuantType.QInt8, "reduce_range": True}
        quantize_dynamic(f"{made}/{FILE}", folder / FILE, **kind)
    return folder / FILE
