"""Work shared with a second process: settings scored, each process every other arm; or any list, every other place."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import islice
from typing import Any

import numpy as np
import orjson

from optimize.compiler.record import Record
from optimize.compiler.scores import Scores
from optimize.compiler.spending import Caps, Spending
from optimize.compiler.twin import Twin, TwinLost, can_fork
from program.errors import BudgetStop
from program.knowledge.index.build import Advance
from program.loop.decisions import all_clients_of, is_embedded
from program.loop.policy import Setting
from program.loop.rag import AgenticRAG
from program.models.embedded.encoder import THREADS, count_threads
from program.project import Project

AHEAD = 16
"""Places of a list that a second process is told of before it has answered: enough that it seldom waits."""
_UNCAPPED = Caps()
_halved: ContextVar[bool] = ContextVar("halved", default=False)

Scored = Callable[[Setting, Sequence[int]], Scores]
Work = Callable[[int], Any]
"""Tells a JSON value of a place."""
Share = Callable[[Work, int, Advance], list[Any]]
"""Has work done for so many places, and tells what comes of each, in order."""
Ahead = Callable[[Work, int, Advance], Any]
"""Has so many places worked at by more than one process, for what that leaves in the record and among the heads."""


class Abreast:
    """Scores as `scored` does; the places for which `far` is true are scored by a second process.

    It tells at once all that it knows under a setting: a setting that opens no branch takes one message. An arm's
    questions share no record with another's, so who scores them changes nothing. `broken` (questions that could not
    be graded) and what the second process spends are kept up to date here. Should it be lost, all is done here.
    """

    def __init__(
        self, scored: Scored, far: Sequence[bool], broken: dict[str, str], spending: Spending, record: Record
    ) -> None:
        self._scored = scored
        self._far = far
        self._broken = broken
        self._spending = spending
        self._setting: Setting = {}
        self._told: set[int] = set()
        self._theirs = Scores.none(len(far))
        self._twin: Twin | None = Twin(self._serve, record.close)

    def __call__(self, setting: Setting, places: Sequence[int]) -> Scores:
        if setting != self._setting:
            self._setting, self._told, self._theirs = dict(setting), set(), Scores.none(len(self._far))
        theirs = [place for place in places if self._far[place] and place not in self._told]
        asked = self._ask(setting, theirs)
        lost = self._twin is None
        scores = self._scored(setting, [place for place in places if lost or not self._far[place]])
        if asked and not self._hear():
            scores = self._scored(setting, places)
        return scores if self._twin is None else scores.joined(self._theirs)

    def close(self) -> None:
        """Ends the second process."""
        if self._twin is not None:
            self._twin.close()
        self._twin = None

    def _ask(self, setting: Setting, places: Sequence[int]) -> bool:
        if self._twin is None or not places:
            return False
        try:
            self._twin.send(orjson.dumps([setting, places]))
        except TwinLost:
            self.close()
            return False
        return True

    def _hear(self) -> bool:
        """Takes in what the second process tells; false when it is lost."""
        try:
            if self._twin is None:
                raise TwinLost
            places, columns, broken, calls, usd = orjson.loads(self._twin.receive())
        except TwinLost:
            self.close()
            return False
        for column, values in zip(self._theirs.columns, columns, strict=True):
            column[places] = np.array(values, np.float64)
        self._told.update(places)
        self._broken |= broken
        self._spending.add(calls, usd)
        return True

    def _serve(self, message: bytes) -> bytes:
        """In the second process: the scores that the first asks for, those known besides, and what they cost."""
        setting, places = orjson.loads(message)
        calls, usd = self._spending.calls, self._spending.usd
        scores = self._scored(setting, places)
        known = [n for n, far in enumerate(self._far) if far and not np.isnan(scores.utility[n])]
        told = sorted({*known, *places})
        columns = [column[told].tolist() for column in scores.columns]
        return orjson.dumps([told, columns, self._broken, self._spending.calls - calls, self._spending.usd - usd])


def close_files(program: AgenticRAG, record: Record) -> None:
    """Lets go of what a forked process must not inherit open; each process opens it anew when it needs it."""
    record.close()


def unseen(done: int, of: int) -> None:
    """Progress that nobody is shown."""


def going_up(progress: Advance) -> Advance:
    """Shows only what goes beyond what it showed before: what was worked at ahead is gone through again."""
    most = -1

    def show(done: int, of: int) -> None:
        nonlocal most
        if done > most:
            most = done
            progress(done, of)

    return show


def nothing_ahead(work: Work, n: int, progress: Advance) -> None:
    """Leaves all the work to be done in its turn."""


def alone(work: Work, n: int, progress: Advance) -> list[Any]:
    """Does all the work here, up to the place where a cap is reached."""
    told: list[Any] = []
    try:
        for place in range(n):
            told.append(work(place))
            progress(place + 1, n)
    except BudgetStop:
        pass
    return told


def backwards(work: Work, n: int, progress: Advance) -> None:
    """Does the work from the last place to the first, so that it meets whoever began with the first."""
    for done, place in enumerate(reversed(range(n)), 1):
        work(place)
        progress(done, n)


@contextmanager
def products_by_one_thread() -> Iterator[None]:
    """Inside, matrices are multiplied by one thread: they are small, and threads that wait for the next one keep a
    processor busy that a second process, or a worker, could use."""
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    with threadpool_limits(1, user_api="blas"):
        yield


@contextmanager
def half_the_threads() -> Iterator[None]:
    """Inside, this process and the one it forks embed on half of the threads each: two processes with a thread for
    every processor each get in each other's way."""
    if _halved.get():
        yield
        return
    inside = _halved.set(True)
    before, half = os.environ.get(THREADS), max(1, count_threads() // 2)
    os.environ[THREADS] = str(half)
    try:
        yield
    finally:
        _halved.reset(inside)
        if before is None:
            del os.environ[THREADS]
        else:
            os.environ[THREADS] = before


def in_two(program: AgenticRAG, record: Record, spending: Spending) -> Share:
    """Shares work with a second process, which does every other place; what that spends is added to `spending`.

    Should it be lost, what it has not told is done here.
    """

    def share(work: Work, n: int, progress: Advance) -> list[Any]:
        told: dict[int, Any] = {}
        far = deque(range(1, n, 2))
        unsent = iter(range(1, n, 2))

        def serve(message: bytes) -> bytes:
            calls, usd = spending.calls, spending.usd
            return orjson.dumps([work(int(message)), spending.calls - calls, spending.usd - usd])

        def hear() -> None:
            told[far[0]], calls, usd = orjson.loads(twin.receive())
            far.popleft()
            spending.add(calls, usd)
            send(1)

        def send(most: int) -> None:
            for place in islice(unsent, most):
                twin.send(str(place).encode())

        with half_the_threads():
            close_files(program, record)
            twin = Twin(serve, record.close)
            try:
                send(AHEAD)
                for place in range(0, n, 2):
                    told[place] = work(place)
                    while far and twin.answered:
                        hear()
                    progress(len(told), n)
                while far:
                    hear()
                    progress(len(told), n)
            except TwinLost:
                for place in sorted({*range(n)} - told.keys()):
                    told[place] = work(place)
                    progress(len(told), n)
            finally:
                twin.close()
        return [told[place] for place in range(n)]

    return share


def can_share(program: AgenticRAG, project: Project, caps: Caps) -> bool:
    """True when a second process can do its part unseen: nothing is paid, capped, asked over a network or changing."""
    library = program.runtime.library
    return (
        can_fork()
        and caps == _UNCAPPED
        and not project.settings.qdrant.url
        and answers_here(program)
        and all(library.content_digest(name) for name in program.sources)
    )


def answers_here(program: AgenticRAG) -> bool:
    """True when every predictor's models run in this process, the one for a second draft included."""
    models = [model for _, predictor in program.named_predictors() for model in all_clients_of(program, predictor)]
    return all(is_embedded(model) for model in models)
