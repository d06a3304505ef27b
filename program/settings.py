"""`ragc.toml` as typed settings; environment variables override it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Discriminator, Field, FiniteFloat, Tag, field_validator, model_validator

from ragc.errors import suggest

FILE = "ragc.toml"
ENVIRONMENT = "RAGC_ARTIFACTS"
DEFAULT = "artifacts"
NAME = r"[a-z0-9](?:[-._a-z0-9]{0,61}[a-z0-9])?"
BASE_NAME = r"[a-z][a-z0-9_]{0,39}"
SOURCES = "ragc.sources"
"""The entry point group by which installed packages bring further kinds of knowledge base."""
PACKAGE = "package"
CHUNK_TOKENS = 240  # MiniLM reads 256, the title among them
MAX_MEGABYTES = 50.0
MAX_ROWS = 10_000  # of a table that are passages

"""One model, or two: the cheaper one first."""
Seconds = Annotated[float, Field(gt=0, le=60)]
Pointer = Annotated[str, Field(pattern=r"^(/([^~]|~[01])*)?$")]
ADDRESS = r"https?://[^{}/?#]+([/?#].*)?"
Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]
Count = Annotated[int, Field(ge=1)]


def artifacts_root(root: Path | str | None = None) -> Path:
    """Return `root`, else `RAGC_ARTIFACTS`, else `./artifacts`; absolute."""
    return Path(root or os.environ.get(ENVIRONMENT) or DEFAULT).resolve()


class TomlTable(BaseModel):
    """A table of `ragc.toml`; an unknown key is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class BaseSettings(TomlTable):
    """Part of every kind of knowledge base: hints for the router."""

    kind: str
    """One of KINDS, or the name of an entry point."""
    about: str = ""
    """The subjects the base covers."""
    asks: tuple[str, ...] = ()
    """Example questions that the base answers."""
    not_: Annotated[tuple[str, ...], Field(alias="not")] = ()
    """Subjects that look alike and belong elsewhere."""
    readers: Annotated[tuple[Annotated[str, Field(min_length=1)], ...], Field(min_length=1)] | None = None
    """The groups that may read the base; left out, all may."""

    @property
    def reader_sets(self) -> tuple[tuple[str, ...], ...]:
        """Who may read the base."""
        return (tuple(sorted({*self.readers})),) if self.readers else ()

    @property
    def hints(self) -> dict[str, Any]:
        """The fields of the card of such a source, its name aside."""
        return {"kind": self.kind, "about": self.about, "asks": self.asks, "not_": self.not_}


class FileSettings(BaseSettings):
    """Part of every kind that is indexed."""

    path: str = ""
    """The folder, or one file."""
    chunk_tokens: Annotated[int, Field(ge=20, le=8000)] = CHUNK_TOKENS
    """The length of a passage in tokens, about."""
    max_megabytes: Positive = MAX_MEGABYTES
    """The size past which a file is skipped."""


class DocumentsSettings(FileSettings):
    """Files found by their text, or by the things they name."""

    kind: Literal["documents", "graph"] = "documents"
    """`graph` finds passages above all by the things they name."""
    path: str
    """The folder of files, or one file."""


class TablesSettings(FileSettings):
    """Tables: each row is a passage; a language model that writes counts and adds up by SQL."""

    kind: Literal["tables"]
    """Marks a base of tables; those at `path` are CSV files."""
    url: str = ""
    """A database as an SQLAlchemy URL, in place of `path`."""
    max_rows: Count = MAX_ROWS
    """The rows of a table that are passages; SQL reads all."""

    @model_validator(mode="after")
    def _check_place(self) -> TablesSettings:
        if bool(self.path) == bool(self.url):
            raise ValueError("tables take either `path` or `url`")
        return self


class WebSettings(FileSettings):
    """Saved pages, or live search; without its provider's key there is no base."""

    kind: Literal["web"]
    """Marks a base of web pages; those at `path` are saved ones."""
    provider: Literal["", "searxng", "tavily", "brave"] = ""
    """The live search provider, in place of `path`."""
    url: Annotated[str, Field(pattern=rf"^({ADDRESS})?$")] = ""
    """The server of the provider; only SearXNG needs it."""
    results: Annotated[int, Field(ge=1, le=20)] = 8
    """How many results are taken."""
    fetch: bool = True
    """Whether the pages found, which must be public, are fetched."""
    seconds: Seconds = 5.0
    """The time limit of a request."""
    allow_private: bool = False
    """Whether the provider may be on a private network."""

    @model_validator(mode="after")
    def _check_place(self) -> WebSettings:
        if self.path and self.provider:
            raise ValueError("give a path (saved pages) or a provider (live search), not both")
        if self.provider == "searxng" and not self.url:
            raise ValueError("searxng needs the url of its server")
        return self


class HttpSettings(BaseSettings):
    """A JSON API, read by JSON pointers (RFC 6901)."""

    kind: Literal["http"]
    """Marks a base behind a JSON API."""
    url: Annotated[str, Field(pattern=rf"^{ADDRESS}$")]
    """The address, in which `{query}` and `{k}` are filled in."""
    headers: dict[str, str] = {}
    """Headers of the request, in which `${NAME}` comes from the environment."""
    items: Pointer = ""
    """The list of items in the reply."""
    text: Pointer
    """The text of an item."""
    title: Pointer = ""
    """The title of an item."""
    date: Pointer = ""
    """The date of an item."""
    link: Pointer = ""
    """The web address of an item."""
    id: Pointer = ""
    """The stable id of an item."""
    authority: Literal["informal", "reviewed", "official"] = "reviewed"
    """How far the API is to be trusted."""
    seconds: Seconds = 5.0
    """The time limit of a request."""
    max_megabytes: Positive = 5.0
    """The size past which a reply is refused."""
    allow_private: bool = False
    """Whether the API may be on a private network."""


class PackageSettings(BaseSettings):
    """A kind that an installed package brings (entry points `ragc.sources`)."""

    kind: str
    """The name of the entry point."""
    options: dict[str, Any] = {}
    """Settings handed to the package."""

    @field_validator("kind")
    @classmethod
    def _check_installed(cls, kind: str) -> str:
        known = [*KINDS, *(point.name for point in entry_points(group=SOURCES))]
        if kind not in known:
            raise ValueError(f"there is no kind {kind!r}. {suggest(kind, known)}")
        return kind


class _Kind(NamedTuple):
    settings: type[BaseSettings]
    strategy: str  # by which its sources are searched
    method: str = ""  # how its passages are found; empty: it is not indexed


KINDS = {
    "documents": _Kind(DocumentsSettings, "vector", "dense"),
    "graph": _Kind(DocumentsSettings, "graph", "dense"),
    "tables": _Kind(TablesSettings, "tables", "dense"),
    "web": _Kind(WebSettings, "web", "web"),
    "http": _Kind(HttpSettings, "http"),
}
"""The kinds of knowledge base that need no further package."""


def _kind_of(base: Any) -> str:
    kind = base.get("kind", "documents") if isinstance(base, Mapping) else getattr(base, "kind", "")
    return kind if kind in KINDS else PACKAGE


KnowledgeSettings = Annotated[
    Annotated[DocumentsSettings, Tag("documents")]
    | Annotated[DocumentsSettings, Tag("graph")]
    | Annotated[TablesSettings, Tag("tables")]
    | Annotated[WebSettings, Tag("web")]
    | Annotated[HttpSettings, Tag("http")]
    | Annotated[PackageSettings, Tag(PACKAGE)],
    Discriminator(_kind_of),
]
"""One knowledge base of any kind."""


class ModelSettings(TomlTable):
    """The model of each role."""

    decide: str = "local/reader"
    """The model that takes decisions: `local/...` or any LiteLLM name."""
    write: str = "local/reader"
    """The model that writes answers, SELECTs, and queries where none is named for these."""
    query: str = ""
    """The model that writes look-ups, rewritten questions and questions back; empty: `write`."""
    embed: str = "local/minilm"
    """The embedding model; a sentence-transformers name or folder is possible, too."""
    reader: str = ""
    """The folder of a reader that `ragc reader train` made; empty: the packaged one."""
    propose: str = ""
    """The generative model that proposes instructions at compile time; empty: none."""
    judge: str = ""
    """The model that judges passages and drafts in place of `decide`; empty: none."""


class KeywordSettings(TomlTable):
    """How keyword search splits text into words."""

    stem: bool = True
    """Whether words are cut to their English stems."""
    stop_words: Literal["english", "none"] = "english"
    """The function words that are left out."""

    @property
    def keep_stop_words(self) -> bool:
        """Whether function words are searched."""
        return self.stop_words == "none"


class QdrantSettings(TomlTable):
    """The vector database."""

    url: str = ""
    """The server; empty: vectors are searched in the index itself."""


class BudgetSettings(TomlTable):
    """The caps of one question; when one is reached, the best answer so far is given."""

    max_rounds: Annotated[int, Field(ge=1, le=10)] = 3
    """Rounds of looking up and judging."""
    max_seconds: Positive = 15.0
    """Wall-clock seconds; left out, room for eight calls of the slowest language model measured."""
    max_tokens: Annotated[int, Field(gt=0)] = 50_000
    """Tokens in and out."""
    max_usd: NotNegative = 0.20
    """US dollars."""


class ProviderModelSettings(TomlTable):
    """One language model: where it is served, its limits and its price."""

    api_base: Annotated[str, Field(pattern="^https?://")] | None = None
    """The address of its server."""
    concurrency: Count | None = None
    """How many requests may be under way at once."""
    structured: bool | None = None
    """Whether the server enforces a JSON schema."""
    usd_in: NotNegative | None = None
    """US dollars a million tokens read."""
    usd_out: NotNegative | None = None
    """US dollars a million tokens written."""


class CallSettings(TomlTable):
    """How a language model may be asked."""

    call_seconds: Positive = 30.0
    """The time limit of a call; left out, four times the slowest measured one."""
    retries: Annotated[int, Field(ge=0, le=10)] = 3
    """How often a failed call is repeated."""
    concurrency: Count = 16
    """How many requests may be under way at once."""
    breaker_after: Count = 8
    """How many failures in a row keep a model from being asked."""
    breaker_seconds: Positive = 5.0
    """For how long it is not asked then."""


class ProviderSettings(CallSettings):
    """How language models are called."""

    fallback: Annotated[bool | str, Field(union_mode="left_to_right")] = True
    """Whether embedded models step in for one that fails; a name puts that language model before them."""
    model: dict[str, ProviderModelSettings] = Field(default_factory=dict)
    """Settings of single models by name."""


UNANSWERED = 0.25  # share of questions that the knowledge does not answer, as it is taken before any label


class UtilitySettings(TomlTable):
    """The worth of an answer; a partly correct one earns its share of facts."""

    correct: FiniteFloat = 1.0
    """The worth of a correct answer."""
    wrong: FiniteFloat = -1.0
    """The worth of a wrong answer."""
    missed: FiniteFloat = -0.3
    """The worth of a needless refusal."""
    call: Annotated[FiniteFloat, Field(ge=0)] = 0.01
    """The cost of a model call."""
    usd: Annotated[FiniteFloat, Field(ge=0)] = 0.0
    """The cost of a US dollar spent."""
    risk: Annotated[float, Field(gt=0, lt=1)] | None = None
    """The share of wrong among the answers that a compile is to prove as the most; left out: no promise."""
    padding: Annotated[float, Field(ge=0, le=1)] = 0.625
    """The share of a right answer's worth that it loses to sentences without a labelled fact: all of it if all were so.

    At .625 five sentences of which one is right are worth half of that one alone.
    """

    @property
    def least_chance(self) -> float:
        """The chance of being right from which an answer is worth more than none.

        Of the questions that an answer would be wrong for, UNANSWERED have none in the knowledge: to refuse these is
        right.
        """
        spared = UNANSWERED * (self.correct - self.missed)
        least = (self.missed - self.wrong + spared) / (self.correct - self.wrong + spared)
        return min(max(least, 0.02), 0.98)

    @model_validator(mode="after")
    def _check_order(self) -> UtilitySettings:
        for name, value, what in (("wrong", self.wrong, "a wrong one"), ("missed", self.missed, "a needless refusal")):
            if self.correct * (1 - self.padding) <= value:
                least = f"correct = {self.correct:g}, less its share padding = {self.padding:g}"
                better = f"a correct answer ({least}) must be worth more than {what}"
                raise ValueError(f"{better} ({name} = {value:g})")
        return self


class LabelledSettings(TomlTable):
    """The labelled questions."""

    path: str = "labelled.jsonl"
    """Their file."""


class TraceSettings(TomlTable):
    """The log of traces in the project's `.ragc` folder."""

    enabled: bool = True
    """Whether traces are written."""
    texts: bool = False
    """Whether OpenTelemetry spans hold questions, answers and the passages found."""


class LoopSettings(TomlTable):
    """The uncompiled program."""

    preset: Literal["plain", "strategy-router", "knowledge-router", "judge-and-ground", "decide", "plan", "full"] = (
        "full"
    )
    """The published design it starts as."""


class AnswerSettings(TomlTable):
    """What answers may hold."""

    links: tuple[Annotated[str, Field(pattern=r"^[A-Za-z0-9.-]+$")], ...] = ()
    """Hosts whose web addresses may stand in an answer where a passage states them."""
    check: Literal["none", "words", "model"] = "none"
    """What of a statement is compared with passages beside marks and numbers: nothing, its words, or all by a judge."""

    @property
    def checks(self) -> int:
        """The value of the knob `check`."""
        return ("none", "words", "model").index(self.check)


class Settings(TomlTable):
    """The whole of a project's `ragc.toml`."""

    name: Annotated[str, Field(pattern=f"^{NAME}$")]
    """The name of the program and of its versions."""
    artifacts: str = DEFAULT
    """The folder of versions, relative to the project."""
    models: ModelSettings = ModelSettings()
    """The model of each role."""
    knowledge: dict[Annotated[str, Field(pattern=f"^{BASE_NAME}$")], KnowledgeSettings]
    """The knowledge bases by name."""
    keyword: KeywordSettings = KeywordSettings()
    """How keyword search splits text into words."""
    qdrant: QdrantSettings = QdrantSettings()
    """The vector database."""
    budget: BudgetSettings = BudgetSettings()
    """The caps of one question."""
    provider: ProviderSettings = ProviderSettings()
    """How language models are called."""
    utility: UtilitySettings = UtilitySettings()
    """The worth of an answer."""
    labelled: LabelledSettings = LabelledSettings()
    """The labelled questions."""
    trace: TraceSettings = TraceSettings()
    """The log of traces."""
    loop: LoopSettings = LoopSettings()
    """The program before it is compiled."""
    answer: AnswerSettings = AnswerSettings()
    """What answers may hold."""

    @model_validator(mode="before")
    @classmethod
    def _read_environment(cls, file: dict[str, Any]) -> dict[str, Any]:
        """Return the file's tables, and in them what the environment sets, as `RAGC_MODELS__WRITE` does."""
        for variable, text in sorted(os.environ.items()):
            before, _, path = variable.lower().partition("ragc_")
            if not before and (keys := path.split("__"))[0] in cls.model_fields:
                file = _set_key(file, keys, json.loads(text) if text.startswith(("[", "{")) else text)
        return file


def default_settings() -> Settings:
    """Return the settings of a project that sets nothing."""
    return Settings(name="default", knowledge={})


def _set_key(table: Any, path: Sequence[str], value: Any) -> Any:
    """Return a table with the value at a path; a value that is a table leaves the other keys as they are."""
    known = table if isinstance(table, dict) else {}
    value = {path[0]: _set_key(known.get(path[0]), path[1:], value)} if path else value
    return {**known, **value} if isinstance(value, dict) else value
