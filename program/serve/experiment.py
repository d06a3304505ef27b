"""An online A/B test inside a service: the version that answers a unit, and a log of what came of it."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dspy

from ragc.answer import Answer, Outcome, StoppedBy
from ragc.errors import ExperimentError, IntegrityError
from ragc.serve import experiment_store as store
from ragc.serve.artifact import VERSION_DIGEST
from ragc.serve.follow import Proxy, Reopened
from ragc.serve.opening import load
from ragc.storage import keep_last

if TYPE_CHECKING:
    from ragc.serve.factory import Factory

REMEMBERED = 10_000  # trace ids that are kept in mind; the log of all processes holds the others
_LOG = logging.getLogger("ragc.experiment")


class LoggedProgram(Proxy):
    """A program that logs its exposure before and its figures after it answers.

    Without a `unit`, and where nothing can be logged, the control answers. `request_id` is that of the last question.
    """

    def __init__(self, experiment: Experiment, arm: store.ArmDesign, unit: str) -> None:
        self._experiment, self._arm, self._unit = experiment, arm, unit
        self.request_id = ""
        self.answers: list[tuple[Any, str]] = []  # each with the id of its request

    def choose_program(self) -> Any:
        """Log the exposure, and return the arm's program."""
        self.request_id = self._experiment.log_exposure(self._arm, self._unit) if self._unit else ""
        arm = self._arm if self.request_id else self._experiment.design.control
        return self._experiment.programs[arm.name]

    def note_answer(self, answer: Any, seconds: float) -> Any:
        """Return an answer; what it took is logged."""
        self._experiment.log_answer(self.request_id, answer, seconds)
        self.answers.append((answer, self.request_id))
        return answer


@dataclass(frozen=True, slots=True)
class AssignedArm:
    """The arm that one unit gets."""

    name: str  # the letter of the arm
    version: str  # the version that answers
    why: str  # why it is that one: "assigned", "not included", or how the experiment ended; only the first is logged
    program: LoggedProgram
    """The program to ask: `program(q)`, `await program.aask(q)`, `program.stream(q)`; one of your own by its inputs."""

    @property
    def request_id(self) -> str:
        """The id to record a later outcome by; empty before the question."""
        return self.program.request_id


class Experiment:
    """A running experiment in a service, safe from threads and across a fork."""

    def __init__(self, folder: Path, design: store.Design, programs: Mapping[str, Any]) -> None:
        self.design, self.programs = design, programs
        self._folder = folder
        self._key = store.read_unit_key()
        self._log = store.ExposureLog(folder, design.id, design.seal, self._key)
        self._seen: OrderedDict[str, bool] = OrderedDict()  # trace ids of answers here, and whether they were logged
        self._asking: set[LoggedProgram] = set()  # of the arms whose `with` has not ended
        self._known = {design.primary, *(guard.metric for guard in design.guards)}

    @classmethod
    def open(
        cls,
        name: str,
        make: Factory | Mapping[str, Factory] | None = None,
        *,
        artifacts: str | Path | None = None,
        project: str | Path | None = None,
        programs: Mapping[str, Any] | None = None,
    ) -> Experiment:
        """Open the experiment that `ragc experiment start` began, and load its versions.

        `make` makes a program of your own code, as for `load`; by arm where they differ. `programs` gives arms that
        `load` loaded already. Raises `ExperimentError` when there is no such experiment, no key for pseudonyms, or a
        program is of another version than its arm, `IntegrityError` when its design or a version changed since.
        """
        folder, design = store.read_design(name, artifacts)
        store.read_unit_key()
        given = programs or {}
        known = [arm.name for arm in design.arms]
        if surplus := sorted(given.keys() - set(known)):
            raise ExperimentError(f"{design.id} has no arm {', '.join(surplus)}.", f"Its arms are {', '.join(known)}.")
        for arm in design.arms:
            if arm.name in given and getattr(given[arm.name], VERSION_DIGEST, "") != arm.digest:
                what = f"The program given for arm {arm.name} is not {arm.version}."
                raise ExperimentError(what, f'Give what load("{arm.version}", ...) returns, or leave it out.')
        makers = make if isinstance(make, Mapping) else dict.fromkeys(known, make)
        loaded = {
            arm.name: _load_arm(arm, makers.get(arm.name), artifacts, project)
            for arm in design.arms
            if arm.name not in given
        }
        return cls(folder, design, {**given, **loaded})

    @contextmanager
    def assign(self, unit: str) -> Iterator[AssignedArm]:
        """Give a unit its arm: always the same one while the experiment runs.

        An exception in the block, but one of `record`, counts as an error of its request. Raises `ExperimentError` for
        an empty unit.
        """
        if not unit:
            raise ExperimentError("The unit is empty.", "Assign by what a user keeps between visits, such as an id.")
        state = self.state()
        arm, why = self.design.control, "not included"
        if not state.running:
            why = f"{state.status}: {state.reason}"
        elif store.is_included(self.design.id, self.design.include, unit):
            arm, why = self.design.arms[store.choose_arm(self.design.id, self.design.weights, unit)], "assigned"
        program = LoggedProgram(self, arm, unit if why == "assigned" else "")
        self._asking.add(program)
        try:
            yield AssignedArm(arm.name, arm.version, why, program)
        except Exception as error:
            if program.request_id and not isinstance(error, ExperimentError):
                self._write_row("measured", request=program.request_id, values={"error": 1.0})
            raise
        finally:
            self._asking.discard(program)

    def record(self, answer: Any, outcome: Mapping[str, float]) -> None:
        """Write down the outcome of an answer, now or later, in any process.

        `answer` is the answer (of a program of your own: only within its `with`), its trace id, or the arm's request
        id; `outcome` names numbers (True is 1). The last value of a name counts. What was answered outside the
        experiment is not written. Raises `ExperimentError` for an unknown id, for a name that no guard could have or
        that is measured here, and for what is not a number within 1e9: text could say who the user is.
        """
        key = answer.trace.id if isinstance(answer, Answer) else answer
        if not isinstance(key, str):
            asked = (pair for program in [*self._asking] for pair in program.answers)
            key = next((request for one, request in asked if one is answer), repr(answer))
        values = {name: store.require_outcome(name, value) for name, value in outcome.items()}
        for name in sorted(values.keys() - self._known):
            self._known.add(name)
            what = "%s: the outcome %s is reported, but it is neither the primary one (%s) nor guarded"
            _LOG.warning(what, self.design.id, name, self.design.primary)
        if key == "" or not values or self._seen.get(key) is False:
            return
        if not self.knows(key):
            what = f"{self.design.id} has logged no request {key[:40]!r}."
            mend = "Record by arm.request_id, or by an answer: that of a program of your own only within its `with`."
            raise ExperimentError(what, mend)
        self._write_row("outcome", request=key, values=values)

    def knows(self, key: object) -> bool:
        """Tell whether an id is a request's, of any host, or a logged answer's here."""
        if not (isinstance(key, str) and key.isascii() and key.isalnum()):
            return False
        return store.is_request_id(self._key, self.design.id, key) or self._seen.get(key, False) or self._log.holds(key)

    def state(self) -> store.ExperimentState:
        """Read whether the experiment runs; a state that cannot be read counts as halted."""
        try:
            return store.read_state(self._folder)
        except (OSError, IntegrityError) as error:
            return store.ExperimentState("halted", str(error))

    def log_exposure(self, arm: store.ArmDesign, unit: str) -> str:
        """Log an exposure and return its request's id; "" when the disk fails."""
        request = store.make_request_id(self._key, self.design.id)
        unit_hash = store.pseudonymize_unit(self._key, self.design.id, unit)
        logged = self._write_row("exposure", unit=unit_hash, arm=arm.name, digest=arm.digest, request=request)
        return request if logged else ""

    def log_answer(self, request: str, answer: Any, seconds: float) -> None:
        """Log what an answer took, under its request's id."""
        trace = {"trace": answer.trace.id} if isinstance(answer, Answer) else {}
        keep_last(self._seen, dict.fromkeys(trace.values(), bool(request)), REMEMBERED)
        if request:
            self._write_row("measured", request=request, **trace, values=measure_answer(answer, seconds))

    def _write_row(self, kind: str, **fields: object) -> bool:
        """Write a row, or return False: a full disk must not keep a user from an answer."""
        try:
            self._log.append(kind, **fields)
        except OSError as error:
            _LOG.warning("a row of %s was not logged: %s", self.design.id, error)
            return False
        return True


def measure_answer(answer: Any, seconds: float) -> dict[str, float]:
    """Return the figures of an answer by the names that guards and reports use.

    Of a program of your own they are seconds and, where DSPy tracks usage, tokens.
    """
    if not isinstance(answer, Answer):
        tracked = answer.get_lm_usage() if isinstance(answer, dspy.Prediction) else None
        tokens = {"tokens": float(sum(one.get("total_tokens", 0) for one in tracked.values()))} if tracked else {}
        return {"error": 0.0, "latency_s": round(seconds, 4), **tokens}
    usage = answer.usage
    return {
        "error": float(answer.outcome is Outcome.FAILED),
        "latency_s": round(usage.seconds, 4),
        "calls": float(usage.calls),
        "tokens": float(usage.tokens_in + usage.tokens_out),
        "usd": usage.usd,
        "fallback": float(answer.stopped_by is StoppedBy.FALLBACK),
        **{outcome.value: float(answer.outcome is outcome) for outcome in Outcome},
    }


def _load_arm(
    arm: store.ArmDesign, make: Factory | None, artifacts: str | Path | None, project: str | Path | None
) -> Any:
    """Return an arm's program; a project's is loaded anew when the index of its documents changed."""

    def load_version() -> Any:
        store.find_arm(arm, artifacts)
        if make is not None:
            return load(arm.version, make, artifacts=artifacts)
        program = load(arm.version, artifacts=artifacts, project=project)
        program.runtime.models.embedder.encode([arm.version])  # loads it now, not in the first user's latency
        return program

    return Reopened(arm.version, load_version) if make is None else load_version()
