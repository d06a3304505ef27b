"""A trained reader as one int8 ONNX file."""

from __future__ import annotations

import warnings
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from safetensors.torch import load_file

from optimize.reader.network import ReaderNet, Training
from program.errors import ModelError
from program.models.embedded.reader import FILE

OPSET = 17
INPUTS, OUTPUTS = ["words", "types", "open"], ["start", "end", "answers"]


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
