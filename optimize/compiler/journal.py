"""Trials on disk: an Optuna study in a journal file or a database, that several processes add whole trials to.

A trial is written once it is finished, in one piece, so a process killed at any moment leaves no half of one.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
import socket
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

import optuna
from filelock import FileLock
from optuna.exceptions import DuplicatedStudyError, ExperimentalWarning, StorageInternalError
from optuna.storages import BaseStorage, JournalStorage, RDBStorage
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock
from optuna.trial import FrozenTrial
from sqlalchemy.exc import ArgumentError, DBAPIError

from optimize.compiler.store import patiently, unopenable
from optimize.compiler.trials import OBJECTIVES
from program.errors import RecordError, StudyError
from program.project import Project

SUFFIX = ".journal"
IDENTITY = "identity"
FINISHED = "finished"
CAPS = "caps"
MARK = "mark"
"""What two that are the same trial, added twice, have in common."""
WAIT = 1800.0  # seconds that a worker waits for the compile to say what is searched
PAUSE = 0.1
POLL = 0.001  # seconds until a lock that another holds is tried again; it is held for about as long
_NUMBER = re.compile(r"-(\d+)$")

T = TypeVar("T")


class _Lock(JournalFileOpenLock):
    """A lock that the system lets go of when its holder dies; Optuna's own would hold others up for 30 seconds."""

    def __init__(self, path: Path) -> None:
        super().__init__(str(path))
        self._lock = FileLock(f"{path}.lock")

    def acquire(self) -> bool:
        self._lock.acquire(poll_interval=POLL)
        return True

    def release(self) -> None:
        self._lock.release()


class Journal:
    """One study: its identity, its trials in the order they were finished, and whether it is finished."""

    def __init__(self, name: str, storage: BaseStorage) -> None:
        self.name = name
        self.storage = storage
        self._study = _patiently(lambda: optuna.load_study(study_name=name, storage=storage))
        self._id = _patiently(lambda: storage.get_study_id_from_name(name))

    @property
    def key(self) -> str:
        """Names the study for good: a name may be used again once its file is gone."""
        return f"{self.name}-{self.attributes['id']}"

    @property
    def attributes(self) -> Mapping[str, Any]:
        """What was noted of the study as a whole. Not copied, as a study would: a worker looks before every trial."""
        found: Mapping[str, Any] = _patiently(lambda: self.storage.get_study_user_attrs(self._id))
        return found

    def name_objectives(self) -> None:
        """Says what the two values of each trial are, for whoever looks at the study."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExperimentalWarning)
            _patiently(lambda: self._study.set_metric_names([*OBJECTIVES]))

    def note(self, key: str, value: Any) -> None:
        """Notes something of the study as a whole; JSON values."""
        _patiently(lambda: self._study.set_user_attr(key, value))

    def awaited(self, key: str, check: Callable[[], None]) -> Any:
        """What was noted under a key, once it is; `check` is called meanwhile.

        Raises `StudyError` when it is not within WAIT seconds, or the study is finished without.
        """
        end = time.monotonic() + WAIT
        while (noted := self.attributes.get(key)) is None:
            check()
            if time.monotonic() > end or self.finished:
                raise StudyError(
                    f"The compile that began {self.name} has not said what is searched.",
                    "Go on with it first: ragc compile PROJECT --resume",
                )
            time.sleep(PAUSE)
        return noted

    def trials(self) -> list[FrozenTrial]:
        """Every finished trial, oldest first, each once: one whose connection broke as it was added is added again."""
        found: list[FrozenTrial] = _patiently(lambda: self._study.get_trials(deepcopy=False))
        first: dict[Any, FrozenTrial] = {}
        for trial in found:
            first.setdefault(trial.user_attrs.get(MARK, trial.number), trial)
        return list(first.values())

    @property
    def begun(self) -> set[int]:
        """Which of the settings that a search begins with have been tried."""
        return {number for trial in self.trials() if (number := trial.user_attrs.get("start")) is not None}

    def add(self, trial: FrozenTrial) -> None:
        """Puts a finished trial on disk. Raises `RecordError` when it cannot be written."""
        trial.user_attrs = {**trial.user_attrs, MARK: uuid4().hex}
        _patiently(lambda: self._study.add_trial(trial))

    def finish(self, reference: str) -> None:
        """Says which version was sealed from this study."""
        self.note(FINISHED, reference)

    @property
    def finished(self) -> str:
        """The version sealed from this study, or nothing yet."""
        return str(self.attributes.get(FINISHED, ""))

    def expect(self, identity: Mapping[str, Any]) -> None:
        """Raises `StudyError`, with every difference, when the study was made for something else."""
        there = self.attributes.get(IDENTITY, {})
        found = _differences("", there, json.loads(json.dumps(dict(identity))))  # as it is stored: tuples are lists
        if found:
            shown = "; ".join(found[:6]) + (f"; and {len(found) - 6} more" if len(found) > 6 else "")
            raise StudyError(
                f"The study {self.name} was made under other conditions: {shown}.",
                "Restore them to go on with it, or start anew: ragc compile PROJECT",
            )


def create(
    project: Project,
    identity: Mapping[str, Any],
    notes: Mapping[str, Any] | None = None,
    begin: Callable[[Journal], Any] = lambda journal: None,
) -> Journal:
    """A new study, under the next free name of the project, with what is noted of it.

    `begin` is called before it is whole, when nobody else may go on with it yet.
    """
    n = max((_number(name) for name in names(project)), default=0)
    while True:
        n += 1
        name = f"{project.name}-{n}"
        try:
            storage = _storage(project, name, new=True)
            _patiently(lambda: optuna.create_study(study_name=name, storage=storage, directions=[*OBJECTIVES.values()]))  # noqa: B023
        except (DuplicatedStudyError, FileExistsError):
            continue  # another compile took the name this very moment
        journal = Journal(name, storage)
        journal.name_objectives()
        for key, value in (notes or {}).items():
            journal.note(key, value)
        try:
            begin(journal)
        except RecordError:  # a disk that is full, say: to be gone on with
            journal.note(IDENTITY, dict(identity))
            raise
        journal.note(IDENTITY, dict(identity))  # with that it is whole
        return journal


def last(project: Project) -> Journal | None:
    """The project's last study that was begun in earnest, or None; one killed in its first moments holds nothing."""
    for name in reversed(names(project)):
        with contextlib.suppress(StudyError):
            journal = join(project, name)
            if IDENTITY in journal.attributes:
                return journal
    return None


def join(project: Project, name: str = "") -> Journal:
    """The study of that name, or the project's last. Raises `StudyError` when there is none."""
    known = names(project)
    wanted = name or (known[-1] if known else "")
    if wanted not in known:
        which = f"no study {name!r}" if name else "no study to go on with"
        mend = f"Known: {', '.join(known[-5:])}." if known else "Start one: ragc compile PROJECT"
        raise StudyError(f"{project.name} has {which}.", mend)
    try:
        return Journal(wanted, _storage(project, wanted))
    except KeyError as error:  # killed before its first line was whole
        raise StudyError(f"The study {wanted} holds nothing.", "Start anew: ragc compile PROJECT") from error


def names(project: Project) -> list[str]:
    """The project's studies, oldest first."""
    url = project.settings.study.storage
    if url:
        found = [n for n in _patiently(lambda: optuna.get_all_study_names(_database(url))) if _of(project, n)]
    else:
        found = [path.name.removesuffix(SUFFIX) for path in _folder(project).glob(f"*{SUFFIX}")]
        found = [name for name in found if _of(project, name)]
    return sorted(found, key=_number)


def host() -> str:
    """This machine, as a study names its workers."""
    return socket.gethostname()


def _of(project: Project, name: str) -> bool:
    found = _NUMBER.search(name)
    return bool(found) and name[: found.start()] == project.name if found else False


def _number(name: str) -> int:
    found = _NUMBER.search(name)
    return int(found[1]) if found else 0


def _folder(project: Project) -> Path:
    return project.private / "studies"


def _storage(project: Project, name: str, new: bool = False) -> BaseStorage:
    optuna.logging.set_verbosity(logging.ERROR)
    if url := project.settings.study.storage:
        return _database(url)
    path = _folder(project) / f"{name}{SUFFIX}"
    lock = _Lock(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if new:
            path.touch(exist_ok=False)
        else:
            _mend(path, lock)
        return JournalStorage(JournalFileBackend(str(path), lock))
    except FileExistsError:
        raise
    except OSError as error:
        raise _unusable(error) from error


def _mend(path: Path, lock: _Lock) -> None:
    """Takes away a last line that a full disk or a killed process left unfinished."""
    lock.acquire()
    try:
        content = path.read_bytes()
        if not content.endswith(b"\n"):
            with path.open("r+b") as file:
                file.truncate(content.rfind(b"\n") + 1)
    finally:
        lock.release()


def _database(url: str) -> RDBStorage:
    try:
        return _patiently(lambda: RDBStorage(url, engine_kwargs={"pool_pre_ping": True}))
    except (ImportError, ValueError, ArgumentError) as error:
        raise unopenable(error) from error


def _patiently(action: Callable[[], T]) -> T:
    """The action's result; while the database is away it is tried again. Raises `RecordError` when that is too long."""
    try:
        return patiently(action, lambda error: isinstance(error, StorageInternalError | DBAPIError))
    except (StorageInternalError, DBAPIError, OSError) as error:
        raise _unusable(error) from error


def _unusable(error: Exception) -> RecordError:
    reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    return RecordError(
        f"The trials cannot be kept: {reason}.",
        "Free space or mend access to them, then go on with: ragc compile PROJECT --resume",
    )


def _differences(name: str, there: Any, here: Any) -> list[str]:
    """What differs between two JSON values, each by its dotted name."""
    if isinstance(there, Mapping) and isinstance(here, Mapping):
        return [
            found
            for key in sorted({*there, *here})
            for found in _differences(f"{name}.{key}".lstrip("."), there.get(key), here.get(key))
        ]
    if there == here:
        return []
    if there is None or here is None:
        return [f"{name} is only {'here' if there is None else 'there'}"]
    return [f"{name} was {_short(there)}, is {_short(here)}"]


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 40 else f"{text[:24]}..."
