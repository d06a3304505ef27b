"""A second process of a compile, forked once its programs are made: it does its share while this one does its own."""

from __future__ import annotations

import contextlib
import logging
import os
import select
import signal
import socket
from collections.abc import Callable
from io import BufferedRWPair

_log = logging.getLogger(__name__)

LENGTH = 8  # bytes that say how long a message is


class TwinLost(Exception):
    """The other process is gone; what it was asked for has to be done here."""


class Twin:
    """Answers messages in a process of its own, one after the other, by what `serve` was when it was made.

    It ends with the process that made it, however that ends; when it is let go, with `leave`.
    """

    def __init__(self, serve: Callable[[bytes], bytes], leave: Callable[[], None] = lambda: None) -> None:
        here, there = socket.socketpair()
        self._child = os.fork()
        if not self._child:
            here.close()
            _serve(there, serve, leave)
        there.close()
        self._socket = here
        self._stream = here.makefile("rwb")

    def send(self, message: bytes) -> None:
        """Raises `TwinLost`."""
        try:
            _write(self._stream, message)
        except OSError as error:
            raise TwinLost from error

    def receive(self) -> bytes:
        """The answer to the oldest message not answered yet. Raises `TwinLost`."""
        try:
            answer = _read(self._stream)
        except OSError as error:
            raise TwinLost from error
        if not answer:
            raise TwinLost
        return answer

    @property
    def answered(self) -> bool:
        """True when an answer is there, so that `receive` will hardly wait."""
        return bool(select.select([self._socket], [], [], 0)[0])

    def close(self) -> None:
        """Lets the other process end after the message it is at, and waits for it."""
        with contextlib.suppress(OSError):
            self._stream.close()
        self._socket.close()
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self._child, 0)


def can_fork() -> bool:
    """True on Linux with a second processor: elsewhere a forked process may not use what it inherits."""
    return hasattr(os, "sched_getaffinity") and len(os.sched_getaffinity(0)) > 1


def _serve(there: socket.socket, serve: Callable[[bytes], bytes], leave: Callable[[], None]) -> None:
    """Until the other end is closed. Leaves without cleaning up: what is open belongs to the process that forked."""
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches both; the first says when it is over
        stream = there.makefile("rwb")
        with contextlib.suppress(BrokenPipeError):  # nobody waits for the answer any more
            while message := _read(stream):
                _write(stream, serve(message))
        leave()
    except Exception:  # its work is done by the first process, which cannot know why
        _log.warning("The second process of the compile failed; the first goes on alone.", exc_info=True)
    finally:
        os._exit(0)


def _write(stream: BufferedRWPair, message: bytes) -> None:
    stream.write(len(message).to_bytes(LENGTH, "big") + message)
    stream.flush()


def _read(stream: BufferedRWPair) -> bytes:
    """The next message; nothing when there will be none, or not the whole of it."""
    length = stream.read(LENGTH)
    message = stream.read(int.from_bytes(length, "big")) if len(length) == LENGTH else b""
    return message if len(message) == int.from_bytes(length, "big") else b""
