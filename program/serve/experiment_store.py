"""An online experiment on disk: its frozen design, how it ended, and the exposure log that each process appends to.

Rows of the log: `opened` (by which design and with which key, at the head of a process), `exposure` (a unit is about to
be answered by an arm), `measured` (that answer's seconds, tokens, error), `outcome` (what the caller says came of it).
They are joined by request id. No question, no answer and no plain unit is written.
"""

from __future__ import annotations

import hashlib
import hmac
import operator
import os
import re
import socket
import time
import unicodedata
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from itertools import accumulate
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any, Literal, cast

import orjson

from ragc.errors import ExperimentError, IntegrityError
from ragc.serve.reference import Manifest, digest_of, is_name, resolve_noted
from ragc.settings import artifacts_root
from ragc.storage import append_row, write_whole

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
_NAME = r"[A-Za-z][A-Za-z0-9_]{0,39}"
_GUARD = re.compile(rf"\s*({_NAME})\s*(<=|>=|<|>)\s*([-+0-9.eE]+)\s*")
MEASURED = frozenset("error latency_s calls tokens usd fallback answered clarify abstain failed".split())
"""The figures of every answer: whoever serves it measures them, and nobody else says them."""
LARGEST = 1e9  # of an outcome, above or below 0
KEY = "RAGC_UNIT_KEY"
PATTERN = "exposures-*.jsonl"
MIN_KEY = 16
_WHOLE = 2**64
_CANONICAL = orjson.OPT_SORT_KEYS | orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE


@dataclass(frozen=True, slots=True)
class ArmDesign:
    """One arm of an experiment."""

    name: str
    version: str  # the version in full, `support@v7-3fa9c1d2`
    digest: str
    weight: float  # the arm's share of units, relative to the other arms'


@dataclass(frozen=True, slots=True)
class MetricGuard:
    """A bound that every answer should keep to, such as `latency_s <= 3`."""

    metric: str
    relation: Relation
    bound: float

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
    arms: tuple[ArmDesign, ...]  # the arms, the control first
    primary: str  # the outcome that the verdict is on
    guards: tuple[MetricGuard, ...]
    include: float  # the share of units that take part, in (0, 1]
    max_units: int  # the number of units at which the experiment is given up
    alpha: float  # the accepted chance of a false verdict, over any number of looks
    created_at: str  # the time of the start, UTC, ISO 8601
    seal: str = ""  # the digest of all of it

    @property
    def control(self) -> ArmDesign:
        """The first arm."""
        return self.arms[0]

    @property
    def challengers(self) -> tuple[ArmDesign, ...]:
        """All arms but the first."""
        return self.arms[1:]

    @property
    def alike(self) -> str:
        """What is to be said of arms that are one version; empty where there are none."""
        same = [arm.name for arm in self.arms if [one.digest for one in self.arms].count(arm.digest) > 1]
        return f"Arms {', '.join(same)} are the same version (an A/A test): a difference is chance." if same else ""

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


def is_name_of_outcome(name: object) -> bool:
    """Tell whether an outcome may have that name, as a guard has it."""
    return isinstance(name, str) and re.fullmatch(_NAME, name) is not None


def require_outcome(name: str, value: float) -> float:
    """Return an outcome's value. Raises `ExperimentError` for what nobody may record."""
    if not is_name_of_outcome(name):
        named = isinstance(name, str) and name.strip()
        what = f"{name[:40]!r} is no name of an outcome" if named else "An outcome has no name"
        mend = 'Name what is counted in letters, digits and underscores: outcome={"resolved": True}.'
        raise ExperimentError(f"{what}.", mend)
    if name in MEASURED:
        raise ExperimentError(f"{name} is measured where the answer is given.", "Record outcomes of your own.")
    if not isinstance(value, int | float) or not abs(value) <= LARGEST:
        what = f"The outcome {name}={str(value)[:40]!r} is not a number within {LARGEST:g}."
        raise ExperimentError(what, "Record numbers, or True and False.")
    return float(value)


def draw_number(experiment: str, salt: str, unit: str) -> int:
    """Return eight bytes, big-endian, of SHA-256 of `experiment NUL salt NUL unit`, the unit in NFC."""
    return int.from_bytes(hashlib.sha256(_encode_unit(f"{experiment}\0{salt}", unit)).digest()[:8], "big")


def _encode_unit(context: str, unit: str) -> bytes:
    """Return the bytes of a unit that are hashed: the same for all Unicode spellings of it."""
    return f"{context}\0{unicodedata.normalize('NFC', f'{unit}')}".encode(errors="surrogatepass")


def is_included(experiment: str, include: float, unit: str) -> bool:
    """Tell whether a unit takes part; `include`, in (0, 1], is the share that does.

    Drawn with another salt than the arm, so neither tells anything of the other.
    """
    return draw_number(experiment, INCLUDE, unit) < _WHOLE * Fraction(str(include))


def choose_arm(experiment: str, weights: Sequence[float], unit: str) -> int:
    """Return the index of a unit's arm, the same in every process and language; `weights` are of any sum."""
    parts = [Fraction(str(weight)) for weight in weights]
    bounds = [int(_WHOLE * upto / sum(parts)) for upto in accumulate(parts)]
    return bisect_right(bounds, draw_number(experiment, ARM, unit))


@dataclass(frozen=True, slots=True)
class ExperimentState:
    """Whether an experiment still runs."""

    status: Status = "running"
    reason: str = ""
    at: float = 0.0  # the time of its end, in seconds since 1970

    @property
    def running(self) -> bool:
        """True until it ends."""
        return self.status == "running"


def experiment_folder(name: str, artifacts: str | Path | None = None) -> Path:
    """Return an experiment's folder. Raises `ExperimentError` for an odd name."""
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
        mend = "Start it with: ragc experiment start NAME A=REF B=REF --primary OUTCOME"
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


def find_arm(arm: ArmDesign, artifacts: str | Path | None = None) -> Manifest:
    """Return an arm's version. Raises `VersionError` where it was deleted."""
    mend = "stop the experiment and start another."
    found = resolve_noted(f"Arm {arm.name} began as", arm.version, artifacts, mend)
    if found.digest != arm.digest:
        what = f"Arm {arm.name} began as {arm.version} with {arm.digest}, but that is now {found.digest}."
        raise IntegrityError(what, f"Restore the version, or {mend}")
    return found


def read_state(folder: Path) -> ExperimentState:
    """Read the state: running, until a file says otherwise."""
    try:
        return ExperimentState(**orjson.loads((folder / STATE).read_bytes()))
    except FileNotFoundError:
        return ExperimentState()
    except (ValueError, KeyError, TypeError) as error:
        raise IntegrityError.unreadable(folder / STATE, "Restore it, or stop the experiment again.") from error


def end_experiment(folder: Path, status: Status, reason: str) -> ExperimentState:
    """End an experiment, once: whatever ended it first stays."""
    found = read_state(folder)
    if found.running:
        found = ExperimentState(status, reason, time.time())
        write_whole(folder / STATE, orjson.dumps(asdict(found), option=_CANONICAL))
    return found


def read_unit_key() -> bytes:
    """Read the secret of the pseudonyms. Raises `ExperimentError` for none."""
    key = os.environ.get(KEY, "")
    if len(key) < MIN_KEY:
        what = f"{KEY} has {len(key)} characters, at least {MIN_KEY} are needed" if key else f"{KEY} is not set"
        raise ExperimentError(
            f"{what}: users would be logged under a name that can be guessed.",
            f"Set it to one secret on every host, for example: export {KEY}=$(openssl rand -hex 32)",
        )
    return key.encode()


def pseudonymize_unit(key: bytes, experiment: str, unit: str) -> str:
    """Return a unit's pseudonym in an experiment: 32 hexadecimal digits."""
    return hmac.digest(key, _encode_unit(experiment, unit), "sha256")[:16].hex()


def make_request_id(key: bytes, experiment: str) -> str:
    """Return a new request's id, which every host that has the key knows by it.

    It is 32 hexadecimal digits.
    """
    drawn = os.urandom(8).hex()
    return drawn + _sign_request(key, experiment, drawn)


def is_request_id(key: bytes, experiment: str, request: str) -> bool:
    """Tell whether an id was made for a request of an experiment."""
    return hmac.compare_digest(_sign_request(key, experiment, request[:16]).encode(), request[16:].encode())


def _sign_request(key: bytes, experiment: str, drawn: str) -> str:
    return hmac.digest(key, _encode_unit(f"request\0{experiment}", drawn), "sha256")[:8].hex()


class ExposureLog:
    """The files of an experiment on a host, one a process, in which neither threads nor a kill mix rows.

    The first row holds eight hexadecimal digits by which two hosts' keys can be told apart.
    """

    def __init__(self, folder: Path, experiment: str, seal: str, key: bytes) -> None:
        self._host = re.sub(r"[^a-z0-9.-]", "-", socket.gethostname().lower()) or "host"
        self._folder, self._experiment = folder, experiment
        self._opened = {"design": seal, "key": hmac.digest(key, b"ragc exposure log", "sha256")[:4].hex()}
        self._begun_by = 0  # the process whose file holds its first row

    def append(self, kind: str, **fields: Any) -> None:
        """Write one row with the time. Raises `OSError` when the disk does not take it."""
        process = os.getpid()  # another after a fork
        path = self._folder / f"exposures-{self._host}-{process}.jsonl"
        if self._begun_by != process:  # a process id comes again, perhaps with another key
            path.touch(0o640)
            self._write_row(path, "opened", self._opened)
            self._begun_by = process
        self._write_row(path, kind, fields)

    def holds(self, trace: str) -> bool:
        """Tell whether any process of this host has logged an answer by its trace id."""
        needle = b'"trace":' + orjson.dumps(trace)
        for path in filter(os.path.getsize, log_files(self._folder)):
            with path.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as content:
                if content.find(needle) >= 0:
                    return True
        return False

    def _write_row(self, path: Path, kind: str, fields: Mapping[str, Any]) -> None:
        append_row(path, {"kind": kind, "ts": round(time.time(), 3), "experiment": self._experiment, **fields})


def log_files(folder: Path) -> list[Path]:
    """List the exposure files of a folder, one a process."""
    return sorted(folder.glob(PATTERN))
