"""`ragc.toml` as typed settings; environment variables override it, a misspelt key is an error with its line."""

from __future__ import annotations

import difflib
import os
import re
import shlex
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import Field, FiniteFloat, ValidationError, model_validator
from pydantic_core import PydanticCustomError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from program.errors import SettingsError
from program.kindsettings import (
    BUILT_IN,
    PACKAGE,
    DocumentsSettings,
    GraphSettings,
    KnowledgeSettings,
    PackageSettings,
    TablesSettings,
    WebSettings,
)
from program.kindsettings import Section as _Section
from program.serve.reference import DEFAULT, ENVIRONMENT, NAME, artifacts_root

FILE = "ragc.toml"
SQLITE = "sqlite:///"
ALLOW = "RAGC_ALLOW"
ENVIRONMENT_PREFIX = "RAGC_"
BASE_NAME = r"[a-z][a-z0-9_]{0,39}"


Names = str | tuple[str, ...]
"""One model, or two: the cheaper one first."""


class ModelSettings(_Section):
    """Which model does what: `local/...`, any LiteLLM name, or (for `embed` and `rerank`) a sentence-transformers name.

    `rerank` is a cross-encoder that reads the best passages together with the question; empty for none.
    """

    decide: Names = "local/minilm"
    write: Names = "local/extract"
    embed: str = "local/minilm"
    propose: str = ""
    judge: Names = ""
    rerank: str = ""


class KeywordSettings(_Section):
    """How keyword search splits text: words in any script, lower case; cut to English stems; function words or not.

    Past `server_above` passages the Qdrant server, where there is one, searches words as it does vectors.
    """

    stem: bool = True
    stop_words: Literal["english", "none"] = "english"
    server_above: Annotated[int, Field(ge=0)] = 200_000


class QdrantSettings(_Section):
    """A Qdrant server; when `url` is empty, readers search the vectors in the index."""

    url: str = ""


class StudySettings(_Section):
    """Where trials are kept: an SQLAlchemy URL, or a journal file when empty."""

    storage: str = ""


class BudgetSettings(_Section):
    """What one question may cost before the best so far must do."""

    max_rounds: Annotated[int, Field(ge=1, le=10)] = 3
    max_seconds: Annotated[float, Field(gt=0)] = 15.0
    max_tokens: Annotated[int, Field(gt=0)] = 50_000
    max_usd: Annotated[float, Field(ge=0)] = 0.20


class ProviderModelSettings(_Section):
    """One language model: where it is served, its limits, and its price in US dollars a million tokens."""

    api_base: Annotated[str, Field(pattern="^https?://")] | None = None
    concurrency: Annotated[int, Field(ge=1)] | None = None
    structured: bool | None = None
    usd_in: Annotated[float, Field(ge=0)] | None = None
    usd_out: Annotated[float, Field(ge=0)] | None = None


class ProviderSettings(_Section):
    """How language models are called; `fallback` lets the embedded models step in when one does not answer.

    It may name a language model instead, which is asked before them.
    """

    call_seconds: Annotated[float, Field(gt=0)] = 30.0
    retries: Annotated[int, Field(ge=0, le=10)] = 3
    concurrency: Annotated[int, Field(ge=1)] = 16
    breaker_after: Annotated[int, Field(ge=1)] = 8
    breaker_seconds: Annotated[float, Field(gt=0)] = 5.0
    fallback: Annotated[bool | str, Field(union_mode="left_to_right")] = True
    model: dict[str, ProviderModelSettings] = Field(default_factory=dict)


class UtilitySettings(_Section):
    """What an answer is worth to its asker; a partial one earns its share of the facts, a needless refusal `missed`."""

    correct: FiniteFloat = 1.0
    wrong: FiniteFloat = -1.0
    missed: FiniteFloat = -0.3
    call: Annotated[FiniteFloat, Field(ge=0)] = 0.01
    usd: Annotated[FiniteFloat, Field(ge=0)] = 0.0

    @model_validator(mode="after")
    def _correct_is_best(self) -> UtilitySettings:
        for name, what in (("wrong", "a wrong one"), ("missed", "a needless refusal")):
            if self.correct <= (value := getattr(self, name)):
                told = (
                    f"a correct answer (correct = {self.correct:g}) must be worth more than {what} ({name} = {value:g})"
                )
                raise PydanticCustomError("order", "{told}", {"told": told})
        return self

    @property
    def best(self) -> float:
        """The most that an answer can be worth; there is no least, for calls may be many."""
        return max(self.correct, 0.0)


class LabelledSettings(_Section):
    """Where the labelled questions are."""

    path: str = "labelled.jsonl"


class TraceSettings(_Section):
    """Where traces go: a JSONL file in the project's `.ragc` folder unless switched off."""

    enabled: bool = True
    review_below: Annotated[float, Field(ge=0, le=1)] = 0.35


class LoopSettings(_Section):
    """The published design that the uncompiled program starts as; a compiled one is what it learned to be."""

    preset: Literal["plain", "strategy-router", "knowledge-router", "judge-and-ground", "decide", "plan", "full"] = (
        "full"
    )


class AnswerSettings(_Section):
    """What answers may hold: web addresses of the hosts in `links`, where a passage states them; none of others."""

    links: tuple[Annotated[str, Field(pattern=r"^[A-Za-z0-9.-]+$")], ...] = ()


class Settings(BaseSettings):
    """Everything a project's `ragc.toml` says."""

    model_config = SettingsConfigDict(
        extra="forbid", frozen=True, env_prefix=ENVIRONMENT_PREFIX, env_nested_delimiter="__"
    )

    name: Annotated[str, Field(pattern=f"^{NAME}$")]
    artifacts: str = DEFAULT
    models: ModelSettings = ModelSettings()
    knowledge: dict[Annotated[str, Field(pattern=f"^{BASE_NAME}$")], KnowledgeSettings]
    keyword: KeywordSettings = KeywordSettings()
    qdrant: QdrantSettings = QdrantSettings()
    study: StudySettings = StudySettings()
    budget: BudgetSettings = BudgetSettings()
    provider: ProviderSettings = ProviderSettings()
    utility: UtilitySettings = UtilitySettings()
    labelled: LabelledSettings = LabelledSettings()
    trace: TraceSettings = TraceSettings()
    loop: LoopSettings = LoopSettings()
    answer: AnswerSettings = AnswerSettings()

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """The environment before the file."""
        return env_settings, init_settings


class Project:
    """A project folder: its settings and the places they name, all absolute."""

    def __init__(self, folder: Path, settings: Settings) -> None:
        self.folder = folder
        self.settings = settings

    @classmethod
    def open(cls, folder: str | Path) -> Project:
        """The project in `folder`. Raises `SettingsError` when `ragc.toml` is absent or wrong."""
        root = Path(folder).resolve()
        path = root / FILE
        if root.is_file():
            own = (root.parent / FILE).is_file()
            mend = f"Name its folder: {Path(folder).parent}" if own else f"Name a folder that holds a {FILE}."
            raise SettingsError(f"{folder} is a file, not a project's folder.", mend)
        if not path.is_file():
            raise SettingsError(f"There is no {FILE} in {folder}.", f"Run: ragc init {shlex.quote(str(folder))}")
        try:
            text = path.read_text(encoding="utf-8")
            settings = Settings(**tomllib.loads(text))
            if os.environ.get(ENVIRONMENT):  # as every verb without a project reads it
                settings = settings.model_copy(update={"artifacts": str(artifacts_root())})
            project = cls(root, settings)
            project.check_places()
            return project
        except UnicodeDecodeError as error:
            raise SettingsError(f"{path} is not UTF-8 text: {error}.", "Save it as UTF-8.") from error
        except tomllib.TOMLDecodeError as error:
            raise SettingsError(f"{path} is not valid TOML: {error}.", "Mend that line.") from error
        except ValidationError as error:
            raise _settings_error(path, text, error) from error

    def check_places(self) -> None:
        """Raises `SettingsError` when something outside the project would be read that nobody allowed.

        A `ragc.toml` may come from anyone. Its paths, resolved, must lie in its own folder or in one of those that
        the environment variable `RAGC_ALLOW` lists (separated as in `PATH`).
        """
        named: dict[str, str | Path] = {
            f"knowledge.{name}": self.place(base)
            for name, base in self.settings.knowledge.items()
            if isinstance(base, DocumentsSettings | WebSettings | TablesSettings)
        }
        models = self.settings.models
        named |= {
            f"models.{role}": folder for role in ("embed", "rerank") if (folder := _folder(getattr(models, role)))
        }
        for key, place in {**named, "labelled.path": self.labelled}.items():
            path = _local(place)
            if path is not None and not any(path.is_relative_to(folder) for folder in (self.folder, *_allowed())):
                raise SettingsError(
                    f"{FILE}: {key} is at {path}, outside the project's folder.",
                    f"Move it into {self.folder}, or list its folder in the environment variable {ALLOW}.",
                )

    @property
    def name(self) -> str:
        return self.settings.name

    @property
    def artifacts(self) -> Path:
        """Where versions are kept: the file's path counts from the project, the environment's from the working folder.

        What the environment says is absolute since `open`.
        """
        return (self.folder / (self.settings.artifacts or DEFAULT)).resolve()

    @property
    def labelled(self) -> Path:
        return (self.folder / self.settings.labelled.path).resolve()

    def place(self, base: DocumentsSettings | GraphSettings | WebSettings | TablesSettings) -> str | Path:
        """Where a base's content is: a folder, or a URL; a relative SQLite path in it counts from the project."""
        if not isinstance(base, TablesSettings) or not base.url:
            return self.folder / base.path
        if base.url.startswith(SQLITE) and not base.url.startswith(f"{SQLITE}/"):
            return f"{SQLITE}{self.folder / base.url.removeprefix(SQLITE)}"
        return base.url

    @property
    def private(self) -> Path:
        """The project's own working folder: index, record, studies, traces. Not for git."""
        return self.folder / ".ragc"


def _folder(name: str) -> Path | None:
    """The folder that a model's name means, if any: what loads models takes a name for a folder that exists."""
    place = Path(name)
    return place if name and (place.is_absolute() or name.startswith(".") or place.exists()) else None


def _local(place: str | Path) -> Path | None:
    """The file or folder that a place means on this machine, links followed; None for one on a network."""
    if isinstance(place, str) and not place.startswith("sqlite"):
        return None
    text = str(place)
    if isinstance(place, str):
        text = place.partition("://")[2].removeprefix("/").partition("?")[0]
    try:
        return Path(text).resolve()
    except (OSError, ValueError, RuntimeError) as error:
        raise SettingsError(f"{FILE} names a place that cannot be: {error}.", "Correct its path or url.") from error


def _allowed() -> list[Path]:
    return [Path(folder).resolve() for folder in os.environ.get(ALLOW, "").split(os.pathsep) if folder]


def _settings_error(path: Path, text: str, error: ValidationError) -> SettingsError:
    unknown = {"extra_forbidden", "unexpected_keyword_argument"}
    # A misspelt key is named before the one that is missing for it, and a wrong kind before the keys it lacks.
    first = min(error.errors(), key=lambda found: (found["loc"][-1:] != ("kind",), found["type"] not in unknown))
    keys = [str(part) for part in first["loc"]]
    kind = keys.pop(2) if len(keys) > 2 and keys[0] == "knowledge" else PACKAGE  # which no file spells out
    line = _line_of(text, keys[:-1] if first["type"] == "missing" else keys)
    where = f"{path.name} line {line}" if line else path.name
    key = keys[-1] if keys else "?"
    if first["type"] in unknown:
        valid = _valid_keys(keys[:-1], kind)
        near = difflib.get_close_matches(key, valid, n=1)
        mend = f"Did you mean {near[0]!r}?" if near else f"Valid keys here: {', '.join(valid)}."
        return SettingsError(f"{where}: unknown key {'.'.join(keys)!r}.", mend)
    if first["type"] == "missing":
        return SettingsError(f"{where}: the key {'.'.join(keys)!r} is missing.", f"Add it to {path}.")
    return SettingsError(f"{where}: {'.'.join(keys)} is not valid: {first['msg']}.", f"Mend it in {path}.")


def _valid_keys(parents: list[str], kind: str) -> list[str]:
    model: Any = Settings
    for n, key in enumerate(parents):
        if n == 1 and parents[0] == "knowledge":
            model = BUILT_IN.get(kind, PackageSettings)
        elif get_origin(model) is dict:
            model = get_args(model)[1]
        elif key in getattr(model, "model_fields", {}):
            model = model.model_fields[key].annotation
    return [field.alias or name for name, field in getattr(model, "model_fields", {}).items()]


def _line_of(text: str, keys: list[str]) -> int | None:
    """The 1-based line that sets the key, looked for in its own table first."""
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
