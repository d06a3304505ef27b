"""What one process has of an experiment: its log, its watch, its shadows, and the state as last read."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

from program.design import State, read_state
from program.errors import IntegrityError
from program.exposures import ExposureLog
from program.monitor import Monitor
from program.serving import Program, Shadow

_STATE_SECONDS = 1.0
_REMEMBERED = 10_000


class Participant:
    """What belongs to one process and is not taken along through a fork."""

    def __init__(self, folder: Path, log: ExposureLog, monitor: Monitor) -> None:
        self.pid = os.getpid()
        self.log = log
        self.monitor = monitor
        self._shadows: dict[str, Shadow] = {}
        self._folder = folder
        self._state = State()
        self._read_at = -math.inf
        self._outside: dict[str, None] = {}
        self._lock = threading.Lock()

    def state(self) -> State:
        """The state, read from disk at most once a second; what cannot be read counts as halted."""
        now = time.monotonic()
        if now - self._read_at >= _STATE_SECONDS:
            try:
                self._state = read_state(self._folder)
            except (OSError, IntegrityError) as error:
                self._state = State("halted", str(error))
            self._read_at = now
        return self._state

    def shadow(
        self, arm: str, open_program: Callable[[], Program], report: Callable[[str, dict[str, float]], None]
    ) -> Shadow:
        """The arm's shadow, begun with the first question it is to answer."""
        with self._lock:
            if arm not in self._shadows:
                self._shadows[arm] = Shadow(open_program, report)
            return self._shadows[arm]

    def drain(self, seconds: float) -> bool:
        """Waits until the shadows have answered what is waiting; False when that takes longer."""
        return all(shadow.drain(seconds) for shadow in list(self._shadows.values()))

    def remember_outside(self, trace: str) -> None:
        """Keeps in mind, for a while, that an answer was given outside the experiment."""
        with self._lock:
            self._outside[trace] = None
            if len(self._outside) > _REMEMBERED:
                self._outside.pop(next(iter(self._outside)))

    def was_outside(self, trace: str) -> bool:
        return trace in self._outside
