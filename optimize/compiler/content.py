"""What names a request: its content, by which a reply is found again in memory and in the record's file."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable
from typing import Any

import dspy
import orjson

from optimize.compiler.code import source_digest
from optimize.compiler.consultation import Put
from optimize.compiler.record import key_of
from program.loop.decisions import to_jsonable, to_prompt_inputs
from program.loop.rag import AgenticRAG
from program.loop.state import Ask, Find
from program.models.catalog import LOCAL
from program.passage import Passage


class Contents:
    """Names what is put to a program's models and sources."""

    def __init__(self, program: AgenticRAG) -> None:
        self._program = program
        self._predictors = dict(program.named_predictors())
        self._sources = {name: program.runtime.library.content_digest(name) for name in program.sources}
        self._prints: dict[tuple[str, str, int, int], tuple[str, Any, Any]] = {}

    def key(self, put: Put) -> Hashable:
        """Names it in this process."""
        if isinstance(put.request, Find):
            find = put.request
            return ("find", find.query, find.sources, find.depth, find.not_before)
        keys = [
            (self._print(ask.predictor, put.model), *(_content(value) for value in ask.inputs.values()))
            for ask in put.asks
        ]
        return keys[0] if len(keys) == 1 else ("together", put.wanted, *keys)

    def digest(self, put: Put) -> bytes | None:
        """Names it in the record's file; None when what it brings may change unseen."""
        content: list[Any]
        if isinstance(put.request, Find):
            find = put.request
            places = [self._sources.get(name, "") for name in find.sources]
            if not all(places):
                return None
            content = ["find", find.query, find.sources, places, find.depth, source_digest()]
            if find.not_before is not None:
                content.append(find.not_before)
        else:
            told = [self._told(ask, put.model) for ask in put.asks]
            content = told[0] if len(told) == 1 else ["together", put.wanted, told, source_digest()]
        return key_of(content)

    def _told(self, ask: Ask, model: Any) -> list[Any]:
        inputs = {name: to_jsonable(value) for name, value in to_prompt_inputs(ask.inputs).items()}
        return [self._print(ask.predictor, model), inputs]

    def _print(self, name: str, model: Any) -> str:
        predictor = self._predictors[name]
        key = (name, str(model.model), id(predictor.signature), id(predictor.demos))
        if key not in self._prints:
            print_ = fingerprint(self._program, predictor, model)
            self._prints[key] = (print_, predictor.signature, predictor.demos)  # kept, so that no other takes their ids
        return self._prints[key][0]


def _content(value: Any) -> Hashable:
    """What identifies an input in this process: a passage by its id and text, a list by its members."""
    if isinstance(value, Passage):
        return (value.id, value.text)
    if isinstance(value, list | tuple):
        return tuple(_content(item) for item in value)
    return value  # type: ignore[no-any-return]


def fingerprint(program: AgenticRAG, predictor: dspy.Predict, model: Any) -> str:
    """Identifies what answers a predictor: instructions, fields, demonstrations, wording, and the model.

    A model of this project's own is identified by the code, too; another by DSPy's version, which writes the prompt.
    """
    local = model.model.startswith(LOCAL)
    described = {
        name: [str(f.annotation), (f.json_schema_extra or {}).get("desc"), (f.json_schema_extra or {}).get("prefix")]
        for name, f in predictor.signature.fields.items()
    }
    worded = {name: [c.get("instructions"), c.get("criteria")] for name, c in predictor.fields.items()}
    wording = {name: words for name, words in worded.items() if any(words)}  # a threshold alone says nothing
    reader = [source_digest(), program.runtime.models.embedder.digest] if local else [dspy.__version__]
    settings = {k: v for k, v in (model.kwargs or {}).items() if "key" not in k}
    content = [
        predictor.signature.instructions, described, wording, [dict(demo) for demo in predictor.demos],
        predictor.config, model.model, settings, reader,
    ]  # fmt: skip
    packed = orjson.dumps(content, default=lambda item: item.model_dump(mode="json"), option=orjson.OPT_SORT_KEYS)
    return hashlib.blake2b(packed, digest_size=16).hexdigest()
