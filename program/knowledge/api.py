"""Any JSON API as a source: a URL template, and JSON pointers to its items' text, title, date and link."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from string import Template
from typing import Any
from urllib.parse import quote

from jsonpointer import JsonPointerException, resolve_pointer

from program.errors import KnowledgeError
from program.knowledge.guard import Guard
from program.knowledge.ingest.metadata import day
from program.knowledge.live import LiveSource, passage_id
from program.models.encoder import Embedder
from program.passage import AUTHORITY, Passage, SourceCard
from program.settings import HttpSettings

ITEMS = 50
"""The most items taken of one reply, and what `{k}` stands for in the url."""

_ABSENT = object()


class JsonApi(LiveSource):
    """Answers a query with the items that an HTTP service returns for it, each a passage.

    Raises KnowledgeError at once when a header names an environment variable that is not set, and at each
    search when the service fails, answers with anything but JSON, or the pointers lead nowhere.
    """

    def __init__(self, card: SourceCard, settings: HttpSettings, embedder: Embedder) -> None:
        super().__init__(card, embedder)
        self.settings = settings
        self._headers = {key: _filled(card.name, value) for key, value in settings.headers.items()}
        who = f"The JSON API of {card.name}"
        self._guard = Guard(who, settings.seconds, settings.max_megabytes, settings.allow_private)

    def found(self, query: str) -> Sequence[Passage]:
        """One passage for each of the first 50 items that have a text."""
        url = self.settings.url.replace("{query}", quote(query, safe="")).replace("{k}", str(ITEMS))
        reply = self._guard.fetch_json(url, headers=self._headers)
        items = _at(reply, self.settings.items)
        if items is _ABSENT or not isinstance(items, list | dict):
            raise KnowledgeError(
                f"The reply of {self.name} has no items at {self.settings.items!r}; it has {_keys(reply)}.",
                f"Correct `items` under [knowledge.{self.name}] in ragc.toml.",
            )
        listed = items if isinstance(items, list) else [items]
        passages = [passage for item in listed[:ITEMS] if (passage := self._passage(item)) is not None]
        if listed and not passages:
            raise KnowledgeError(
                f"No item of {self.name} has a text at {self.settings.text!r}; the first has {_keys(listed[0])}.",
                f"Correct `text` under [knowledge.{self.name}] in ragc.toml.",
            )
        return passages

    def _passage(self, item: Any) -> Passage | None:
        text = _text(_at(item, self.settings.text))
        if not text:
            return None
        title, date, link, own = (self._field(item, key) for key in ("title", "date", "link", "id"))
        return Passage(
            id=f"{self.name}/{own}" if own else passage_id(self.name, link, title, text),
            source=self.name,
            title=title or self.name,
            text=text,
            method="http",
            as_of=day(date),
            authority=AUTHORITY[self.settings.authority],
            link=link,
        )

    def _field(self, item: Any, key: str) -> str:
        pointer = getattr(self.settings, key)
        return _text(_at(item, pointer)) if pointer else ""


def _at(document: Any, pointer: str) -> Any:
    try:
        return resolve_pointer(document, pointer)
    except (JsonPointerException, TypeError):
        return _ABSENT


def _text(value: Any) -> str:
    """A value as text; empty when there is none."""
    if value is _ABSENT or value is None:
        return ""
    return value.strip() if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _keys(value: Any) -> str:
    if isinstance(value, Mapping):
        return "the keys " + ", ".join(list(map(str, value))[:8]) if value else "no keys"
    return f"a list of {len(value)}" if isinstance(value, list) else f"only {str(value)[:40]!r}"


def _filled(name: str, template: str) -> str:
    try:
        return Template(template).substitute(os.environ)
    except (KeyError, ValueError) as error:
        raise KnowledgeError(
            f"A header of {name} needs {str(error) or 'a variable'} from the environment, which is not there.",
            f"Set it, or correct `headers` under [knowledge.{name}] in ragc.toml.",
        ) from error
