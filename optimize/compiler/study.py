"""A study on disk: its notes and trials in Optuna's storage, and the caps on what it may spend."""

from __future__ import annotations

import contextlib
import json
import logging
import re
import threading
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

import optuna
from optuna.exceptions import DuplicatedStudyError, ExperimentalWarning, StorageInternalError
from optuna.storages import BaseStorage, JournalStorage, RDBStorage
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock
from optuna.trial import FrozenTrial
from sqlalchemy.exc import ArgumentError, DBAPIError

from optimize.registry.diff import flatten
from program.errors import BudgetStop, RecordError, SettingsError, StudyError
from program.knowledge.project import Project

PATIENCE, RETRY_EVERY = 60.0, 0.5  # seconds for which a database that is locked or away is tried again, and how often
KEPT_EVERY = 0.5  # seconds between two times that free calls and seconds are booked


class Share:
    """Shares of each cap that may be gone after a stage."""

    LAYOUTS, CANDIDATES, FIRST, SWEEP, SEARCH, CHOICE = 0.15, 0.2, 0.35, 0.5, 0.55, 0.75


class Note:
    """Notes of a study: conditions, the version sealed, caps, settings wanted, what is searched, knobs swept."""

    IDENTITY, FINISHED, CAPS, TRIALS, PLANNED, SWEPT = "identity", "finished", "caps", "trials", "planned", "swept"


@dataclass(frozen=True, slots=True)
class Spent:
    """Calls, US dollars (of calls under way the most they may cost) and seconds of a study."""

    calls: int = 0
    usd: float = 0.0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Caps:
    """Hard caps of a compile; None is no cap. Calls are requests to a model that writes or is paid."""

    calls: int | None = None
    usd: float | None = None
    seconds: float | None = None

    def reduce_to(self, share: float) -> Caps:
        """Return that share of each cap."""
        calls, usd, seconds = ((None if cap is None else cap * share) for cap in (self.calls, self.usd, self.seconds))
        return Caps(None if calls is None else int(calls), usd, seconds)

    def fill_from(self, noted: Mapping[str, Any]) -> Caps:
        """Return these caps, with the noted ones where there is none."""
        return Caps(**{name: noted.get(name) if cap is None else cap for name, cap in asdict(self).items()})


class Ledger:
    """The spending of a study, booked in memory; a store books it on disk for several processes."""

    def __init__(self) -> None:
        self._spent = Spent()

    def reserve_call(self, study: str, usd: float, caps: Caps) -> bool:
        """Book a call of at most `usd` US dollars, unless that would pass a cap."""
        full = caps.calls is not None and self._spent.calls >= caps.calls
        if full or (caps.usd is not None and self._spent.usd + usd > caps.usd):
            return False
        self.book_spending(study, 1, usd)
        return True

    def book_spending(self, study: str, calls: int = 0, usd: float = 0.0, seconds: float = 0.0) -> None:
        """Add to what was spent."""
        was = self._spent
        self._spent = Spent(was.calls + calls, was.usd + usd, was.seconds + seconds)

    def read_spending(self, study: str) -> Spent:
        """Return what was spent."""
        return self._spent


class Spending:
    """Calls, US dollars and seconds of a compile, checked against caps before each call. Safe from many threads.

    `join_study` books them for a study: what it spent before counts, and what its other processes spend. `tripped`
    names the cap that was reached last; unless it `pays`, every call but to a model of this process is past a cap.
    """

    def __init__(self, caps: Caps = Caps()) -> None:
        self.caps = caps
        self.pays = True
        self.calls = 0
        self.usd = 0.0
        self.tripped = ""
        self._ledger = Ledger()
        self._study = ""
        self._leads = False
        self._started = time.monotonic()
        self._before = 0.0  # seconds of the study before this process joined it
        self._booked_seconds = 0.0
        self._booked_at = 0.0
        self._unbooked = 0
        self._under_way = 0
        self._changed = threading.Condition()

    @property
    def seconds(self) -> float:
        return self._before + time.monotonic() - self._started

    @property
    def money(self) -> bool:
        """True when money is capped."""
        return self.caps.usd is not None

    def join_study(self, ledger: Ledger, study: str, leads: bool) -> None:
        """Book for a study from now on, with what was spent here before."""
        before = self._ledger.read_spending(self._study)
        self._ledger, self._study, self._leads = ledger, study, leads
        self._before = ledger.read_spending(study).seconds
        ledger.book_spending(study, before.calls, before.usd)
        self.book()

    def pay_nothing(self) -> None:
        """Refuse calls, as in a process that shares the work of the one that pays; free ones are booked."""
        self.caps, self.pays = replace(self.caps, seconds=None), False
        self._leads, self._unbooked = False, 0

    def book(self, every: float = 0.0) -> None:
        """Book what the study does not know of yet, and read its total."""
        if time.monotonic() - self._booked_at < every:
            return
        with self._changed:
            self._booked_at = time.monotonic()
            own = time.monotonic() - self._started
            seconds = own - self._booked_seconds if self._leads else 0.0
            self._ledger.book_spending(self._study, self._unbooked, 0.0, seconds)
            self._unbooked, self._booked_seconds = 0, own
            total = self._ledger.read_spending(self._study)
            self.calls, self.usd = total.calls, total.usd

    def check(self) -> None:
        """Raise `BudgetStop` when the time is up."""
        if self.caps.seconds is not None and self.seconds >= self.caps.seconds:
            raise self._stop_at("seconds")

    def before_call(self, usd: float = 0.0, here: bool = False) -> None:
        """Count a call of at most `usd` US dollars.

        Waits for calls under way, which may cost less than reserved. Raises `BudgetStop` when it would pass a cap.
        """
        if not (self.pays or (here and self.caps.calls is None)):
            raise BudgetStop("calls")
        while True:
            self.check()
            with self._changed:
                if here and self.caps.calls is None:
                    self._unbooked += 1
                elif not self._ledger.reserve_call(self._study, usd, self.caps):
                    total = self._ledger.read_spending(self._study)
                    if self.caps.calls is not None and total.calls >= self.caps.calls:
                        raise self._stop_at("calls")
                    if not self._under_way:
                        raise self._stop_at("usd")
                    self._changed.wait()
                    continue
                self._under_way += 1
                self.calls += 1
                return

    def after_call(self, expected: float, usd: float, sent: bool = True, here: bool = False) -> None:
        """Book the cost of a call in place of what it might have cost."""
        with self._changed:
            self._under_way -= 1
            self.calls -= not sent
            self.usd += usd
            if expected or usd or not sent:
                self._ledger.book_spending(self._study, 0 if sent else -1, usd - expected)
            self._changed.notify_all()

    def _stop_at(self, cap: str) -> BudgetStop:
        self.tripped = cap
        return BudgetStop(cap)


OBJECTIVES = {"utility": "maximize", "model calls a question": "minimize"}
SUFFIX = ".journal"
LOCK_SECONDS = 5  # seconds after which the lock of a process that was killed is taken from it
WAIT, PAUSE = 1800.0, 0.1  # seconds for which a worker waits for a note of the compile, and between two looks
_NUMBER = re.compile(r"-(\d+)$")

T = TypeVar("T")


class Study:
    """A study on disk: its notes, and its finished trials in order."""

    def __init__(self, name: str, storage: BaseStorage) -> None:
        self.name = name
        self.optuna: optuna.Study = _run_patiently(lambda: optuna.load_study(study_name=name, storage=storage))

    @property
    def key(self) -> str:
        """Name of the study for good: another may have its name once its file is gone."""
        return f"{self.name}-{self.notes['id']}"

    @property
    def notes(self) -> Mapping[str, Any]:
        """Notes of the study as a whole."""
        return _run_patiently(lambda: self.optuna.user_attrs)

    @property
    def finished(self) -> str:
        """The version sealed from this study, or empty."""
        return str(self.notes.get(Note.FINISHED, ""))

    def note(self, key: str, value: Any) -> None:
        """Note a JSON value of the study as a whole."""
        _run_patiently(lambda: self.optuna.set_user_attr(key, value))

    def wait_for(self, key: str, check: Callable[[], None], seconds: float = WAIT) -> Any:
        """Return a note once it is there.

        Raises `StudyError` when it does not come in time.
        """
        end = time.monotonic() + seconds
        while (noted := self.notes.get(key)) is None:
            check()
            if time.monotonic() > end or self.finished:
                what = f"The compile that began {self.name} has not said what is searched."
                raise StudyError(what, "Go on with it first: ragc compile PROJECT --resume")
            time.sleep(PAUSE)
        return noted

    def trials(self) -> list[FrozenTrial]:
        """Return every finished trial, oldest first."""
        return _run_patiently(lambda: self.optuna.get_trials(deepcopy=False))

    def frontier(self) -> set[int]:
        """Return the numbers of the trials that no other beats in both objectives."""
        return {trial.number for trial in _run_patiently(lambda: self.optuna.best_trials)}

    def add(self, trial: FrozenTrial) -> None:
        """Put a finished trial on disk. Raises `RecordError` when it cannot be written."""
        _run_patiently(lambda: self.optuna.add_trial(trial))

    def expect(self, identity: Mapping[str, Any]) -> None:
        """Raise `StudyError` when the study was made under other conditions."""
        noted, now = (flatten(one) for one in (self.notes.get(Note.IDENTITY, {}), json.loads(json.dumps(identity))))
        names = [name for name in sorted({*noted, *now}) if noted.get(name) != now.get(name)]
        if names:
            shown = "; ".join(_describe_difference(name, noted.get(name), now.get(name)) for name in names[:6])
            more = f"; and {len(names) - 6} more" if len(names) > 6 else ""
            mend = "Restore them to go on with it, or start anew: ragc compile PROJECT"
            raise StudyError(f"The study {self.name} was made under other conditions: {shown}{more}.", mend)


def create_study(project: Project, identity: Mapping[str, Any], notes: Mapping[str, Any]) -> Study:
    """Return a new study under the project's next free name."""
    n = max((_number_of(name) for name in list_studies(project)), default=0)
    while True:
        n += 1
        name = f"{project.name}-{n}"
        try:
            storage = _open_storage(project, name, new=True)
            directions = [*OBJECTIVES.values()]
            _run_patiently(partial(optuna.create_study, study_name=name, storage=storage, directions=directions))
        except (DuplicatedStudyError, FileExistsError):
            continue  # another compile took the name this very moment
        study = Study(name, storage)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExperimentalWarning)
            _run_patiently(partial(study.optuna.set_metric_names, [*OBJECTIVES]))
        for key, value in {"id": uuid4().hex[:8], **notes, Note.IDENTITY: dict(identity)}.items():
            study.note(key, value)
        return study


def open_study(project: Project, name: str = "") -> Study:
    """Return the study of that name, or the project's last whole one."""
    known = list_studies(project)
    if name and name not in known:
        mend = f"Known: {', '.join(known[-5:])}." if known else "Start one: ragc compile PROJECT"
        raise StudyError(f"{project.name} has no study {name!r}.", mend)
    for wanted in [name] if name else reversed(known):
        with contextlib.suppress(KeyError):  # killed before its first line was whole
            study = Study(wanted, _open_storage(project, wanted))
            if Note.IDENTITY in study.notes:
                return study
    if not known:
        raise StudyError(f"{project.name} has no study to go on with.", "Start one: ragc compile PROJECT")
    raise StudyError(f"The study {name or known[-1]} holds nothing.", "Start anew: ragc compile PROJECT")


def list_studies(project: Project) -> list[str]:
    """Return the names of the project's studies, oldest first."""
    if url := project.settings.study.storage:
        found = _run_patiently(lambda: optuna.get_all_study_names(_open_database(url)))
    else:
        found = [path.name.removesuffix(SUFFIX) for path in _folder_of(project).glob(f"*{SUFFIX}")]
    return sorted((name for name in found if _NUMBER.sub("", name) == project.name != name), key=_number_of)


def _number_of(name: str) -> int:
    found = _NUMBER.search(name)
    return int(found[1]) if found else 0


def _folder_of(project: Project) -> Path:
    return project.private / "studies"


def _open_storage(project: Project, name: str, new: bool = False) -> BaseStorage:
    optuna.logging.set_verbosity(logging.ERROR)
    if url := project.settings.study.storage:
        return _open_database(url)
    path = _folder_of(project) / f"{name}{SUFFIX}"
    lock = JournalFileOpenLock(str(path), grace_period=LOCK_SECONDS)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if new:
            path.touch(exist_ok=False)
        else:
            _cut_last_line(path, lock)
        return JournalStorage(JournalFileBackend(str(path), lock))
    except FileExistsError:
        raise
    except OSError as error:
        raise _storage_error(error) from error


def _cut_last_line(path: Path, lock: JournalFileOpenLock) -> None:
    """Take away a last line that a full disk or a killed process left unfinished."""
    lock.acquire()
    try:
        content = path.read_bytes()
        if not content.endswith(b"\n"):
            with path.open("r+b") as file:
                file.truncate(content.rfind(b"\n") + 1)
    finally:
        lock.release()


def _open_database(url: str) -> RDBStorage:
    try:
        return _run_patiently(lambda: RDBStorage(url, engine_kwargs={"pool_pre_ping": True}))
    except (ImportError, ValueError, ArgumentError) as error:
        raise database_error(error) from error


def _run_patiently(action: Callable[[], T]) -> T:
    """Return the action's result, tried again while the database is away. Raises `RecordError` in the end."""
    try:
        return try_again(action, lambda error: isinstance(error, StorageInternalError | DBAPIError))
    except (StorageInternalError, DBAPIError, OSError) as error:
        raise _storage_error(error) from error


def _storage_error(error: Exception) -> RecordError:
    reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    mend = "Free space or mend access to them, then go on with: ragc compile PROJECT --resume"
    return RecordError(f"The trials cannot be kept: {reason}.", mend)


def _describe_difference(name: str, there: Any, here: Any) -> str:
    if there is None or here is None:
        return f"{name} is only {'here' if there is None else 'there'}"
    was, now = (text if len(text := str(value)) <= 40 else f"{text[:24]}..." for value in (there, here))
    return f"{name} was {was}, is {now}"


def try_again(action: Callable[[], T], may_pass: Callable[[BaseException], bool]) -> T:
    """Return the action's result, tried again after errors that may pass."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            return action()
        except Exception as error:
            if not may_pass(error) or time.monotonic() >= end:
                raise
        time.sleep(RETRY_EVERY)


def database_error(error: Exception) -> SettingsError:
    """Return the error for a URL that names no database, or one without its driver."""
    mend = "Correct [study] storage in ragc.toml: an SQLAlchemy URL, its driver installed."
    return SettingsError(f"The database of the study cannot be opened: {error}.", mend)
