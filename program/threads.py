"""Threads of this process: one that runs an event loop, one for each work that may hang, and some that share work."""

from __future__ import annotations

import asyncio
import contextvars
import os
import threading
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")
Item = TypeVar("Item")


class LoopThread:
    """An event loop in a thread of its own, which serves all threads and loops of the process."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.begin()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self.begin)

    def begin(self) -> None:
        """Begin the loop, with nothing under way.

        In a forked process the thread is gone, and with it what it had begun.
        """
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=_run_always, args=(self._loop,), name=self._name, daemon=True)
        self._thread.start()

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Begin work on the loop, in the context of who submits it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Return what work on the loop comes to.

        It is called off where the wait is interrupted. What is asked on the loop's own thread, as by a callback, has a
        loop of its own, since the thread cannot wait for itself.
        """
        if threading.current_thread() is self._thread:
            return begin_in_thread(partial(asyncio.run, work)).result()
        begun = self.submit(work)
        try:
            return begun.result()
        finally:
            begun.cancel()

    async def arun(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the same, awaited; cancelling the wait calls the work off."""
        return await asyncio.wrap_future(self.submit(work))


def begin_in_thread(work: Callable[[], T]) -> Future[T]:
    """Return what work comes to in a thread of its own, which no process waits for."""
    done: Future[T] = Future()
    context = contextvars.copy_context()

    def body() -> None:
        try:
            done.set_result(context.run(work))
        except BaseException as error:
            done.set_exception(error)

    threading.Thread(target=body, daemon=True).start()
    return done


def share_in_threads(work: Callable[[Item], T], items: Iterable[Item], most: int) -> list[T]:
    """Return what work comes to for each item, in order.

    So many are under way at once at most, each in a copy of the context. Where one raises, or the wait is interrupted,
    no other is begun, and those under way are waited for, whatever interrupts that again: else the process would wait
    for them at its end, where nobody minds a Ctrl-C.
    """
    pool = ThreadPoolExecutor(most)
    try:
        begun = [pool.submit(contextvars.copy_context().run, work, item) for item in items]
        return [one.result() for one in begun]
    finally:
        try:
            pool.shutdown(cancel_futures=True)
        except KeyboardInterrupt:
            pool.shutdown()
            raise


def _run_always(loop: asyncio.AbstractEventLoop) -> None:
    """Run a loop; work that wants to end the process ends its own caller alone."""
    while True:
        with suppress(KeyboardInterrupt, SystemExit):
            loop.run_forever()
