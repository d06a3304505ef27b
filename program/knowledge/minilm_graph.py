"""all-MiniLM-L6-v2 as an ONNX graph without its weights: `python -m program.knowledge.minilm_graph` writes it.

Six BERT layers (Wang et al. 2020, arXiv 2002.10957) over token ids of texts of one length, to the states of each
token. The weights are given by name, as `model.safetensors` has them, when a session is opened. Only development
needs the package `onnx`; running the graph does not.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto, TensorProto

GRAPH = Path(__file__).with_name("minilm.onnx")
DIMENSION = 384
HEADS = 12
LAYERS = 6
TOKENS = 30_522  # in the vocabulary
LONGEST = 512  # tokens that have a place
EPSILON = 1e-12
OPSET = 20
VERSION = 10  # of the format


class _Graph:
    """Nodes in the order they run, and the weights they name."""

    def __init__(self) -> None:
        self.nodes: list[NodeProto] = []
        self.weights: dict[str, tuple[int, ...]] = {}

    def run(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """Adds a node; the name of what it gives."""
        from onnx import helper

        name = f"{kind}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], **attributes))
        return name

    def weight(self, name: str, *shape: int) -> str:
        self.weights[name] = shape
        return name

    def linear(self, x: str, name: str, given: int = DIMENSION, made: int = DIMENSION) -> str:
        weight, bias = self.weight(f"{name}.weight", made, given), self.weight(f"{name}.bias", made)
        return self.run("Gemm", x, weight, bias, transB=1)

    def normal(self, x: str, name: str) -> str:
        weight, bias = (self.weight(f"{name}.LayerNorm.{part}", DIMENSION) for part in ("weight", "bias"))
        return self.run("LayerNormalization", x, weight, bias, axis=-1, epsilon=EPSILON)

    def attention(self, x: str, name: str) -> str:
        parts = (self.linear(x, f"{name}.self.{part}") for part in ("query", "key", "value"))
        query, key, value = (self.run("Reshape", part, "heads") for part in parts)
        query, value = (self.run("Transpose", part, perm=[0, 2, 1, 3]) for part in (query, value))
        likeness = self.run("MatMul", query, self.run("Transpose", key, perm=[0, 2, 3, 1]))
        seen = self.run("MatMul", self.run("Softmax", self.run("Mul", likeness, "scale"), axis=-1), value)
        flat = self.run("Reshape", self.run("Transpose", seen, perm=[0, 2, 1, 3]), "flat")
        made = self.run("Add", self.linear(flat, f"{name}.output.dense"), x)
        return self.normal(made, f"{name}.output")

    def layer(self, x: str, name: str) -> str:
        x = self.attention(x, f"{name}.attention")
        wide = self.run("Gelu", self.linear(x, f"{name}.intermediate.dense", made=4 * DIMENSION))
        made = self.run("Add", self.linear(wide, f"{name}.output.dense", given=4 * DIMENSION), x)
        return self.normal(made, f"{name}.output")


def model() -> ModelProto:
    """Takes `ids` (texts, tokens), `places` (tokens: 0, 1, 2, ...) and `heads` (4: texts, tokens, 12, 32), all int64;
    gives `states` (texts x tokens, 384), float32."""
    from onnx import TensorProto, helper, numpy_helper

    graph = _Graph()
    x = graph.run("Gather", graph.weight("embeddings.word_embeddings.weight", TOKENS, DIMENSION), "ids")
    kind = graph.run("Gather", graph.weight("embeddings.token_type_embeddings.weight", 2, DIMENSION), "first")
    place = graph.run("Gather", graph.weight("embeddings.position_embeddings.weight", LONGEST, DIMENSION), "places")
    x = graph.run("Add", graph.run("Add", x, kind), place)
    x = graph.run("Reshape", graph.normal(x, "embeddings"), "flat")
    for n in range(LAYERS):
        x = graph.layer(x, f"encoder.layer.{n}")
    graph.nodes[-1].output[0] = "states"
    constants = {
        "first": np.array(0, np.int64),
        "flat": np.array([-1, DIMENSION], np.int64),
        "scale": np.array((DIMENSION / HEADS) ** -0.5, np.float32),
    }
    given = {"ids": ["texts", "tokens"], "places": ["tokens"], "heads": [4]}
    whole = helper.make_graph(
        graph.nodes,
        "all-MiniLM-L6-v2",
        [helper.make_tensor_value_info(name, TensorProto.INT64, shape) for name, shape in given.items()],
        [helper.make_tensor_value_info("states", TensorProto.FLOAT, ["rows", DIMENSION])],
        [numpy_helper.from_array(value, name) for name, value in constants.items()]
        + [_absent(name, shape) for name, shape in graph.weights.items()],
    )
    return helper.make_model(whole, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=VERSION)


def _absent(name: str, shape: tuple[int, ...]) -> TensorProto:
    """A weight of that shape whose numbers are given later."""
    from onnx import TensorProto

    tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=shape, data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="model.safetensors")
    return tensor


if __name__ == "__main__":
    GRAPH.write_bytes(model().SerializeToString(deterministic=True))
