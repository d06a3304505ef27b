"""Each kind of knowledge base as typed settings; which one a table is read as, its `kind` says."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, field_validator, model_validator
from pydantic_core import PydanticCustomError

SOURCES = "ragc.sources"
"""The entry point group by which installed packages bring further kinds of knowledge base."""
PACKAGE = "package"
CHUNK_TOKENS = 240  # MiniLM reads 256, the title among them
MAX_MEGABYTES = 50.0

ChunkTokens = Annotated[int, Field(ge=20, le=8000)]
Megabytes = Annotated[float, Field(gt=0)]
Seconds = Annotated[float, Field(gt=0, le=60)]
Pointer = Annotated[str, Field(pattern=r"^(/([^~]|~[01])*)?$")]


class Section(BaseModel):
    """A table of `ragc.toml`: unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class _Base(Section):
    """What a router should know of a knowledge base, whatever its kind."""

    about: str = ""
    asks: tuple[str, ...] = ()
    not_: Annotated[tuple[str, ...], Field(alias="not")] = ()


class _Files(_Base):
    """A folder of files, or one file: passages of about `chunk_tokens`, larger files skipped."""

    path: str
    chunk_tokens: ChunkTokens = CHUNK_TOKENS
    max_megabytes: Megabytes = MAX_MEGABYTES


class DocumentsSettings(_Files):
    """Files whose passages are found by their text."""

    kind: Literal["documents"] = "documents"


class GraphSettings(_Files):
    """Files whose passages are found above all by what they name."""

    kind: Literal["graph"]


class TablesSettings(_Base):
    """A folder of CSV files, or a database by its SQLAlchemy URL."""

    kind: Literal["tables"]
    path: str = ""
    url: str = ""


class WebSettings(_Base):
    """A folder of saved pages, or a search provider; with neither (or without its key) the base does not exist.

    `url` is where the provider is, needed for SearXNG only, which may be on the own network with
    `allow_private`. The pages found are fetched unless `fetch` is off; they must be public in any case.
    """

    kind: Literal["web"]
    path: str = ""
    chunk_tokens: ChunkTokens = CHUNK_TOKENS
    max_megabytes: Megabytes = MAX_MEGABYTES
    provider: Literal["", "searxng", "tavily", "brave"] = ""
    url: str = ""
    results: Annotated[int, Field(ge=1, le=20)] = 8
    fetch: bool = True
    seconds: Seconds = 5.0
    allow_private: bool = False

    @model_validator(mode="after")
    def _one_place(self) -> WebSettings:
        if self.path and self.provider:
            raise PydanticCustomError("places", "give a path (saved pages) or a provider (live search), not both")
        if self.provider == "searxng" and not self.url:
            raise PydanticCustomError("no_url", "searxng needs the url of its server")
        return self


class HttpSettings(_Base):
    """A JSON API: `{query}` and `{k}` in `url` are filled in, JSON pointers (RFC 6901) say where the items are.

    `items` points to their list, the others into an item. In a header `${NAME}` is taken from the environment.
    """

    kind: Literal["http"]
    url: Annotated[str, Field(pattern=r"^https?://[^{}/?#]+([/?#].*)?$")]
    headers: dict[str, str] = {}
    items: Pointer = ""
    text: Pointer
    title: Pointer = ""
    date: Pointer = ""
    link: Pointer = ""
    id: Pointer = ""
    authority: Literal["informal", "reviewed", "official"] = "reviewed"
    seconds: Seconds = 5.0
    max_megabytes: Megabytes = 5.0
    allow_private: bool = False


class PackageSettings(_Base):
    """A kind that an installed package brings by the entry point group `ragc.sources`; it gets `options`."""

    kind: str
    options: dict[str, Any] = {}

    @field_validator("kind")
    @classmethod
    def _is_installed(cls, kind: str) -> str:
        known = [*BUILT_IN, *(point.name for point in entry_points(group=SOURCES))]
        if kind not in known:
            near = difflib.get_close_matches(kind, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}"
            raise PydanticCustomError("kind", "{told}", {"told": f"there is no kind {kind!r}; {hint}"})
        return kind


BUILT_IN = {
    "documents": DocumentsSettings,
    "graph": GraphSettings,
    "tables": TablesSettings,
    "web": WebSettings,
    "http": HttpSettings,
}


def _kind(base: Any) -> str:
    kind = base.get("kind", "documents") if isinstance(base, Mapping) else getattr(base, "kind", "")
    return kind if kind in BUILT_IN else PACKAGE


KnowledgeSettings = Annotated[
    Annotated[DocumentsSettings, Tag("documents")]
    | Annotated[GraphSettings, Tag("graph")]
    | Annotated[TablesSettings, Tag("tables")]
    | Annotated[WebSettings, Tag("web")]
    | Annotated[HttpSettings, Tag("http")]
    | Annotated[PackageSettings, Tag(PACKAGE)],
    Discriminator(_kind),
]
"""One knowledge base: where it is, and what a router should know of it."""
