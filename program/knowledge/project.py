"""A project folder: its settings, the places they name, and a sentence for every mistake in `ragc.toml`."""

from __future__ import annotations

import difflib
import os
import re
import shlex
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_args, get_origin

from pydantic import ValidationError

from ragc.errors import RagcError, SettingsError, describe_fault, suggest, suggest_option
from ragc.settings import (
    DEFAULT,
    ENVIRONMENT,
    FILE,
    KINDS,
    PACKAGE,
    FileSettings,
    PackageSettings,
    Settings,
    TablesSettings,
    artifacts_root,
)

ALLOW = "RAGC_ALLOW"
SQLITE = "sqlite:///"
UNKNOWN = ("extra_forbidden", "unexpected_keyword_argument")


class Project:
    """A project folder: its settings and the places they name, all absolute."""

    def __init__(self, folder: Path, settings: Settings) -> None:
        self.folder, self.settings = folder, settings

    @classmethod
    def open(cls, folder: str | Path) -> Project:
        """Open a project. Raises `SettingsError` when `ragc.toml` is absent or wrong."""
        root = Path(folder).resolve()
        if root.is_file():
            own = (root.parent / FILE).is_file()
            mend = f"Name its folder: {Path(folder).parent}" if own else f"Name a folder that holds a {FILE}."
            raise SettingsError(f"{folder} is a file, not a project's folder.", mend)
        if not (path := root / FILE).is_file():
            raise SettingsError(f"There is no {FILE} in {root}.", mend_folder(folder))
        try:
            text = path.read_text(encoding="utf-8")
            settings = Settings(**tomllib.loads(text))
        except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise SettingsError(f"{path} is not valid TOML: {error}.", "Mend that line, in UTF-8.") from error
        except ValidationError as error:
            raise _explain_invalid(path, text, error) from error
        if os.environ.get(ENVIRONMENT):  # relative to the working folder, as every verb without a project reads it
            settings = settings.model_copy(update={"artifacts": str(artifacts_root())})
        project = cls(root, settings)
        project.check_places()
        return project

    @property
    def argument(self) -> str:
        """The folder as a command takes it: quoted, and as seen from the working folder where it lies in that."""
        near = self.folder.is_relative_to(Path.cwd())
        return shlex.quote(os.path.relpath(self.folder) if near else str(self.folder))

    @contextmanager
    def named(self) -> Iterator[None]:
        """Have errors of the block name this folder where their remedy says PROJECT."""
        try:
            yield
        except RagcError as error:
            error.name_project(self.argument)
            raise

    def with_risk(self, risk: float | None) -> Project:
        """Return the project with another `[utility] risk`; with its own for None."""
        if risk is None:
            return self
        utility = self.settings.utility.model_copy(update={"risk": risk})
        return Project(self.folder, self.settings.model_copy(update={"utility": utility}))

    def check_places(self) -> None:
        """Raise `SettingsError` when a place outside the project would be read.

        A `ragc.toml` may come from anyone. Its paths, resolved, must lie in its own folder or in one of those that the
        environment variable `RAGC_ALLOW` lists (separated as in `PATH`).
        """
        bases = self.settings.knowledge.items()
        named = {f"knowledge.{name}": self.place(base) for name, base in bases if isinstance(base, FileSettings)}
        for role in ("embed", "reader"):
            model = getattr(self.settings.models, role)
            # What loads models takes a name for a folder that exists.
            if model and (Path(model).is_absolute() or model.startswith(".") or Path(model).exists()):
                named[f"models.{role}"] = Path(model)
        allowed = [Path(folder).resolve() for folder in os.environ.get(ALLOW, "").split(os.pathsep) if folder]
        for key, place in {**named, "labelled.path": self.labelled}.items():
            path = find_local(place)
            if path is not None and not any(path.is_relative_to(folder) for folder in (self.folder, *allowed)):
                raise SettingsError(
                    f"{FILE}: {key} is at {path}, outside the project's folder.",
                    f"Move it into {self.folder}, or list its folder in the environment variable {ALLOW}.",
                )

    @property
    def name(self) -> str:
        """The name of the program and of its versions."""
        return self.settings.name

    @property
    def artifacts(self) -> Path:
        """The folder of versions; a relative one counts from the project."""
        return (self.folder / (self.settings.artifacts or DEFAULT)).resolve()

    @property
    def labelled(self) -> Path:
        """The file of labelled questions."""
        return (self.folder / self.settings.labelled.path).resolve()

    @property
    def reviewed(self) -> Path:
        """The file of the questions that people's reviews labelled, beside the labelled ones."""
        return self.labelled.with_name("reviewed.jsonl")

    @property
    def private(self) -> Path:
        """The project's own working folder (index, record, studies, traces); not for git."""
        return self.folder / ".ragc"

    def place(self, base: FileSettings) -> str | Path:
        """Return a base's folder or URL; a relative path counts from the project."""
        if not isinstance(base, TablesSettings) or not base.url:
            return self.folder / base.path
        if base.url.startswith(SQLITE) and not base.url.startswith(f"{SQLITE}/"):
            return f"{SQLITE}{self.folder / base.url.removeprefix(SQLITE)}"
        return base.url


def find_local(place: str | Path) -> Path | None:
    """Return a place on this machine, links followed; None for one on a network."""
    text = str(place)
    if isinstance(place, str):
        if not place.startswith("sqlite"):
            return None
        text = place.partition("://")[2].removeprefix("/").partition("?")[0]
    try:
        return Path(text).resolve()
    except (OSError, ValueError, RuntimeError) as error:
        raise SettingsError(f"{FILE} names a place that cannot be: {error}.", "Correct its path or url.") from error


def _explain_invalid(path: Path, text: str, error: ValidationError) -> SettingsError:
    # A misspelt key is named before the one that is missing for it, and a wrong kind before the keys it lacks.
    first = min(error.errors(), key=lambda found: (found["loc"][-1:] != ("kind",), found["type"] not in UNKNOWN))
    keys = [str(part) for part in first["loc"]]
    kind = keys.pop(2) if len(keys) > 2 and keys[0] == "knowledge" else PACKAGE  # which no file spells out
    line = _find_line(text, keys[:-1] if first["type"] == "missing" else keys)
    where = f"{path.name} line {line}" if line else path.name
    key = ".".join(keys)
    if first["type"] in UNKNOWN:
        valid = _list_valid_keys(keys[:-1], kind)
        return SettingsError(f"{where}: unknown key {key!r}.", suggest(keys[-1], valid), key=key, line=line)
    if first["type"] == "missing":
        return SettingsError(f"{where}: the key {key!r} is missing.", f"Add it to {path}.", key=key, line=line)
    what = f"{where}: {key} {describe_fault(first)}"
    mend = suggest_option(first) or f"Mend it in {path}."
    return SettingsError(what if what[-1] in "?." else f"{what}.", mend, key=key, line=line)


def mend_folder(folder: str | Path) -> str:
    """Return a sentence that names the projects near a folder, or how to make one."""
    root = Path(folder).resolve()
    near = [parent for parent in root.parents if (parent / FILE).is_file()][:1]
    near += sorted(path.parent for path in root.glob(f"*/{FILE}"))
    beside = {path.parent.name: path.parent for path in root.parent.glob(f"*/{FILE}")}
    near += [beside[name] for name in difflib.get_close_matches(root.name, beside)]
    named = f"Nearest: {', '.join(shlex.quote(str(one)) for one in near[:3])}. To make another, run" if near else "Run"
    return f"{named}: ragc init {shlex.quote(str(folder))}"


def _list_valid_keys(parents: list[str], kind: str) -> list[str]:
    model: Any = Settings
    for n, key in enumerate(parents):
        if n == 1 and parents[0] == "knowledge":
            model = KINDS[kind].settings if kind in KINDS else PackageSettings
        elif get_origin(model) is dict:
            model = get_args(model)[1]
        elif key in getattr(model, "model_fields", {}):
            model = model.model_fields[key].annotation
    return [field.alias or name for name, field in getattr(model, "model_fields", {}).items()]


def _find_line(text: str, keys: list[str]) -> int | None:
    """Return the 1-based line that sets a key, looked for in its own table first."""
    section, wanted = "", ".".join(keys[:-1])
    fallback = None
    for number, line in enumerate(text.splitlines(), 1):
        if header := re.match(r"\s*\[+\s*([^\]]+?)\s*\]+", line):
            section = header[1].replace('"', "")
            if section == ".".join(keys):
                return number
        elif keys and re.match(rf"\s*[\"']?{re.escape(keys[-1])}[\"']?\s*=", line):
            if section == wanted:
                return number
            fallback = fallback or number
    return fallback
