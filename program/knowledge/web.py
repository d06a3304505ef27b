"""Sources asked at question time: any JSON API by pointers, and web search, whose providers are three such settings."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from string import Template
from typing import Any
from urllib.parse import quote

import numpy as np

from ragc.errors import KnowledgeError
from ragc.knowledge.guard import Guard
from ragc.knowledge.index.fusion import Keywords, best_rows
from ragc.knowledge.ingest.bounds import TimeUp, run_within
from ragc.knowledge.ingest.convert import convert_html, read_markup
from ragc.knowledge.ingest.records import make_rows
from ragc.knowledge.ingest.sections import split_blocks
from ragc.models.embedded.encoder import Embedder
from ragc.passage import AUTHORITY, NO_FILTERS, Filters, Passage, Source, SourceCard, drop_repeats, embedding_text
from ragc.settings import HttpSettings, WebSettings
from ragc.text.days import parse_day

MAX_ITEMS = 50  # the most items taken of one reply, and what `{k}` stands for in the url of a JSON API
PER_PAGE = 3  # passages taken of one page


@dataclass(frozen=True, slots=True)
class SearchProvider:
    """How a search provider is asked: a JSON API at `path` under its `url`."""

    path: str
    pointers: Mapping[str, str]  # the pointers of `HttpSettings` into its reply
    url: str = ""  # its address, where settings name no other
    key: str = ""  # the environment variable that holds its key; empty: it needs none
    headers: Mapping[str, str] = field(default_factory=dict)
    posts: bool = False  # whether the query is posted
    may_lack_items: bool = False  # whether a reply without items is an empty one


PROVIDERS = {
    "searxng": SearchProvider(
        "/search?q={query}&format=json", {"items": "/results", "text": "/content", "date": "/publishedDate"},
    ),
    "tavily": SearchProvider(
        "/search", {"items": "/results", "text": "/content", "date": "/published_date"}, "https://api.tavily.com",
        "TAVILY_API_KEY", {"Authorization": "Bearer ${TAVILY_API_KEY}"}, posts=True,
    ),
    "brave": SearchProvider(
        "/res/v1/web/search?q={query}&count={k}",
        {"items": "/web/results", "text": "/description", "date": "/page_age"}, "https://api.search.brave.com",
        "BRAVE_API_KEY", {"X-Subscription-Token": "${BRAVE_API_KEY}"}, may_lack_items=True,
    ),
}  # fmt: skip
_ABSENT = object()
KEYS = {name: provider.key for name, provider in PROVIDERS.items() if provider.key}
"""The environment variable that holds each provider's key; SearXNG needs none."""


class JsonApi(Source):
    """An HTTP service that answers a query with items, each a passage, scored like an index's passages.

    Raises `KnowledgeError` at once when a header names an environment variable that is not set, and at each search
    when the service fails, answers with anything but JSON, or the pointers lead nowhere.
    """

    method = "http"
    who = "The JSON API"
    mend = "Correct `{}` under [knowledge.{}] in ragc.toml."
    most = MAX_ITEMS
    posts = may_lack_items = False

    def __init__(self, card: SourceCard, settings: HttpSettings, embedder: Embedder) -> None:
        self.card, self.settings, self.embedder = card, settings, embedder
        self._headers = {key: _fill_variables(card.name, value) for key, value in settings.headers.items()}
        who = f"{self.who} of {card.name}"
        self._guard = Guard(who, settings.seconds, settings.max_megabytes, settings.allow_private)

    def describe(self) -> SourceCard:
        """Return the card given."""
        return self.card

    def candidates(self, query: str, depth: int, filters: Filters = NO_FILTERS) -> list[Passage]:
        """Return what was found and passes the filters, by cosine.

        `scores` holds `dense` and, among what was found, `keyword`.
        """
        if depth <= 0 or not query.strip():
            return []
        found = drop_repeats([p for p in self.fetch_passages(query) if filters.admits(p)])
        if not found:
            return []
        texts = [embedding_text(p) for p in found]
        cosines = np.round(self.embedder.encode(texts) @ self.embedder.encode([query])[0], 6).tolist()
        words = np.maximum(Keywords.from_texts(texts).scores(query), 0.0).tolist()
        parts = zip(found, cosines, words, strict=True)
        scored = [p.rescored(cosine, scores={"dense": cosine, "keyword": bm25}) for p, cosine, bm25 in parts]
        return sorted(scored, key=lambda p: (-p.score, p.id))[:depth]

    def fetch_passages(self, query: str) -> list[Passage]:
        """Return one passage for each of the first items that have a text.

        Raises `KnowledgeError` when the service fails, or the pointers lead nowhere.
        """
        url = self.settings.url.replace("{query}", quote(query, safe="")).replace("{k}", str(self.most))
        body = {"query": query, "max_results": self.most} if self.posts else None
        reply = self._guard.fetch_json(url, self._headers, body)
        items = follow_pointer(reply, self.settings.items, _ABSENT)
        if items is None or (items is _ABSENT and self.may_lack_items):
            return []
        if not isinstance(items, list | dict):
            problem = f"The reply of {self.name} has no items at {self.settings.items!r}; it has {_list_keys(reply)}."
            raise KnowledgeError(problem, self.mend.format("items", self.name))
        listed = items if isinstance(items, list) else [items]
        passages = [self._make_passage(item, text) for item in listed[: self.most] if (text := self.read_text(item))]
        if listed and not passages:
            where = f"at {self.settings.text!r}; the first has {_list_keys(listed[0])}"
            problem = f"No item of {self.name} has a text {where}."
            raise KnowledgeError(problem, self.mend.format("text", self.name))
        return passages

    def read_text(self, item: Any) -> str:
        """Return the text of an item; empty for none."""
        return text_at(item, self.settings.text)

    def _make_passage(self, item: Any, text: str) -> Passage:
        pointers = (self.settings.title, self.settings.date, self.settings.link, self.settings.id)
        title, dated, link, own = (text_at(item, pointer) if pointer else "" for pointer in pointers)
        return Passage(
            id=f"{self.name}/{own}" if own else _digest_id(self.name, link, title, text),
            source=self.name,
            title=title or self.name,
            text=text,
            method=self.method,
            as_of=parse_day(dated),
            authority=AUTHORITY[self.settings.authority],
            link=link,
        )


class WebSearch(JsonApi):
    """Web search: pages found are fetched, cut and scored; one that cannot be stands with the provider's words."""

    method = "web"
    mend = "Check its url and its plan."

    def __init__(self, card: SourceCard, settings: WebSettings, embedder: Embedder) -> None:
        provider = PROVIDERS[settings.provider]
        self.who = f"The search provider {settings.provider}"
        self.most, self.posts, self.may_lack_items = settings.results, provider.posts, provider.may_lack_items
        asked = {
            "url": (settings.url or provider.url).rstrip("/") + provider.path,
            **{"headers": provider.headers, "title": "/title", "link": "/url", **provider.pointers},
            **{name: getattr(settings, name) for name in ("seconds", "max_megabytes", "allow_private")},
        }
        super().__init__(card, HttpSettings(kind="http", **asked), embedder)
        # Whoever writes a page chooses what is fetched next, so pages must be public whatever the provider may be.
        fetched = Guard(f"A page found by {card.name}", settings.seconds, settings.max_megabytes)
        self.pages = fetched if settings.fetch else None

    def read_text(self, item: Any) -> str:
        """Return the provider's words for a page, its title where there are none."""
        return super().read_text(item) or text_at(item, self.settings.title)

    def fetch_passages(self, query: str) -> list[Passage]:
        """Return the best passages of each page, dated by the provider or the page."""
        shown = drop_repeats([p for p in super().fetch_passages(query) if p.link])
        read: dict[str, list[Passage]] = {}
        if self.pages is not None and shown:
            threads = ThreadPoolExecutor(len(shown))
            asked = {p.id: threads.submit(self._read_page, self.pages, p, query) for p in shown}
            done, _ = wait(asked.values(), timeout=2 * self.pages.seconds)  # a page that drips is not waited for
            threads.shutdown(wait=False, cancel_futures=True)
            read = {id_: task.result() for id_, task in asked.items() if task in done}
        return [passage for p in shown for passage in read.get(p.id) or [p]]

    def _read_page(self, pages: Guard, shown: Passage, query: str) -> list[Passage]:
        """Return the passages of a page that have most of the query's words."""
        try:
            fetched = pages.fetch(shown.link)
            if "html" not in fetched.kind:
                return []
            page = run_within(pages.seconds, lambda: convert_html(fetched.content))
        except (Exception, TimeUp):  # of the web's pages many are broken, each in its own way
            return []
        parts = split_blocks(page.blocks)[1]
        scores = Keywords.from_texts([f"{' '.join(part.headings)} {part.text}" for part in parts]).scores(query)
        found = []
        for part in (parts[at] for at in best_rows(scores, scores.nonzero()[0], PER_PAGE)):
            title = " > ".join((shown.title, *(h for h in part.headings if h != shown.title)))
            id_ = _digest_id(self.name, shown.link, part.text)
            found.append(replace(shown, id=id_, title=title, text=part.text, as_of=shown.as_of or page.about.as_of))
        return found


def has_provider(settings: WebSettings) -> bool:
    """Tell whether a base names a search provider, and the environment has its key."""
    key = KEYS.get(settings.provider)
    return bool(settings.provider) and (key is None or bool(os.environ.get(key)))


def follow_pointer(document: Any, pointer: str, absent: Any = None) -> Any:
    """Return what a JSON pointer (RFC 6901) leads to, or `absent`."""
    for part in pointer.split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(document, list):
            document = document[int(key)] if key.isdecimal() and int(key) < len(document) else absent
        else:
            document = document.get(key, absent) if isinstance(document, Mapping) else absent
    return document


def text_at(item: Any, pointer: str) -> str:
    """Return what a pointer leads to as text, an object as a row."""
    value = follow_pointer(item, pointer)
    if isinstance(value, str):
        return read_markup(value).strip()
    fields = value.items() if isinstance(value, Mapping) else [("", value)]
    rows, _ = make_rows([([*fields], 0, 0)])
    return rows[0].text.strip() if rows else ""


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
