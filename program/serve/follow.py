"""A program that follows an alias: the same object, whichever version the alias names."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from program.answer import Answer
from program.errors import VersionError
from program.loop.rag import AgenticRAG
from program.serve.reference import LATEST, Reference, is_alias, parse, versions

RETRY_SECONDS = 30.0
"""A version that failed to load is tried again no sooner: its files may still be on their way."""
_log = logging.getLogger(__name__)


class Followed:
    """Answers with the version that an alias (or `latest`) names at the time of each question.

    A look at the alias comes before every question. When it moved, the question that noticed waits for the
    new version to load; those that come meanwhile, and those already under way, end on the old one. A version
    that fails to load is told in one log warning, and the old one goes on. Safe from threads and asyncio tasks.
    """

    def __init__(self, reference: str | Path, root: Path, load: Callable[[], AgenticRAG]) -> None:
        """`load` gives the program of the version named now. Raises `VersionError` for a fixed reference."""
        self._reference = parse(reference)
        if self._reference.selector != LATEST and not is_alias(self._reference.selector):
            raise VersionError(
                f"{reference} always names the same version.", "Follow an alias: name@production, or name@latest."
            )
        self._root = root
        self._load = load
        self._lock = threading.Lock()
        self._warned: object = None
        self._retry_at: float | None = None
        self._seen = _mark(self._reference, root)  # before loading: a move meanwhile is noticed at the next question
        self._current = load()

    @property
    def current(self) -> AgenticRAG:
        """The program that answers now; it stays the same, whatever the alias does."""
        return self._current

    def __call__(self, question: str) -> Answer:
        """The answer of the version named now."""
        answer: Answer = self.renewed()(question)
        return answer

    async def aask(self, question: str) -> Answer:
        """The answer of the version named now, awaited; a new version loads beside the event loop."""
        return await (await self._arenewed()).aask(question)

    async def stream(self, question: str) -> AsyncIterator[Any]:
        """As `AgenticRAG.stream`: one version answers from the first event to the last."""
        async for event in (await self._arenewed()).stream(question):
            yield event

    def renewed(self) -> AgenticRAG:
        """The program of the version named now, loaded if the alias moved; the old one if that fails."""
        if self._is_due() and self._lock.acquire(blocking=False):
            try:
                self._renew()
            finally:
                self._lock.release()
        return self._current

    async def _arenewed(self) -> AgenticRAG:
        return await asyncio.to_thread(self.renewed) if self._is_due() else self._current

    def _is_due(self) -> bool:
        retry = self._retry_at
        return _mark(self._reference, self._root) != self._seen or (retry is not None and time.monotonic() >= retry)

    def _renew(self) -> None:
        mark = _mark(self._reference, self._root)
        try:
            fresh = self._load()
        except Exception as error:  # whatever is wrong with the new version, the old one can answer
            self._retry_at = time.monotonic() + RETRY_SECONDS
            if mark != self._warned:
                self._warned = mark
                version = self._current.runtime.version
                _log.warning(
                    "%s moved, but what it names does not load; %s goes on. %s", self._reference, version, error
                )
        else:
            self._retry_at = None
            self._current = fresh
        self._seen = mark


def _mark(reference: Reference, root: Path) -> object:
    """Something that changes when the reference may name another version; None when it names nothing."""
    try:
        if reference.selector == LATEST:
            return versions(root, reference.name)[-1:]
        found = (root / reference.name / "aliases" / f"{reference.selector}.json").stat(follow_symlinks=False)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size
