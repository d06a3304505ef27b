"""Work shared with processes forked from this one, so that no result depends on how many there are.

1. The first tasks fork `count` processes. Each holds what this one does: programs, readings, fitted heads.
2. A task names its process by a number. What is asked of the same questions always goes to the same process, which
   keeps their evidence in memory; what is new it writes to the record and the caches, where the others find it.
3. A process pays for nothing: this one alone asks language models, under the caps and a provider's limits. A task that
   needs them, or that fails, comes back as None, and whoever gave it does it here.
4. The tasks of a process that was killed come back as None, too. The next tasks fork it anew.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Generic, TypeVar

from ragc.errors import BudgetStop
from ragc.models.embedded.encoder import THREADS
from ragc.optimize.compiler.spending import Spending

Given = TypeVar("Given")
Result = TypeVar("Result")


FORKS = hasattr(os, "fork") and sys.platform != "darwin"  # safely, that is


class Workers(Generic[Given, Result]):
    """`count` processes that do one kind of work.

    With a count under 2, or on a system that does not fork safely, there is none, and every result is None.
    What they do is booked in `spending`, whose cap on time ends them.
    """

    def __init__(self, work: Callable[[Given], Result], count: int = 0, spending: Spending | None = None) -> None:
        self.count = count if FORKS and count > 1 else 0
        self._work, self._spending = work, spending or Spending()
        self._open: dict[int, tuple[Connection, BaseProcess]] = {}

    def run(
        self, tasks: Sequence[tuple[int, Given]], progress: Callable[[int], None] = lambda done: None
    ) -> list[Result | None]:
        """Return the results in order. A task is a number, that of its process modulo `count`, and what is given.

        Raises `BudgetStop` when the time is up.
        """
        found: list[Result | None] = [None] * len(tasks)
        waiting: dict[int, deque[int]] = defaultdict(deque)
        for place, (number, _) in enumerate(tasks if self.count else ()):
            waiting[number % self.count].append(place)
        done = 0
        try:
            for number, places in waiting.items():
                self._give(number, tasks[places[0]][1])
            while waiting:
                numbers = {self._open[number][0]: number for number in waiting}
                for connection in wait(list(numbers), self._spending.seconds_left):
                    number = numbers[connection]  # type: ignore[index]
                    places, done = waiting[number], done + 1
                    found[places.popleft()] = self._take(number)
                    if places:
                        self._give(number, tasks[places[0]][1])
                    else:
                        del waiting[number]
                progress(done)
                self._spending.check()
        except BaseException:
            self.close()
            raise
        return found

    def close(self) -> None:
        """End the processes; the next tasks fork them anew."""
        for number in [*self._open]:
            self._end(number)

    def _end(self, number: int) -> None:
        connection, process = self._open.pop(number)
        process.kill()
        process.join()
        connection.close()

    def _give(self, number: int, task: Given) -> None:
        if number not in self._open:
            here, there = multiprocessing.Pipe()
            process = multiprocessing.get_context("fork").Process(target=self._serve, args=(there, here), daemon=True)
            process.start()
            there.close()
            self._open[number] = here, process
        with contextlib.suppress(OSError):  # it was killed, as taking the result shows
            self._open[number][0].send(task)

    def _take(self, number: int) -> Result | None:
        try:
            return self._open[number][0].recv()  # type: ignore[no-any-return]
        except (EOFError, OSError):
            self._end(number)
            return None

    def _serve(self, connection: Connection, *others: Connection) -> None:
        """Do tasks until the process that forked this one is gone."""
        from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that forked this one says when to stop
        for other in (*others, *(one for one, _ in self._open.values())):  # nobody but that process holds them open
            other.close()
        os.environ[THREADS] = "1"
        threadpool_limits(1)  # threads do not survive a fork
        self._spending.pay_nothing()
        with contextlib.suppress(EOFError, OSError):
            while True:
                task, result = connection.recv(), None
                with contextlib.suppress(Exception, BudgetStop):  # it is met again where the task is done instead
                    result = self._work(task)
                self._spending.book()
                connection.send(result)
