"""The stand-in provider in a process of its own, as a real one is: what it costs is not the client's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.managers import BaseManager, NamespaceProxy

from tests.support.provider import Brain, Provider, Script


class ProviderApart(NamespaceProxy):
    """The way to a running server: its attributes are those of `Provider`."""

    _exposed_ = ("__getattribute__", "follow", "start", "stop")

    def follow(self, script: Script) -> None:
        self._callmethod("follow", (script,))

    def start(self) -> None:
        self._callmethod("start")

    def stop(self) -> None:
        self._callmethod("stop")


class _Manager(BaseManager):
    """The server's process."""


_Manager.register("Provider", Provider, ProviderApart)


@contextmanager
def serve_apart(brain: Brain | None = None) -> Iterator[ProviderApart]:
    """The server, listening on a free port of 127.0.0.1 until the block is left; `brain` is a module's function."""
    with _Manager(ctx=get_context("spawn")) as manager:
        provider = manager.Provider(Script(), brain)
        provider.start()
        yield provider
