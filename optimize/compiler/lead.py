"""Who compiles a study: one process at a time, so that no two spend on it and seal a version each."""

from __future__ import annotations

import contextlib
import threading
import time
from types import TracebackType

from filelock import FileLock, Timeout

from optimize.compiler.journal import Journal, host
from optimize.compiler.store import LEASE
from program.errors import RecordError, StudyError
from program.project import Project

LEADER = "leader"
"""Of a study in a database: who compiles it, and when it last said so (`time.time`)."""
WAIT = 1.0  # seconds in which a process that was killed is surely gone


class Lead:
    """A process's lead of a study, given back at the end of a `with` block.

    In one folder of a project it is a lock that the system frees when its holder dies. A study in a database is led
    from other folders and hosts, too: its leader says every LEASE / 4 seconds that it is there, whatever it is at. Two
    that begin within the same moment on two hosts do not see each other.
    """

    def __init__(self, project: Project) -> None:
        self._folder = project.private / "studies"
        self._shared = bool(project.settings.study.storage)
        self._owner = f"{host()}:{project.private}"
        self._lock: FileLock | None = None
        self._over = threading.Event()
        self._saying: threading.Thread | None = None

    def __enter__(self) -> Lead:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._over.set()
        if self._saying is not None and not isinstance(error, RecordError):  # a database that is gone was waited for
            self._saying.join()
        if self._lock is not None:
            self._lock.release()

    def take(self, journal: Journal) -> None:
        """Leads the study from now on. Raises `StudyError` when another process does."""
        lock = FileLock(self._folder / f"{journal.name}.lock", timeout=WAIT)
        try:
            lock.acquire()
        except Timeout:
            raise _led(journal, "another process") from None
        self._lock = lock
        if self._shared:
            owner, said = journal.attributes.get(LEADER) or (self._owner, 0.0)
            if owner != self._owner and abs(time.time() - said) < LEASE:
                raise _led(journal, owner)
            journal.note(LEADER, [self._owner, time.time()])
            self._saying = threading.Thread(target=self._say, args=(journal,), daemon=True)
            self._saying.start()

    def _say(self, journal: Journal) -> None:
        """Says that it is still led, as long as it is and nobody else has taken it; at the end that it is free."""
        over = False
        while not over:
            over = self._over.wait(LEASE / 4)
            with contextlib.suppress(RecordError):  # others wait for the rest of the lease
                if (journal.attributes.get(LEADER) or [""])[0] != self._owner:
                    return
                journal.note(LEADER, None if over else [self._owner, time.time()])


def _led(journal: Journal, owner: str) -> StudyError:
    return StudyError(
        f"The study {journal.name} is being compiled by {owner}.",
        f"Wait for it (one that was killed elsewhere is forgotten after {LEASE:.0f} s), help it: "
        f"ragc worker PROJECT --study {journal.name}, or begin another: ragc compile PROJECT",
    )
