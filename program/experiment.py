"""An online A/B test inside a service: which version answers this user, and a log of what came of it."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from uuid import uuid4

from program.answer import Answer
from program.artifact import load
from program.assignment import Assignment
from program.design import ArmDesign, Design, State, read_design, read_state
from program.errors import ExperimentError, IntegrityError
from program.exposures import ExposureLog, pseudonym, unit_key
from program.monitor import Monitor
from program.participant import Participant
from program.reference import resolve
from program.serving import FAILED, Program, Served, measured

LOOK_SECONDS = 60.0
_LOG = logging.getLogger("ragc.experiment")


@dataclass(frozen=True, slots=True)
class Arm:
    """What one unit gets: the arm's `name`, the `version` that answers, and `why` it is that one.

    `why` is "assigned", "shadow", "not included", or how the experiment ended; only the first two are logged.
    Ask `program` as any program: `program(q)`, `await program.aask(q)`, `program.stream(q)`.
    """

    name: str
    version: str
    why: str
    program: Served

    @property
    def request_id(self) -> str:
        """The id to record a later outcome by; empty before the question, and outside the experiment."""
        return self.program.request_id


class Experiment:
    """A running experiment, as one service sees it. Safe from many threads, and across a fork."""

    def __init__(
        self,
        folder: Path,
        design: Design,
        programs: Mapping[str, Program],
        load_arm: Callable[[ArmDesign], Program],
        look_seconds: float,
    ) -> None:
        self.design = design
        self._folder = folder
        self._programs = programs
        self._load_arm = load_arm
        self._control = programs[design.control.name]
        self._assignment = Assignment(design.id, design.weights, design.include)
        self._key = unit_key()
        self._look_seconds = look_seconds
        self._process = self._started()

    @classmethod
    def open(
        cls,
        name: str,
        *,
        artifacts: str | Path | None = None,
        project: str | Path | None = None,
        programs: Mapping[str, Program] | None = None,
        look_seconds: float = LOOK_SECONDS,
    ) -> Experiment:
        """The experiment that `ragc ab start` began, its versions loaded, with the response caches of their
        models off: a cached answer would make the second version to be asked look fast and cheap.

        `artifacts` and `project` are those of `load`; `programs` gives arms that are loaded already (at another
        operating point, say). Every `look_seconds` one of the processes looks whether the experiment must end.
        Raises `ExperimentError` when there is no such experiment or no key for pseudonyms, `IntegrityError` when
        its design or a version changed since the start.
        """
        folder, design = read_design(name, artifacts)
        unit_key()
        given = programs or {}
        if surplus := given.keys() - {arm.name for arm in design.arms}:
            known = ", ".join(arm.name for arm in design.arms)
            raise ExperimentError(f"{design.id} has no arm {', '.join(sorted(surplus))}.", f"Its arms are {known}.")
        load_arm = partial(_loaded, artifacts=artifacts, project=project)
        first = design.arms[:1] if design.shadow else design.arms  # a shadow is loaded when it is first asked
        loaded = {arm.name: load_arm(arm) for arm in first if arm.name not in given}
        return cls(folder, design, {**given, **loaded}, load_arm, look_seconds)

    @contextmanager
    def assign(self, unit: str) -> Iterator[Arm]:
        """The unit's arm: always the same one while the experiment runs. An exception in the block counts as an
        error of its request. Raises `ExperimentError` for an empty unit.
        """
        if not unit:
            raise ExperimentError("The unit is empty.", "Assign by what a user keeps between visits, such as an id.")
        here = self._here()
        here.monitor.look_when_due()
        state = here.state()
        control = self.design.control
        if not state.running:
            arm, why = control, f"{state.status}: {state.reason}"
        elif not self._assignment.includes(unit):
            arm, why = control, "not included"
        elif self.design.shadow:
            arm, why = control, "shadow"
        else:
            arm, why = self.design.arms[self._assignment.arm(unit)], "assigned"
        inside = why in {"assigned", "shadow"}
        expose = partial(self._expose, arm, unit) if inside else _nothing
        served = Served(self._programs[arm.name], self._control, expose, self._finish)
        found = Arm(arm.name, arm.version, why, served)
        try:
            yield found
        except Exception:
            if found.request_id:
                self._write("measured", request=found.request_id, values=FAILED)
            raise

    def record(self, answer: Answer | str, outcome: Mapping[str, float]) -> None:
        """Writes down what came of an answer, now or days later, in this process or another.

        `answer` is the answer, its trace id, or the arm's request id; `outcome` names numbers (True is 1). The last
        value of a name counts. What was answered outside the experiment is not written. Raises `ExperimentError`
        for an outcome that is not a number: text could say who the user is.
        """
        key = answer.trace.id if isinstance(answer, Answer) else answer
        values = {name: _number(name, value) for name, value in outcome.items()}
        if key and values and not self._here().was_outside(key):
            self._write("outcome", request=key, values=values)

    def state(self) -> State:
        """Whether the experiment runs, by what is on disk."""
        return read_state(self._folder)

    def look(self) -> State:
        """Looks now whether the experiment must end, ends it if so, and tells its state."""
        return self._here().monitor.look()

    def drain(self, seconds: float = 60.0) -> bool:
        """Waits until the shadows have answered what is waiting; False when that takes longer."""
        return self._here().drain(seconds)

    def _expose(self, arm: ArmDesign, unit: str) -> str:
        request = uuid4().hex
        unit_hash = pseudonym(self._key, self.design.id, unit)
        logged = self._write("exposure", unit=unit_hash, arm=arm.name, digest=arm.digest, request=request)
        return request if logged else ""

    def _finish(self, request: str, question: str, answer: Answer) -> None:
        here = self._here()
        if not request:
            here.remember_outside(answer.trace.id)
            return
        self._write("measured", request=request, trace=answer.trace.id, values=measured(answer))
        for arm in self.design.challengers if self.design.shadow else ():
            report = partial(self._report_shadow, arm.name)
            here.shadow(arm.name, partial(self._program, arm), report).ask(request, question)

    def _program(self, arm: ArmDesign) -> Program:
        return self._programs.get(arm.name) or self._load_arm(arm)

    def _report_shadow(self, arm: str, request: str, values: Mapping[str, float]) -> None:
        self._write("measured", request=request, shadow=arm, values=values)

    def _write(self, kind: str, **fields: object) -> bool:
        """False when the disk does not take it: a full disk must not keep a user from an answer."""
        try:
            self._here().log.append(kind, **fields)
        except OSError as error:
            _LOG.warning("a row of %s was not logged: %s", self.design.id, error)
            return False
        return True

    def _here(self) -> Participant:
        if self._process.pid != os.getpid():  # forked: its file, its monitor and its threads are the parent's
            self._process = self._started()
        return self._process

    def _started(self) -> Participant:
        log = ExposureLog(self._folder, self.design.id, self.design.seal, self._key)
        return Participant(self._folder, log, Monitor(self._folder, self.design, self._look_seconds))


def _nothing() -> str:
    return ""


def _loaded(arm: ArmDesign, artifacts: str | Path | None, project: str | Path | None) -> Program:
    found = resolve(arm.version, artifacts)
    if found.digest != arm.digest:
        raise IntegrityError(
            f"Arm {arm.name} began as {arm.version} with {arm.digest}, but that is now {found.digest}.",
            "Restore the version, or stop the experiment and start another.",
        )
    program = load(arm.version, artifacts=artifacts, project=project)
    for model in (program.runtime.models.decide, program.runtime.models.write):
        model.cache = False
    program.runtime.models.embedder.encode([arm.version])  # loads it now, not in the first user's latency
    return program


def _number(name: str, value: float) -> float:
    if not isinstance(value, int | float) or not math.isfinite(value):
        raise ExperimentError(
            f"The outcome {name}={str(value)[:40]!r} is not a number.", "Record numbers, or True and False."
        )
    return float(value)
