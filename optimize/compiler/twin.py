"""A second process of a compile, forked once its programs are made: it does its share while this one does its own."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
from collections.abc import Callable
from multiprocessing import Pipe
from multiprocessing.connection import Connection

_log = logging.getLogger(__name__)

_GONE = (EOFError, OSError)
"""What a pipe raises when the other end is closed or lost."""


class TwinLost(Exception):
    """The other process is gone; what it was asked for has to be done here."""


class Twin:
    """Answers messages in a process of its own, one after the other, by what `serve` was when it was made.

    It ends with the process that made it, however that ends; when it is let go, with `leave`. What is sent and not
    answered has to fit into the buffers of a pipe: some dozens of short messages.
    """

    def __init__(self, serve: Callable[[bytes], bytes], leave: Callable[[], None] = lambda: None) -> None:
        self._pipe, there = Pipe()
        self._child = os.fork()
        if not self._child:
            self._pipe.close()
            _serve(there, serve, leave)
        there.close()

    def send(self, message: bytes) -> None:
        """Raises `TwinLost`."""
        try:
            self._pipe.send_bytes(message)
        except _GONE as error:
            raise TwinLost from error

    def receive(self) -> bytes:
        """The answer to the oldest message not answered yet. Raises `TwinLost`."""
        try:
            return self._pipe.recv_bytes()
        except _GONE as error:
            raise TwinLost from error

    @property
    def answered(self) -> bool:
        """True when an answer is there, so that `receive` will hardly wait. Raises `TwinLost`."""
        try:
            return self._pipe.poll()
        except _GONE as error:
            raise TwinLost from error

    def close(self) -> None:
        """Lets the other process end after the message it is at, and waits for it."""
        self._pipe.close()
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self._child, 0)


def can_fork() -> bool:
    """True on Linux with a second processor: elsewhere a forked process may not use what it inherits."""
    return hasattr(os, "sched_getaffinity") and len(os.sched_getaffinity(0)) > 1


def _serve(there: Connection, serve: Callable[[bytes], bytes], leave: Callable[[], None]) -> None:
    """Until the other end is closed. Leaves without cleaning up: what is open belongs to the process that forked."""
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches both; the first says when it is over
        try:
            while (message := _next(there)) is not None:
                answer = serve(message)
                with contextlib.suppress(*_GONE):  # nobody waits for it any more
                    there.send_bytes(answer)
        finally:
            leave()
    except Exception as error:  # its work is done by the first process, which tells what it comes upon itself
        _log.warning("The second process of the compile failed (%r); the first goes on alone.", error)
    finally:
        os._exit(0)


def _next(there: Connection) -> bytes | None:
    """The next message; None when there will be none."""
    try:
        return there.recv_bytes()
    except _GONE:
        return None
