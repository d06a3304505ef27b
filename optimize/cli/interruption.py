"""Ctrl-C that is not lost: Python drops a `KeyboardInterrupt` that falls into a finalizer."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import NoReturn

INTERRUPTED = 130  # exit code


@contextmanager
def interruptible(
    first: Callable[[], None] = lambda: None, again: Callable[[], None] = lambda: None, patient: bool = False
) -> Iterator[Callable[[], None]]:
    """Yield a check that raises `KeyboardInterrupt` once there was a Ctrl-C.

    Ctrl-C is remembered inside. The check is to be called wherever work can stop. Outside the main thread, which Ctrl-C
    goes to, it never raises. Where `patient`, the check alone raises the first one. `first` is called at once at the
    first Ctrl-C, `again` at every other: in a signal handler, in the midst of anything, so they may take no lock and
    write with `say` alone. Behind it the next one ends the process.
    """
    noted = False

    def note(*_: object) -> None:
        nonlocal noted
        pressed, noted = noted, True  # before anything is said: whoever reads it may press again at once
        (again if pressed else first)()
        if pressed or not patient:
            raise KeyboardInterrupt

    def check() -> None:
        if noted:
            raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield check
        return
    before = signal.signal(signal.SIGINT, note)
    try:
        yield check
        check()
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler if before is None else before)  # None: not of Python
        if noted:
            end_at_once()


def say(line: str) -> None:
    """Write a line on stderr past every buffer and lock.

    What was interrupted may be at a line of its own.
    """
    with suppress(OSError):
        os.write(2, f"{line}\n".encode())


def leave(line: str) -> NoReturn:
    """Say a line and end the process at once, whatever its threads wait for."""
    say(line)
    os._exit(INTERRUPTED)


def end_at_once() -> None:
    """Have the next Ctrl-C end the process, whatever threads it waits for."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, lambda *_: os._exit(INTERRUPTED))
