"""An online experiment on disk: its frozen design, the arm that gives each unit, and how it ended."""

from __future__ import annotations

import hashlib
import re
import time
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from itertools import accumulate
from pathlib import Path
from typing import Literal, get_args

import orjson

from program.errors import ExperimentError, IntegrityError
from program.serve.manifest import digest_of
from program.serve.reference import artifacts_root, is_name
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
_WORD = r"[A-Za-z][A-Za-z0-9_]{0,39}"
_GUARD = re.compile(rf"\s*({_WORD})\s*(<=|>=|<|>)\s*([-+0-9.eE]+)\s*")
_WHOLE = 2**64
_CANONICAL = orjson.OPT_SORT_KEYS | orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE


@dataclass(frozen=True, slots=True)
class ArmDesign:
    """One arm: its letter, the version in full (`support@v7-3fa9c1d2`), that version's digest, its weight."""

    name: str
    version: str
    digest: str
    weight: float


@dataclass(frozen=True, slots=True)
class Guard:
    """What every answer should keep to, such as `latency_s <= 3`; a unit with one answer that does not, breaches."""

    metric: str
    relation: Relation
    bound: float

    @classmethod
    def parse(cls, text: str) -> Guard:
        """Read `latency_s<=3`. Raises `ExperimentError` for anything else."""
        found = _GUARD.fullmatch(text)
        try:
            if found is None:
                raise ValueError(text)
            bound = float(found[3])
        except ValueError as error:
            raise ExperimentError(
                f"{text[:80]!r} is not a guard.", 'Write a measured name, a relation and a number: "latency_s<=3".'
            ) from error
        relation = next(r for r in get_args(Relation) if r == found[2])
        return cls(found[1], relation, bound)

    def breached(self, value: float) -> bool:
        """Tell whether a value does not keep to it."""
        kept = {
            "<=": value <= self.bound,
            ">=": value >= self.bound,
            "<": value < self.bound,
            ">": value > self.bound,
        }
        return not kept[self.relation]

    def __str__(self) -> str:
        return f"{self.metric} {self.relation} {self.bound:g}"


@dataclass(frozen=True, slots=True)
class Design:
    """What was decided before the first user came; never changed after.

    The first arm is the control. `primary` is the outcome that the verdict is on, `include` the share of units that
    take part, `max_units` when to give up, `alpha` the chance of a false verdict that is accepted, over any number
    of looks. `seal` is the digest of all of it.
    """

    id: str
    arms: tuple[ArmDesign, ...]
    primary: str
    guards: tuple[Guard, ...]
    include: float
    max_units: int
    alpha: float
    created_at: str
    seal: str = ""

    @property
    def control(self) -> ArmDesign:
        return self.arms[0]

    @property
    def challengers(self) -> tuple[ArmDesign, ...]:
        return self.arms[1:]

    @property
    def weights(self) -> tuple[float, ...]:
        return tuple(arm.weight for arm in self.arms)

    def content(self) -> bytes:
        """Return the file's bytes, sealed."""
        fields = {"schema": SCHEMA, **asdict(self)}
        fields.pop("seal")
        seal = digest_of(orjson.dumps(fields, option=_CANONICAL))
        return orjson.dumps({**fields, "seal": seal}, option=_CANONICAL)


def draw(experiment: str, salt: str, unit: str) -> int:
    """Return the first eight bytes, big-endian, of SHA-256 of `experiment NUL salt NUL unit`."""
    digest = hashlib.sha256(f"{experiment}\0{salt}\0{unit}".encode(errors="surrogatepass")).digest()
    return int.from_bytes(digest[:8], "big")


@dataclass(frozen=True, slots=True)
class Assignment:
    """Sticky arms for one experiment: a pure function, the same in every process and language.

    `weights` are positive and need not add up to anything; `include` in (0, 1] is the share of units that take
    part. Inclusion and arm are drawn with different salts, so neither tells anything about the other.
    """

    experiment: str
    weights: tuple[float, ...]
    include: float = 1.0
    _bounds: Sequence[int] = field(init=False, repr=False)
    _included: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        parts = [Fraction(str(weight)) for weight in self.weights]
        object.__setattr__(self, "_bounds", [int(_WHOLE * upto / sum(parts)) for upto in accumulate(parts)])
        object.__setattr__(self, "_included", int(_WHOLE * Fraction(str(self.include))))

    def includes(self, unit: str) -> bool:
        """Tell whether the unit takes part at all."""
        return self._included == _WHOLE or draw(self.experiment, INCLUDE, unit) < self._included

    def arm(self, unit: str) -> int:
        """Return the index of the unit's arm."""
        return bisect_right(self._bounds, draw(self.experiment, ARM, unit))


@dataclass(frozen=True, slots=True)
class State:
    """Whether an experiment still runs; if not, why and since when (seconds since 1970)."""

    status: Status = "running"
    reason: str = ""
    at: float = 0.0

    @property
    def running(self) -> bool:
        return self.status == "running"


def experiment_id(name: str) -> str:
    """Return the folder's name: `name`, with `exp-` in front.

    Raises `ExperimentError` when it is not a portable name.
    """
    found = name if name.startswith(PREFIX) else PREFIX + name
    if not is_name(found):
        raise ExperimentError(
            f"{name[:80]!r} cannot be the name of an experiment.",
            "Use at most 59 of a-z, 0-9, '-', '_' and '.', with a letter or digit at both ends.",
        )
    return found


def experiment_folder(name: str, artifacts: str | Path | None = None) -> Path:
    """Return where an experiment is, or would be."""
    return artifacts_root(artifacts) / EXPERIMENTS / experiment_id(name)


def read_design(name: str, artifacts: str | Path | None = None) -> tuple[Path, Design]:
    """Read an experiment's folder and design.

    Raises `ExperimentError` when there is none, `IntegrityError` when the design was changed after the start.
    """
    folder = experiment_folder(name, artifacts)
    try:
        content = (folder / DESIGN).read_bytes()
    except OSError as error:
        raise ExperimentError(
            f"There is no experiment {experiment_id(name)} in {folder.parent}.",
            "Start it with: ragc ab start NAME A=REF B=REF --primary OUTCOME",
        ) from error
    try:
        fields = orjson.loads(content)
        if fields.pop("schema") != SCHEMA:
            raise ValueError("of another schema")
        arms = tuple(ArmDesign(**arm) for arm in fields.pop("arms"))
        guards = tuple(Guard(**guard) for guard in fields.pop("guards"))
        design = Design(arms=arms, guards=guards, **fields)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise IntegrityError(f"{folder / DESIGN} is unreadable.", "Restore it from a copy.") from error
    if design.content() != content:
        raise IntegrityError(
            f"{folder / DESIGN} was changed after the experiment began.",
            "Restore it, and start a new experiment for other weights or guards.",
        )
    return folder, design


def read_state(folder: Path) -> State:
    """Read the state: running, until a file says otherwise."""
    try:
        fields = orjson.loads((folder / STATE).read_bytes())
        return State(fields["status"], fields["reason"], fields["at"])
    except FileNotFoundError:
        return State()
    except (ValueError, KeyError, TypeError) as error:
        raise IntegrityError(f"{folder / STATE} is unreadable.", "Restore it, or stop the experiment again.") from error


def end(folder: Path, status: Status, reason: str) -> State:
    """End an experiment, once: whatever ended it first stays. Every process reads this within a second or so."""
    found = read_state(folder)
    if not found.running:
        return found
    ended = State(status, reason, time.time())
    write_whole(folder / STATE, orjson.dumps(asdict(ended), option=_CANONICAL))
    return ended
