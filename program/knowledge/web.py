"""Sources asked at question time: any JSON API by pointers, and web search, whose providers are three such settings."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from datetime import date
from string import Template
from typing import Any
from urllib.parse import quote, quote_plus

import numpy as np

from program.errors import KnowledgeError
from program.knowledge.guard import Guard
from program.knowledge.index.keywords import Keywords
from program.knowledge.index.vectors import best_rows
from program.knowledge.ingest.convert import convert_html
from program.knowledge.ingest.metadata import parse_day
from program.knowledge.ingest.sections import split_markdown
from program.models.embedded.encoder import Embedder
from program.passage import AUTHORITY, NO_FILTERS, Filters, Passage, SourceCard, drop_repeats, embedding_text
from program.settings import HttpSettings, WebSettings

MAX_ITEMS = 50  # the most items taken of one reply, and what `{k}` stands for in the url of a JSON API
PER_PAGE = 3  # passages taken of one page
_ABSENT = object()


@dataclass(frozen=True, slots=True)
class SearchProvider:
    """How a search provider is asked, and where its reply has the results.

    `items`, `text` and `date` are JSON pointers. `path` stands under the provider's `url`, with `{query}` and `{k}`
    filled in; with a `body`, it is posted. `headers` hold `{key}`, the value of the environment variable `key`. Where
    `may_lack_items`, a reply without them is empty.
    """

    path: str
    items: str
    text: str
    date: str
    url: str = ""
    key: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    posts: bool = False
    may_lack_items: bool = False


PROVIDERS = {
    "searxng": SearchProvider("/search?q={query}&format=json", "/results", "/content", "/publishedDate"),
    "tavily": SearchProvider(
        "/search", "/results", "/content", "/published_date",
        url="https://api.tavily.com", key="TAVILY_API_KEY", headers=(("Authorization", "Bearer {key}"),), posts=True,
    ),
    "brave": SearchProvider(
        "/res/v1/web/search?q={query}&count={k}", "/web/results", "/description", "/page_age",
        url="https://api.search.brave.com", key="BRAVE_API_KEY", headers=(("X-Subscription-Token", "{key}"),),
        may_lack_items=True,
    ),
}  # fmt: skip
KEYS = {name: provider.key for name, provider in PROVIDERS.items() if provider.key}
"""The environment variable that holds each provider's key; SearXNG needs none."""


class LiveSource(ABC):
    """A source asked at question time, its items scored like an index's passages."""

    def __init__(self, card: SourceCard, embedder: Embedder) -> None:
        self.card = card
        self.embedder = embedder

    @property
    def name(self) -> str:
        return self.card.name

    def describe(self) -> SourceCard:
        return self.card

    @abstractmethod
    def fetch_passages(self, query: str) -> Sequence[Passage]:
        """Return what the far end has for a query, unscored, or raise `KnowledgeError`."""

    def candidates(self, query: str, depth: int, filters: Filters = NO_FILTERS) -> list[Passage]:
        """Return what was found and passes the filters, nearest first."""
        if depth <= 0 or not query.strip():
            return []
        found = [p for p in self.fetch_passages(query) if filters.admits(p)]
        return rank_by_cosine(found, query, self.embedder)[:depth]

    def search(self, query: str, k: int, filters: Filters = NO_FILTERS) -> list[Passage]:
        """Return the nearest `k` of the candidates."""
        return self.candidates(query, k, filters)

    async def asearch(self, query: str, k: int, filters: Filters = NO_FILTERS) -> list[Passage]:
        return await asyncio.to_thread(self.search, query, k, filters)


class JsonApi(LiveSource):
    """An HTTP service that answers a query with items, each a passage.

    Raises `KnowledgeError` at once when a header names an environment variable that is not set, and at each search
    when the service fails, answers with anything but JSON, or the pointers lead nowhere.
    """

    def __init__(self, card: SourceCard, settings: HttpSettings, embedder: Embedder) -> None:
        super().__init__(card, embedder)
        self.settings = settings
        self._headers = {key: _fill_variables(card.name, value) for key, value in settings.headers.items()}
        who = f"The JSON API of {card.name}"
        self._guard = Guard(who, settings.seconds, settings.max_megabytes, settings.allow_private)

    def fetch_passages(self, query: str) -> Sequence[Passage]:
        """Return one passage for each of the first MAX_ITEMS items that have a text."""
        url = self.settings.url.replace("{query}", quote(query, safe="")).replace("{k}", str(MAX_ITEMS))
        reply = self._guard.fetch_json(url, headers=self._headers)
        items = follow_pointer(reply, self.settings.items)
        mend = "Correct `{}` under [knowledge.{}] in ragc.toml."
        if not isinstance(items, list | dict):
            problem = f"The reply of {self.name} has no items at {self.settings.items!r}; it has {_list_keys(reply)}."
            raise KnowledgeError(problem, mend.format("items", self.name))
        listed, pointer = items if isinstance(items, list) else [items], self.settings.text
        passages = [self._make_passage(item, text) for item in listed[:MAX_ITEMS] if (text := text_at(item, pointer))]
        if listed and not passages:
            problem = f"No item of {self.name} has a text at {pointer!r}; the first has {_list_keys(listed[0])}."
            raise KnowledgeError(problem, mend.format("text", self.name))
        return passages

    def _make_passage(self, item: Any, text: str) -> Passage:
        pointers = (self.settings.title, self.settings.date, self.settings.link, self.settings.id)
        title, dated, link, own = (text_at(item, pointer) if pointer else "" for pointer in pointers)
        return Passage(
            id=f"{self.name}/{own}" if own else _digest_id(self.name, link, title, text),
            source=self.name,
            title=title or self.name,
            text=text,
            method="http",
            as_of=parse_day(dated),
            authority=AUTHORITY[self.settings.authority],
            link=link,
        )


@dataclass(frozen=True, slots=True)
class WebResult:
    """A page that a provider found, with its words and its date for it."""

    url: str
    title: str
    text: str
    as_of: date | None


class WebSearch(LiveSource):
    """Web search: pages found are fetched, cut and scored; one that cannot be stands with the provider's words."""

    def __init__(self, card: SourceCard, settings: WebSettings, embedder: Embedder) -> None:
        super().__init__(card, embedder)
        self.settings = settings
        who = f"The search provider {settings.provider} of {card.name}"
        self._provider = Guard(who, settings.seconds, settings.max_megabytes, settings.allow_private)
        # Whoever writes a page chooses what is fetched next, so pages must be public whatever the provider may be.
        fetched = Guard(f"A page found by {card.name}", settings.seconds, settings.max_megabytes)
        self.pages = fetched if settings.fetch else None

    def fetch_passages(self, query: str) -> Sequence[Passage]:
        """Return the best passages of each page, dated by the provider or the page."""
        results = self._ask_provider(query)
        read: dict[WebResult, list[Passage]] = {}
        if self.pages is not None and results:
            threads = ThreadPoolExecutor(len(results))
            asked = {result: threads.submit(self._read_page, self.pages, result, query) for result in results}
            done, _ = wait(asked.values(), timeout=2 * self.pages.seconds)  # a page that drips is not waited for
            threads.shutdown(wait=False, cancel_futures=True)
            read = {result: task.result() for result, task in asked.items() if task in done}
        found: list[Passage] = []
        for result in results:
            shown = [self._make_passage(result, result.title, result.text, result.as_of)] if result.text else []
            found += read.get(result) or shown
        return found

    def _ask_provider(self, query: str) -> list[WebResult]:
        provider, k = PROVIDERS[self.settings.provider], self.settings.results
        path = provider.path.replace("{query}", quote_plus(query)).replace("{k}", str(k))
        key = os.environ.get(provider.key, "")
        reply = self._provider.fetch_json(
            (self.settings.url or provider.url).rstrip("/") + path,
            method="POST" if provider.posts else "GET",
            headers={name: value.format(key=key) for name, value in provider.headers},
            body={"query": query, "max_results": k} if provider.posts else None,
        )
        items = follow_pointer(reply, provider.items)
        if provider.may_lack_items and (items is _ABSENT or items is None):
            return []
        if not isinstance(items, list):
            problem = f"{self._provider.who} answered without a list of results."
            raise KnowledgeError(problem, "Check its url and its plan.")
        results = []
        for item in items:
            url, title, text, dated = (text_at(item, p) for p in ("/url", "/title", provider.text, provider.date))
            if url:
                results.append(WebResult(url, " ".join(title.split()), " ".join(text.split()), parse_day(dated)))
        return results[:k]

    def _read_page(self, pages: Guard, result: WebResult, query: str) -> list[Passage]:
        """Return the passages of a page that have most of the query's words."""
        try:
            fetched = pages.fetch(result.url)
            if "html" not in fetched.kind:
                return []
            page = convert_html(fetched.content)
            heading, parts = split_markdown(page.markdown)
        except Exception:  # of the web's pages many are broken, each in its own way
            return []
        title = result.title or heading or page.about.title
        scores = Keywords.from_texts([f"{' '.join(part.headings)} {part.text}" for part in parts]).scores(query)
        found = []
        for at in best_rows(scores, (scores > 0).nonzero()[0], PER_PAGE):
            crumbs = " > ".join((title, *(h for h in parts[at].headings if h != title)))
            found.append(self._make_passage(result, crumbs, parts[at].text, result.as_of or page.about.as_of))
        return found

    def _make_passage(self, result: WebResult, title: str, text: str, as_of: date | None) -> Passage:
        id_, link = _digest_id(self.name, result.url, text), result.url
        return Passage(id_, self.name, title or link, text, method="web", as_of=as_of, link=link)


def has_provider(settings: WebSettings) -> bool:
    """Tell whether a base names a search provider, and the environment has its key."""
    key = KEYS.get(settings.provider)
    return bool(settings.provider) and (key is None or bool(os.environ.get(key)))


def rank_by_cosine(passages: Sequence[Passage], query: str, embedder: Embedder) -> list[Passage]:
    """Return the passages by cosine, with `dense` and (among these) `keyword` scores."""
    kept = drop_repeats(passages)
    if not kept:
        return []
    texts = [embedding_text(p) for p in kept]
    cosines = np.round(embedder.encode(texts) @ embedder.encode([query])[0], 6)
    keyword = np.maximum(Keywords.from_texts(texts).scores(query), 0.0)
    parts = [{"dense": float(c), "keyword": float(k)} for c, k in zip(cosines, keyword, strict=True)]
    found = [p.rescored(scores["dense"], scores=scores) for p, scores in zip(kept, parts, strict=True)]
    return sorted(found, key=lambda p: (-p.score, p.id))


def follow_pointer(document: Any, pointer: str) -> Any:
    """Return what a JSON pointer (RFC 6901) leads to, `_ABSENT` for nothing."""
    for part in pointer.split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(document, list):
            document = document[int(key)] if key.isdecimal() and int(key) < len(document) else _ABSENT
        else:
            document = document.get(key, _ABSENT) if isinstance(document, Mapping) else _ABSENT
    return document


def text_at(item: Any, pointer: str) -> str:
    """Return what a pointer leads to as text, or as JSON; empty for nothing."""
    value = follow_pointer(item, pointer)
    if value is _ABSENT or value is None:
        return ""
    return value.strip() if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _list_keys(value: Any) -> str:
    if isinstance(value, Mapping):
        return "the keys " + ", ".join(list(map(str, value))[:8]) if value else "no keys"
    return f"a list of {len(value)}" if isinstance(value, list) else f"only {str(value)[:40]!r}"


def _digest_id(name: str, *parts: str) -> str:
    """Return `<base>/<digest>`: the same item has the same id every time."""
    return f"{name}/{hashlib.sha256(chr(0).join(parts).encode('utf-8', 'replace')).hexdigest()[:16]}"


def _fill_variables(name: str, template: str) -> str:
    try:
        return Template(template).substitute(os.environ)
    except (KeyError, ValueError) as error:
        raise KnowledgeError(
            f"A header of {name} needs {str(error) or 'a variable'} from the environment, which is not there.",
            f"Set it, or correct `headers` under [knowledge.{name}] in ragc.toml.",
        ) from error
