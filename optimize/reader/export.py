"""A trained reader as one int8 ONNX file with its card beside it."""

from __future__ import annotations

import warnings
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from optimize.reader.train import Training, build_net
from program.errors import ModelError

READER_FILE = "reader.onnx"
OPSET = 17


def export_reader(weights: Path, out: Path, training: Training) -> Path:
    """Write `reader.onnx` into a folder, and return its path: weights in int8, about 11 MB.

    Its inputs are `words` (pairs, tokens, 384), the embeddings' rows of the token ids, and `types` and `open` (pairs,
    tokens), none of which is padding; its outputs are logits: `start` and `end` (pairs, tokens), `answers` (pairs,).
    The word embeddings are not in it: they are those of the MiniLM package, which training leaves as they are.

    Raises `ModelError` when the package onnx is not installed.
    """
    try:
        import onnx  # noqa: F401
        from onnxruntime.quantization import QuantType, quantize_dynamic
    except ImportError as error:
        raise ModelError("The package onnx is not installed.", 'Run: python -m pip install "ragc[train]"') from error
    import torch
    from safetensors.torch import load_file

    net: Any = build_net(training, attention="eager")
    net.load_state_dict(load_file(weights), strict=False)
    net.eval()
    axes = {0: "pairs", 1: "tokens"}
    whole = torch.ones(2, 16, dtype=torch.long)
    given = (torch.zeros(2, 16, net.bert.config.hidden_size), whole, whole)
    names, found = ["words", "types", "open"], ["start", "end", "answers"]
    out.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        full = Path(folder) / READER_FILE
        torch.onnx.export(
            net,
            given,
            str(full),
            input_names=names,
            output_names=found,
            dynamic_axes=dict.fromkeys(names, axes) | {"start": axes, "end": axes, "answers": {0: "pairs"}},
            opset_version=OPSET,
            dynamo=False,
        )
        quantize_dynamic(full, out / READER_FILE, per_channel=True, weight_type=QuantType.QInt8)
    return out / READER_FILE
