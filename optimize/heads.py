"""The heads of a program's deciders, fitted before it is tested and kept beside the record."""

from __future__ import annotations

import contextlib
import hashlib
import os
from pathlib import Path

from pydantic import TypeAdapter

from optimize.content import fingerprint
from program.artifact import fitted_heads
from program.deciding import decides, tiers
from program.rag import AgenticRAG


def fit_heads(program: AgenticRAG, folder: Path) -> None:
    """Has every decision predictor with demonstrations ready to answer.

    What they were fitted to is in `folder` afterwards, so that another compile that ends in the same
    demonstrations fits nothing; a file that cannot be written costs time only.
    """
    asked = []
    for name, predictor in program.named_predictors():
        model = tiers(program, predictor, {})[0]
        if decides(predictor) and hasattr(model, "export_heads") and predictor.demos:
            asked.append((name, predictor, model, fingerprint(program, predictor, model)))
    if not asked:
        return
    named = hashlib.sha256("".join(print_ for *_, print_ in asked).encode()).hexdigest()[:16]
    path = folder / f"heads-{named}.safetensors"
    adopt = getattr(program.runtime.models.decide, "import_heads", None)
    if path.is_file() and adopt is not None:
        from safetensors.numpy import load_file

        with contextlib.suppress(OSError, ValueError):
            adopt(load_file(path))
    for name, predictor, model, _ in asked:
        inputs = {
            field: TypeAdapter(info.annotation).validate_python(predictor.demos[0][field])
            for field, info in predictor.signature.input_fields.items()
        }
        program.requests.ask(name, predictor, model, inputs)
    content = fitted_heads(program)
    if content and not path.is_file():
        with contextlib.suppress(OSError):
            aside = path.with_suffix(f".{os.getpid()}")
            aside.write_bytes(content)
            aside.replace(path)
