"""Programs that stand for others: above all one that follows an alias, whichever version it names."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import inspect
import logging
import math
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from ragc.answer import Answer
from ragc.errors import KnowledgeError, VersionError
from ragc.knowledge.index.store import CURRENT, read_current
from ragc.serve.reference import LATEST, Reference, find_versions, is_alias, parse_reference

RETRY_SECONDS = 30.0  # a version that failed to load is tried again no sooner: its files may still be on their way
_log = logging.getLogger(__name__)


class Proxy(ABC):
    """What is asked like a program, a project's or anybody's, and hands each question to the program chosen for it."""

    @abstractmethod
    def choose_program(self) -> Any:
        """Return the program to ask."""

    def note_answer(self, answer: Any, seconds: float) -> Any:
        """Return what a program answered in so many seconds, noted."""
        return answer

    def __call__(self, *args: Any, **inputs: Any) -> Any:
        """Return what the program chosen answers; inputs are that program's."""
        program, began = self.choose_program(), time.perf_counter()
        return self.note_answer(program(*args, **inputs), time.perf_counter() - began)

    async def aask(self, *args: Any, **inputs: Any) -> Any:
        """Return the same, awaited; the choice does not hold up the event loop."""
        program, began = await asyncio.to_thread(self.choose_program), time.perf_counter()
        if hasattr(program, "aask") or hasattr(program, "aforward"):
            answer = await (program.aask if hasattr(program, "aask") else program.acall)(*args, **inputs)
        else:  # one's own may have `forward` alone
            answer = await asyncio.to_thread(program, *args, **inputs)
        return self.note_answer(answer, time.perf_counter() - began)

    acall = aask

    async def stream(self, *args: Any, **inputs: Any) -> AsyncIterator[Any]:
        """Yield the events of the program chosen, the answer last."""
        program, began = await asyncio.to_thread(self.choose_program), time.perf_counter()
        async for event in program.stream(*args, **inputs):
            yield self.note_answer(event, time.perf_counter() - began) if isinstance(event, Answer) else event


class Reopened(Proxy):
    """A program that is loaded anew when the index of its documents, or what `look` returns, changed.

    A look comes before every question. When something changed, the question that noticed waits for the program to load;
    those that come meanwhile, and those already under way, end on the old one. One that fails to load is named in one
    log warning, and the old one goes on. Safe from threads and asyncio tasks.
    """

    def __init__(
        self, name: str | Path, load_program: Callable[[], Any], look: Callable[[], object] = lambda: None
    ) -> None:
        """Load the program."""
        self._name, self._load_program, self._look = name, load_program, look
        self._lock = threading.Lock()
        self._retry_at = math.inf
        self._seen = self._look()  # before loading: a move meanwhile is noticed next time
        self._current = load_program()
        self._seen_index = _fingerprint_index(self._current, opened=True)

    @property
    def current(self) -> Any:
        """The program that answers now; it stays the same, whatever changes."""
        return self._current

    @property
    def __signature__(self) -> inspect.Signature:
        """The inputs, as a tool made of it shows them."""
        return inspect.signature(self._current)

    def choose_program(self) -> Any:
        """Return the program as it is now; the old one when the new one fails to load."""
        named, index = self._look(), _fingerprint_index(self._current)
        due = (named, index) != (self._seen, self._seen_index) or time.monotonic() >= self._retry_at
        if due and self._lock.acquire(blocking=False):
            try:
                self._load_anew(named, index)
            finally:
                self._lock.release()
        return self._current

    def _load_anew(self, named: object, index: object) -> None:
        try:
            self._current = self._load_program()
            index, self._retry_at = _fingerprint_index(self._current, opened=True), math.inf
            free_memory()
        except Exception as error:  # whatever is wrong with the new one, the old one can answer
            self._retry_at = time.monotonic() + RETRY_SECONDS
            if (named, index) != (self._seen, self._seen_index):
                what = "moved, but what it names does not load; the version before goes on"
                what = what if named != self._seen else "has a new index, which does not load; the one before goes on"
                _log.warning("%s %s. %s", self._name, what, error)
        self._seen, self._seen_index = named, index


def follow_alias(reference: str | Path, root: Path, load_version: Callable[[], Any]) -> Reopened:
    """Return a program that answers with the version an alias names by then.

    Raises `VersionError` for a reference that always names the same version.
    """
    named = parse_reference(reference)
    if named.selector != LATEST and not is_alias(named.selector):
        what = f"{reference} always names the same version."
        raise VersionError(what, "Follow an alias: name@production, or name@latest.")
    return Reopened(reference, load_version, partial(_fingerprint_alias, named, root))


def _fingerprint_index(program: Any, opened: bool = False) -> object:
    """Return something that changes with the index of a program's documents; None where it has none on disk.

    It is None, too, where the index is not the one that the program `opened`.
    """
    library = getattr(getattr(program, "runtime", None), "library", None)
    file = library.index.file if library is not None and library.index is not None else None
    if file is None:
        return None
    with suppress(OSError, KnowledgeError):
        found = (file.parent / CURRENT).stat()
        if not opened or read_current(file.parent).generation == file.stem:
            return found.st_mtime_ns, found.st_ino, found.st_size
    return None


def free_memory() -> None:
    """Free what is used no more: an old version lies in cycles with its own caches, and glibc keeps what is freed.

    What a server has frozen is thawed for it, and frozen again.
    """
    was_frozen = gc.get_freeze_count() > 0
    gc.unfreeze()
    gc.collect()
    if was_frozen:
        gc.freeze()
    with suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)


def _fingerprint_alias(reference: Reference, root: Path) -> object:
    """Return something that changes when the reference may name another version."""
    try:
        if reference.selector == LATEST:
            return find_versions(root, reference.name)[-1:]
        found = (root / reference.name / "aliases" / f"{reference.selector}.json").stat(follow_symlinks=False)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size
