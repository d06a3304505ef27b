"""What a machine and a project have and lack, each lack with its remedy."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, distributions, requires
from pathlib import Path
from typing import TYPE_CHECKING

from ragc.errors import RagcError, explain_disk

if TYPE_CHECKING:
    from ragc.knowledge.project import Project
    from ragc.models.language.gateway import Endpoint
    from ragc.settings import KnowledgeSettings, ProviderSettings

INSTALL = "python -m pip install -c constraints.txt"
ROLES = ("decide", "write", "query", "judge", "propose")
LEAST_CALLS = 2  # of a model, that the time of a question should be room for


@dataclass(frozen=True, slots=True)
class SetupFinding:
    """One thing that was looked at."""

    good: bool  # whether nothing has to be done
    what: str
    mend: str = ""  # the remedy; empty where nothing has to be done
    warning: bool = False  # whether it may well stay as it is


def examine_setup(folder: Path | None) -> list[SetupFinding]:
    """Examine the machine and the project in a folder, if any; problems come first."""
    found = [SetupFinding(sys.version_info >= (3, 11), f"Python {sys.version.split()[0]}", "Use Python 3.11 or newer.")]
    found += _check_packages()
    found.append(_try_out("the MiniLM weights are whole and embed a text", _embed_text))
    if folder is not None:
        found += _check_project(folder)
    return [
        replace(one, mend="" if one.good else one.mend)
        for one in sorted(found, key=lambda one: (one.good, one.warning))
    ]


def _check_packages() -> Iterator[SetupFinding]:
    try:
        lines = [line for line in requires("ragc") or () if "extra ==" not in line]
    except PackageNotFoundError:
        yield SetupFinding(False, "ragc is not installed", f"{INSTALL} -e .")
        return
    names = [re.split(r"[^A-Za-z0-9._-]", line)[0] for line in lines]
    absent = [name for name in names if not any(distributions(name=name))]
    yield SetupFinding(True, f"{len(names) - len(absent)} packages are installed")
    yield from (SetupFinding(False, f"{name} is not installed", f"{INSTALL} {name}") for name in absent)


def _check_project(folder: Path) -> Iterator[SetupFinding]:
    from ragc.knowledge.project import Project
    from ragc.optimize.labelled.dataset import read_labelled

    try:
        project = Project.open(folder)
    except (RagcError, OSError) as error:
        yield _tell_error(error)
        return
    yield SetupFinding(True, f"{folder / 'ragc.toml'} is valid")
    for name, base in project.settings.knowledge.items():
        yield _check_knowledge(project, name, base)
    yield from _check_files(project)
    models, provider = project.settings.models, project.settings.provider
    named = {role: getattr(models, role) for role in ROLES}
    named["fallback"] = provider.fallback if isinstance(provider.fallback, str) else ""
    for role, name in named.items():
        if name:
            yield _check_model(role, name, provider, project)
    yield _try_out(f"embed: {models.embed} embeds a text", lambda: _embed_text(models.embed))
    labelled, needed = project.labelled, "Needed only to compile: label some questions."
    if labelled.exists():
        yield _try_out(f"labelled questions: {labelled}", lambda: read_labelled(labelled, folder))
    else:
        yield SetupFinding(False, f"labelled questions: {labelled}", needed)


def _check_knowledge(project: Project, name: str, base: KnowledgeSettings) -> SetupFinding:
    from ragc.knowledge.web import KEYS
    from ragc.settings import HttpSettings, PackageSettings, WebSettings

    if isinstance(base, HttpSettings | PackageSettings):
        return SetupFinding(True, f"knowledge base {name}: {base.kind}")
    if isinstance(base, WebSettings) and not base.path:
        key = KEYS.get(base.provider, "")
        good = bool(base.provider) and (not key or key in os.environ)
        mend = f"Set {key} in the environment." if key else "Set `provider` or `path`; until then nobody asks it."
        return SetupFinding(good, f"knowledge base {name}: web search by {base.provider or 'nobody'}", mend)
    place = project.place(base)
    if not isinstance(place, Path):
        return SetupFinding(True, f"knowledge base {name}: a database")
    return SetupFinding(place.exists(), f"knowledge base {name}: {place}", f"Put its files into {place}.")


def _check_files(project: Project) -> Iterator[SetupFinding]:
    """Yield what of the files of the knowledge is not read, or is probably not meant."""
    from ragc.optimize.labelled.rules import read_corpus

    try:
        read = read_corpus(project).read
        yield SetupFinding(True, f"files of knowledge: {read.files}")
        yield from (SetupFinding(False, str(replace(one, mend="")), one.mend, not one.lost) for one in read.flaws)
    except (RagcError, OSError) as error:
        yield _tell_error(error)


def _check_model(role: str, name: str, provider: ProviderSettings, project: Project) -> SetupFinding:
    """Look at a model: a language model is called, to see whether it answers and how long that takes."""
    from dspy.utils.exceptions import LMError

    from ragc.models.catalog import FALLBACK, is_structured, missing_keys, open_endpoint
    from ragc.models.embedded.reader import READER
    from ragc.models.language.gateway import ProviderLM
    from ragc.models.language.pace import UNANSWERED, allow_long_calls, measure_pace, note_pace

    embedded = READER if role in ("decide", "judge", "write", "query", FALLBACK) else ""
    if name == embedded:
        return SetupFinding(True, f"{role}: {name} (embedded)")
    mend = UNANSWERED
    try:
        endpoint = open_endpoint(name, allow_long_calls(provider), role, embedded)
        if lacking := missing_keys(name, provider):
            return SetupFinding(False, f"{role}: {name}", f"Set {', '.join(lacking)} in the environment.")
        if structured := is_structured(name, provider):
            mend += f' If it takes no JSON schema, set structured = false under [provider.model."{name}"].'
        _decide_once(endpoint, structured)
        pace = measure_pace(ProviderLM(endpoint))
        note_pace(project.private, name, pace)
    except LMError as error:
        return SetupFinding(False, f"{role}: {error.message}", mend)
    except RagcError as error:
        return SetupFinding(False, f"{role}: {error.what}", error.mend)
    budget = project.settings.budget
    short = "max_seconds" in budget.model_fields_set and budget.max_seconds < LEAST_CALLS * pace.seconds
    cut = f"[budget] max_seconds = {budget.max_seconds:g} cuts its answers off"
    line = f"{role}: {name} answers, {pace.seconds:.1f} s a call; {_describe_price(endpoint)}"
    return SetupFinding(not short, line, f"{cut}: take it out, and it follows the pace measured.")


def _decide_once(endpoint: Endpoint, structured: bool) -> None:
    """Ask a language model for a decision, by a schema where it takes one."""
    from ragc.models.deciders import LanguageDecider

    ready = {"ready": {"type": "noul", "instructions": "You are ready to answer questions."}}
    LanguageDecider(endpoint, structured=structured)({"instructions": "Decide.", "inputs": {}}, ready)


def _describe_price(endpoint: Endpoint) -> str:
    if not endpoint.priced:
        return "price unknown: no cap on money holds until usd_in and usd_out are in ragc.toml"
    usd_in, usd_out = 1e3 * endpoint.price(1_000, 0), 1e3 * endpoint.price(0, 1_000)  # of a short call
    return f"US$ {usd_in:g} in, {usd_out:g} out a million"


def _embed_text(name: str = "local/minilm") -> None:
    from ragc.models.embedded.encoder import shared_embedder

    shared_embedder(name).encode(["a text"])


def _try_out(what: str, action: Callable[[], object]) -> SetupFinding:
    try:
        action()
    except (RagcError, OSError) as error:
        return _tell_error(error)
    return SetupFinding(True, what)


def _tell_error(error: RagcError | OSError) -> SetupFinding:
    told = explain_disk(error) if isinstance(error, OSError) else error
    return SetupFinding(False, told.what, told.mend)
