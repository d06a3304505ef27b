"""An arm's program as its caller sees it, with what is measured of each answer; and the shadow that runs beside it."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any, Protocol

from program.answer import Answer, Outcome, StoppedBy

WAITING = 32
"""Questions that may wait for a shadow; more are dropped and counted, so that a slow shadow holds nothing up."""
_LOG = logging.getLogger("ragc.experiment")


class Program(Protocol):
    """What an experiment needs of a program; `AgenticRAG` has it."""

    def __call__(self, question: str) -> Answer: ...

    async def aask(self, question: str) -> Answer: ...

    def stream(self, question: str) -> AsyncIterator[Any]: ...


class Served:
    """A program that logs its exposure before it answers, and what the answer took after.

    `expose` returns the new request's id, or "" when nothing is logged: then `control` answers. `finish` is given
    the id, the question and the answer. `request_id` is that of the last question.
    """

    def __init__(
        self, program: Program, control: Program, expose: Callable[[], str], finish: Callable[[str, str, Answer], None]
    ) -> None:
        self._program = program
        self._control = control
        self._expose = expose
        self._finish = finish
        self.request_id = ""

    def __call__(self, question: str) -> Answer:
        answer = self._begin()(question)
        self._finish(self.request_id, question, answer)
        return answer

    async def aask(self, question: str) -> Answer:
        """The answer, awaited."""
        answer = await self._begin().aask(question)
        self._finish(self.request_id, question, answer)
        return answer

    async def stream(self, question: str) -> AsyncIterator[Any]:
        """The program's events; the answer comes last."""
        async for event in self._begin().stream(question):
            if isinstance(event, Answer):
                self._finish(self.request_id, question, event)
            yield event

    def _begin(self) -> Program:
        self.request_id = self._expose()
        return self._program if self.request_id else self._control


class Shadow:
    """Answers the questions it is given beside the caller, in a thread of its own; what goes wrong stays here.

    `open_program` is called in that thread, at the first question. `report` is given the request's id and what
    was measured: an error, or a question dropped because too many were waiting, is a measurement too.
    """

    def __init__(self, open_program: Callable[[], Program], report: Callable[[str, dict[str, float]], None]) -> None:
        self._open = open_program
        self._report = report
        self._program: Program | None = None
        self._waiting: queue.Queue[tuple[str, str] | threading.Event] = queue.Queue(WAITING)
        threading.Thread(target=self._work, name="ragc-shadow", daemon=True).start()

    def ask(self, request: str, question: str) -> None:
        """Puts a question in the queue, and returns at once."""
        try:
            self._waiting.put_nowait((request, question))
        except queue.Full:
            self._report(request, {"dropped": 1.0})

    def drain(self, seconds: float) -> bool:
        """Waits until what is waiting now is answered; False when that takes longer."""
        done = threading.Event()
        try:
            self._waiting.put(done, timeout=seconds)
        except queue.Full:
            return False
        return done.wait(seconds)

    def _work(self) -> None:
        while True:
            item = self._waiting.get()
            if isinstance(item, threading.Event):
                item.set()
                continue
            request, question = item
            try:
                self._program = self._program or self._open()
                values = measured(self._program(question))
            except BaseException:  # a shadow may do nothing to its host, SystemExit included
                _LOG.warning("the shadow failed on request %s", request, exc_info=True)
                values = FAILED
            self._report(request, values)


FAILED = {"error": 1.0}


def measured(answer: Answer) -> dict[str, float]:
    """What an answer took and how it ended, as numbers under the names that guards and reports use."""
    usage = answer.usage
    return {
        "error": 0.0,
        "latency_s": round(usage.seconds, 4),
        "calls": float(usage.calls),
        "tokens": float(usage.tokens_in + usage.tokens_out),
        "usd": usage.usd,
        "fallback": float(answer.stopped_by is StoppedBy.FALLBACK),
        **{outcome.value: float(answer.outcome is outcome) for outcome in Outcome},
    }
