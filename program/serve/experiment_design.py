"""An online experiment on disk: its frozen design, the arm that gives each unit, and how it ended."""

from __future__ import annotations

import hashlib
import operator
import re
import time
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from itertools import accumulate
from pathlib import Path
from typing import Literal, cast

import orjson

from program.errors import ExperimentError, IntegrityError
from program.serve.manifest import digest_of
from program.serve.reference import is_name
from program.settings import artifacts_root
from program.storage import write_whole

DESIGN = "experiment.json"
STATE = "state.json"
EXPERIMENTS = "experiments"
PREFIX = "exp-"
SCHEMA = 2
ARM = "arm"
INCLUDE = "include"
Status = Literal["running", "halted", "stopped", "complete"]
Relation = Literal["<=", ">=", "<", ">"]
_HOLDS = {"<=": operator.le, ">=": operator.ge, "<": operator.lt, ">": operator.gt}
_GUARD = re.compile(r"\s*([A-Za-z][A-Za-z0-9_]{0,39})\s*(<=|>=|<|>)\s*([-+0-9.eE]+)\s*")
_WHOLE = 2**64
_CANONICAL = orjson.OPT_SORT_KEYS | orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE


@dataclass(frozen=True, slots=True)
class ArmDesign:
    """One arm of an experiment."""

    name: str
    """The letter of the arm."""
    version: str
    """The version in full, `support@v7-3fa9c1d2`."""
    digest: str
    """The digest of that version."""
    weight: float
    """The arm's share of units, relative to the other arms'."""


@dataclass(frozen=True, slots=True)
class MetricGuard:
    """What every answer should keep to, such as `latency_s <= 3`; a unit with one answer that does not, breaches."""

    metric: str
    """The name of a measured figure."""
    relation: Relation
    """The relation that holds between figure and bound."""
    bound: float
    """The bound."""

    @classmethod
    def parse(cls, text: str) -> MetricGuard:
        """Read `latency_s<=3`. Raises `ExperimentError` for anything else."""
        try:
            metric, relation, bound = _GUARD.fullmatch(text).groups()  # type: ignore[union-attr]
            return cls(metric, cast(Relation, relation), float(bound))
        except (AttributeError, ValueError) as error:
            mend = 'Write a measured name, a relation and a number: "latency_s<=3".'
            raise ExperimentError(f"{text[:80]!r} is not a guard.", mend) from error

    def breached(self, value: float) -> bool:
        """Tell whether a value does not keep to the guard."""
        return not _HOLDS[self.relation](value, self.bound)

    def __str__(self) -> str:
        return f"{self.metric} {self.relation} {self.bound:g}"


@dataclass(frozen=True, slots=True)
class Design:
    """What was decided before the first user came; never changed after."""

    id: str
    """The name of the experiment's folder."""
    arms: tuple[ArmDesign, ...]
    """The arms, the control first."""
    primary: str
    """The outcome that the verdict is on."""
    guards: tuple[MetricGuard, ...]
    """What every answer should keep to."""
    include: float
    """The share of units that take part, in (0, 1]."""
    max_units: int
    """The number of units at which the experiment is given up."""
    alpha: float
    """The accepted chance of a false verdict, over any number of looks."""
    created_at: str
    """The time of the start, UTC, ISO 8601."""
    seal: str = ""
    """The digest of all of it."""

    @property
    def control(self) -> ArmDesign:
        """The first arm."""
        return self.arms[0]

    @property
    def challengers(self) -> tuple[ArmDesign, ...]:
        """All arms but the first."""
        return self.arms[1:]

    @property
    def weights(self) -> tuple[float, ...]:
        """The weights of the arms, in order."""
        return tuple(arm.weight for arm in self.arms)

    def content(self) -> bytes:
        """Return the content of the design's file, sealed."""
        fields = {"schema": SCHEMA, **asdict(self)}
        fields.pop("seal")
        seal = digest_of(orjson.dumps(fields, option=_CANONICAL))
        return orjson.dumps({**fields, "seal": seal}, option=_CANONICAL)


def draw_number(experiment: str, salt: str, unit: str) -> int:
    """Return the first eight bytes, big-endian, of SHA-256 of `experiment NUL salt NUL unit`."""
    digest = hashlib.sha256(f"{experiment}\0{salt}\0{unit}".encode(errors="surrogatepass")).digest()
    return int.from_bytes(digest[:8], "big")


@dataclass(frozen=True, slots=True)
class Assignment:
    """Sticky arms for one experiment: a pure function, the same in every process and language.

    Inclusion and arm are drawn with different salts, so neither tells anything about the other.
    """

    experiment: str
    """The id of the experiment."""
    weights: tuple[float, ...]
    """The weights of the arms: positive, of any sum."""
    include: float = 1.0
    """The share of units that take part, in (0, 1]."""
    _bounds: Sequence[int] = field(init=False, repr=False)
    _included: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        parts = [Fraction(str(weight)) for weight in self.weights]
        object.__setattr__(self, "_bounds", [int(_WHOLE * upto / sum(parts)) for upto in accumulate(parts)])
        object.__setattr__(self, "_included", int(_WHOLE * Fraction(str(self.include))))

    def includes(self, unit: str) -> bool:
        """Tell whether the unit takes part at all."""
        return self._included == _WHOLE or draw_number(self.experiment, INCLUDE, unit) < self._included

    def arm(self, unit: str) -> int:
        """Return the index of the unit's arm."""
        return bisect_right(self._bounds, draw_number(self.experiment, ARM, unit))


@dataclass(frozen=True, slots=True)
class ExperimentState:
    """Whether an experiment still runs."""

    status: Status = "running"
    """How it stands."""
    reason: str = ""
    """Why it ended."""
    at: float = 0.0
    """When it ended, in seconds since 1970."""

    @property
    def running(self) -> bool:
        """True until it ends."""
        return self.status == "running"


def experiment_folder(name: str, artifacts: str | Path | None = None) -> Path:
    """Return where an experiment is, or would be. Raises `ExperimentError` for a name that is not portable."""
    found = name if name.startswith(PREFIX) else PREFIX + name
    if not is_name(found):
        raise ExperimentError(
            f"{name[:80]!r} cannot be the name of an experiment.",
            "Use at most 59 of a-z, 0-9, '-', '_' and '.', with a letter or digit at both ends.",
        )
    return artifacts_root(artifacts) / EXPERIMENTS / found


def read_design(name: str, artifacts: str | Path | None = None) -> tuple[Path, Design]:
    """Read an experiment's folder and design.

    Raises `ExperimentError` when there is none, `IntegrityError` when the design was changed after the start.
    """
    folder = experiment_folder(name, artifacts)
    try:
        content = (folder / DESIGN).read_bytes()
    except OSError as error:
        mend = "Start it with: ragc ab start NAME A=REF B=REF --primary OUTCOME"
        raise ExperimentError(f"There is no experiment {folder.name} in {folder.parent}.", mend) from error
    try:
        fields = orjson.loads(content)
        if fields.pop("schema") != SCHEMA:
            raise ValueError("of another schema")
        arms = tuple(ArmDesign(**arm) for arm in fields.pop("arms"))
        guards = tuple(MetricGuard(**guard) for guard in fields.pop("guards"))
        design = Design(arms=arms, guards=guards, **fields)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise IntegrityError.unreadable(folder / DESIGN) from error
    if design.content() != content:
        raise IntegrityError(
            f"{folder / DESIGN} was changed after the experiment began.",
            "Restore it, and start a new experiment for other weights or guards.",
        )
    return folder, design


def read_state(folder: Path) -> ExperimentState:
    """Read the state: running, until a file says otherwise."""
    try:
        return ExperimentState(**orjson.loads((folder / STATE).read_bytes()))
    except FileNotFoundError:
        return ExperimentState()
    except (ValueError, KeyError, TypeError) as error:
        raise IntegrityError.unreadable(folder / STATE, "Restore it, or stop the experiment again.") from error


def end_experiment(folder: Path, status: Status, reason: str) -> ExperimentState:
    """End an experiment, once: whatever ended it first stays. Every process reads this within a second or so."""
    found = read_state(folder)
    if not found.running:
        return found
    ended = ExperimentState(status, reason, time.time())
    write_whole(folder / STATE, orjson.dumps(asdict(ended), option=_CANONICAL))
    return ended
