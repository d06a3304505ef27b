"""What every stage of a compile works with: the record, what is spent, the processes, and whom to tell of progress."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ragc.optimize.compiler.plan import CapPlan
from ragc.optimize.compiler.record import Record
from ragc.optimize.compiler.runs.workers import Workers
from ragc.optimize.compiler.spending import BOOKED_EVERY, Caps, Spending
from ragc.optimize.report.estimate import Expected

TOGETHER = 4  # questions that a process is given before it says how far it is

A = TypeVar("A")
B = TypeVar("B")


@dataclass(slots=True)
class CompileProgress:
    """How far a compile is, for whoever watches it."""

    stage: str = ""  # name of the stage
    done: int = 0  # steps of the stage that are done
    of: int = 0  # steps of the stage in all; 0 where that is not known
    baseline: float | None = None  # mean worth of the program as it was
    worth: str = "utility"  # what that is: with routing credit where labels tell routes
    best: float | None = None  # the highest so far
    calls: int = 0  # calls of language models that were paid for
    reused: int = 0  # replies of language models that the record had
    expected: Expected = field(default_factory=Expected)  # what the compile comes to, about
    started: float = field(default_factory=time.monotonic)  # when the stage began
    seconds: dict[str, float] = field(default_factory=dict)  # that each stage took which is over

    @property
    def minutes_left(self) -> float | None:
        """Minutes that are left, about, by the clock; None where that is not known."""
        share = self.done / self.of if self.of else 0.0
        return self.expected.tell_left(self.seconds, self.stage, time.monotonic() - self.started, share)


Watch = Callable[[CompileProgress], None]


class Session:
    """A compile under way."""

    def __init__(self, record: Record, caps: Caps, watch: Watch = lambda progress: None, jobs: int = 1) -> None:
        self.record = record
        self.caps = caps
        self.plan = CapPlan(caps)
        self.spending = Spending(caps)
        self.progress = CompileProgress()
        self.jobs = jobs  # processes that share the work
        self._watch = watch
        self._forked: list[Workers[Any, Any]] = []

    def fork(self, work: Callable[[Any], Any]) -> Workers[Any, Any]:
        """Return the processes that share some work."""
        self._forked.append(Workers(work, self.jobs, self.spending))
        return self._forked[-1]

    def divide(self, work: Callable[[Sequence[A]], B], among: Sequence[A], needed: bool = True) -> list[B | None]:
        """Return what several processes make of parts, in order.

        What they cannot do is done here where it is `needed`, else None.
        """
        parts = [among[n : n + TOGETHER] for n in range(0, len(among), TOGETHER)]

        def done(n: int) -> None:
            self.advance(min(n * TOGETHER, len(among)), len(among))

        found = self.fork(work).run(list(enumerate(parts)), done)
        self.end_processes()
        for n in [n for n, one in enumerate(found) if one is None and needed]:
            found[n] = work(parts[n])
            done(n + 1)
        return found

    def end_processes(self) -> None:
        """End the processes; what they do next forks them anew."""
        for workers in self._forked:
            workers.close()

    def close(self) -> None:
        """End the processes and close the record."""
        self.end_processes()
        self.record.close()

    def limit(self, stage: str) -> None:
        """Let no more be gone from now on than the plan allows at the end of a stage."""
        self.spending.caps = self.plan.limit(stage)

    def begin_stage(self, name: str) -> None:
        """Begin a stage."""
        progress, now = self.progress, time.monotonic()
        if progress.stage:
            progress.seconds[progress.stage] = progress.seconds.get(progress.stage, 0.0) + now - progress.started
        progress.stage, progress.done, progress.of, progress.started = name, 0, 0, now
        self.spending.book()
        self.tell()

    def advance(self, done: int, of: int) -> None:
        """Say how far a stage is. Raises `BudgetStop` when the time is up."""
        self.progress.done, self.progress.of = done, of
        self.tell()
        self.spending.check()

    def tell(self) -> None:
        """Tell the watcher."""
        self.spending.book(every=BOOKED_EVERY)
        self.progress.calls, self.progress.reused = self.spending.calls, self.record.reused
        self._watch(self.progress)
