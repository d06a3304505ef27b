"""Looks after a running experiment: reads what every process logged since, and ends it when it must end."""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from pathlib import Path

import orjson

from program.design import Design, State, read_state
from program.exposures import LogReader
from program.manifest import write_whole
from program.safety import conclude, guard_checks, mismatch
from program.tally import Tally

TURN = ".lock"
"""Whose turn it is to look: one process of the many keeps the tally, and another takes over when it has gone."""
_PATIENCE = 3
_SPARING = 20
_LOG = logging.getLogger("ragc.experiment")


class Monitor:
    """One process's watch over the folder: a look reads only what is new, and takes a twentieth of the time at most."""

    def __init__(self, folder: Path, design: Design, seconds: float) -> None:
        self._folder = folder
        self._design = design
        self._pause = self._seconds = seconds
        self._owner = f"{socket.gethostname()}-{os.getpid()}-{id(self)}"
        self._due = time.monotonic() + seconds
        self._looking = threading.Lock()
        self._forget()

    def look_when_due(self) -> None:
        """Looks beside the caller, in a thread of its own, when the last look is long enough ago."""
        if time.monotonic() >= self._due and self._looking.acquire(blocking=False):
            try:
                threading.Thread(target=self._turn, name="ragc-monitor", daemon=True).start()
            except RuntimeError:  # no thread to be had: the next question tries again
                self._looking.release()

    def look(self) -> State:
        """Ends the experiment if it must end, and tells its state."""
        with self._looking:
            return self._look()

    def _look(self) -> State:
        began = time.monotonic()
        state = read_state(self._folder)
        if not state.running:
            return state
        self._tally.add(self._reader.rows())
        merged = self._tally.merged()
        sizes, checks = mismatch(self._design, merged), guard_checks(self._design, merged)
        self._pause = max(self._seconds, _SPARING * (time.monotonic() - began))
        return conclude(self._folder, self._design, merged, sizes, checks)

    def _turn(self) -> None:
        try:
            if self._mine():
                self._look()
            else:
                self._forget()
        except Exception:
            _LOG.exception("the experiment %s could not be looked after", self._design.id)
        finally:
            self._due = time.monotonic() + self._pause
            self._looking.release()

    def _mine(self) -> bool:
        """Whether this process is the one that looks: the last one, or any when that has been silent for long."""
        path = self._folder / TURN
        try:
            turn = orjson.loads(path.read_bytes())
            others = turn["owner"] != self._owner and time.time() < turn["until"]
        except (OSError, ValueError, KeyError, TypeError):
            others = False
        if not others:
            until = time.time() + _PATIENCE * self._pause
            write_whole(path, orjson.dumps({"owner": self._owner, "until": until}))
        return not others

    def _forget(self) -> None:
        self._reader = LogReader(self._folder)
        self._tally = Tally(self._design)
