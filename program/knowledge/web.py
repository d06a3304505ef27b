"""Live web search: one protocol over SearXNG, Tavily and Brave; the pages found are fetched, cut and scored."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from datetime import date
from typing import Any, Protocol
from urllib.parse import urlencode

from program.errors import KnowledgeError
from program.knowledge.guard import Guard
from program.knowledge.index.keywords import Keywords
from program.knowledge.index.selection import best
from program.knowledge.ingest.convert import read_html
from program.knowledge.ingest.markdown import sections
from program.knowledge.ingest.metadata import day
from program.knowledge.live import LiveSource, passage_id
from program.models.encoder import Embedder
from program.passage import Passage, SourceCard
from program.settings import WebSettings

PER_PAGE = 3  # passages taken of one page
TAVILY = "https://api.tavily.com"
BRAVE = "https://api.search.brave.com"
KEYS = {"tavily": "TAVILY_API_KEY", "brave": "BRAVE_API_KEY"}
"""The environment variable that holds each provider's key; SearXNG needs none."""


@dataclass(frozen=True, slots=True)
class Hit:
    """One result: `text` is what the provider shows of the page, `as_of` the page's date when it tells one."""

    url: str
    title: str
    text: str
    as_of: date | None = None


class Provider(Protocol):
    """A search engine. Raises KnowledgeError when it fails, or answers what is no result list."""

    def search(self, query: str, k: int) -> list[Hit]: ...


class SearXNG:
    """A SearXNG server that has its JSON format switched on."""

    def __init__(self, guard: Guard, url: str) -> None:
        self.guard, self.url = guard, url.rstrip("/")

    def search(self, query: str, k: int) -> list[Hit]:
        reply = self.guard.fetch_json(f"{self.url}/search?{urlencode({'q': query, 'format': 'json'})}")
        return _hits(self.guard, reply, ("results",), "content", "publishedDate")[:k]


class Tavily:
    """Tavily's search API."""

    def __init__(self, guard: Guard, url: str, key: str) -> None:
        self.guard, self.url, self.key = guard, (url or TAVILY).rstrip("/"), key

    def search(self, query: str, k: int) -> list[Hit]:
        body = {"query": query, "max_results": k}
        headers = {"Authorization": f"Bearer {self.key}"}
        reply = self.guard.fetch_json(f"{self.url}/search", method="POST", headers=headers, body=body)
        return _hits(self.guard, reply, ("results",), "content", "published_date")[:k]


class Brave:
    """Brave's web search API."""

    def __init__(self, guard: Guard, url: str, key: str) -> None:
        self.guard, self.url, self.key = guard, (url or BRAVE).rstrip("/"), key

    def search(self, query: str, k: int) -> list[Hit]:
        address = f"{self.url}/res/v1/web/search?{urlencode({'q': query, 'count': k})}"
        reply = self.guard.fetch_json(address, headers={"X-Subscription-Token": self.key})
        return _hits(self.guard, reply, ("web", "results"), "description", "page_age")[:k]


def provider_of(name: str, settings: WebSettings) -> Provider | None:
    """The provider that a base is set up for, or None when it names none, or the environment lacks its key."""
    key = os.environ.get(KEYS.get(settings.provider, ""), "")
    if not settings.provider or (settings.provider in KEYS and not key):
        return None
    who = f"The search provider {settings.provider} of {name}"
    guard = Guard(who, settings.seconds, settings.max_megabytes, settings.allow_private)
    if settings.provider == "searxng":
        return SearXNG(guard, settings.url)
    return Tavily(guard, settings.url, key) if settings.provider == "tavily" else Brave(guard, settings.url, key)


class WebSearch(LiveSource):
    """Searches the web through a provider. `pages` fetches the pages found; with None, the provider's words do.

    A page that cannot be fetched stands with the provider's words for it; only a provider that fails raises.
    """

    def __init__(
        self, card: SourceCard, provider: Provider, embedder: Embedder, pages: Guard | None, results: int = 8
    ) -> None:
        super().__init__(card, embedder)
        self.provider = provider
        self.pages = pages
        self.results = results

    def found(self, query: str) -> Sequence[Passage]:
        """The best passages of each page found, dated by the provider or by the page."""
        hits = self.provider.search(query, self.results)
        if self.pages is None or not hits:
            return [self._shown(hit) for hit in hits if hit.text]
        with_pages = ThreadPoolExecutor(len(hits))
        try:
            asked = [with_pages.submit(self._read, self.pages, hit, query) for hit in hits]
            done, _ = wait(asked, timeout=2 * self.pages.seconds)  # a page that drips is not waited for
            read = [task.result() if task in done else [] for task in asked]
        finally:
            with_pages.shutdown(wait=False, cancel_futures=True)
        return [
            passage
            for hit, passages in zip(hits, read, strict=True)
            for passage in passages or ([self._shown(hit)] if hit.text else [])
        ]

    def _shown(self, hit: Hit) -> Passage:
        return self._passage(hit, hit.title, hit.text, hit.as_of)

    def _passage(self, hit: Hit, title: str, text: str, as_of: date | None) -> Passage:
        return Passage(
            id=passage_id(self.name, hit.url, text),
            source=self.name,
            title=title or hit.url,
            text=text,
            method="web",
            as_of=as_of,
            link=hit.url,
        )

    def _read(self, pages: Guard, hit: Hit, query: str) -> list[Passage]:
        """The passages of a page that have most of the query's words; none when it cannot be read."""
        try:
            fetched = pages.fetch(hit.url)
            if "html" not in fetched.kind:
                return []
            page = read_html(fetched.content)
            heading, parts = sections(page.markdown)
        except Exception:  # of the web's pages many are broken, each in its own way
            return []
        if not parts:
            return []
        title = hit.title or heading or page.about.title
        scores = Keywords.build([f"{' '.join(part.path)} {part.text}" for part in parts]).scores(query)
        order = best(scores, (scores > 0).nonzero()[0], PER_PAGE)
        as_of = hit.as_of or page.about.as_of
        return [
            self._passage(hit, " > ".join((title, *(h for h in parts[at].path if h != title))), parts[at].text, as_of)
            for at in order
        ]


def _hits(guard: Guard, reply: Any, path: Sequence[str], text: str, dated: str) -> list[Hit]:
    """The results in a provider's reply. Raises KnowledgeError when it has another shape."""
    for key in path:
        reply = reply.get(key) if isinstance(reply, Mapping) else None
    if reply is None and len(path) > 1:  # Brave leaves the part out when nothing was found
        return []
    if not isinstance(reply, list):
        raise KnowledgeError(f"{guard.who} answered without a list of results.", "Check its url and its plan.")
    entries = [entry for entry in reply if isinstance(entry, Mapping) and entry.get("url")]
    return [
        Hit(
            str(entry["url"]),
            " ".join(str(entry.get("title") or "").split()),
            " ".join(str(entry.get(text) or "").split()),
            day(str(entry.get(dated) or "")),
        )
        for entry in entries
    ]
