"""Ctrl-C that is not lost: Python drops a `KeyboardInterrupt` that falls into a finalizer."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def interruptible() -> Iterator[Callable[[], None]]:
    """Inside, Ctrl-C is remembered; what is yielded raises `KeyboardInterrupt` when there was one.

    To be called wherever work can stop. Outside the main thread, which Ctrl-C goes to, it never raises.
    """
    noted = False

    def note(*_: object) -> None:
        nonlocal noted
        noted = True
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
