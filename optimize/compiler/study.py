"""Optuna studies on disk: their notes and finished trials, in a journal file or a database."""

from __future__ import annotations

import contextlib
import json
import logging
import re
import time
import warnings
from collections.abc import Callable, Mapping
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

from optimize.compiler.record import database_error, try_again
from program.errors import RecordError, StudyError
from program.knowledge.project import Project

OBJECTIVES = {"utility": "maximize", "model calls a question": "minimize"}
SUFFIX = ".journal"
IDENTITY, FINISHED, CAPS, TRIALS, PLANNED, SWEPT = "identity", "finished", "caps", "trials", "planned", "swept"
"""Notes of a study: its conditions, the version sealed, caps, settings wanted, what is searched, knobs swept."""
LOCK_SECONDS = 5
"""Seconds after which the lock of a process that was killed is taken from it."""
WAIT, PAUSE = 1800.0, 0.1
"""Seconds for which a worker waits for a note of the compile, and between two looks."""
_NUMBER = re.compile(r"-(\d+)$")

T = TypeVar("T")


class Study:
    """A study on disk: its notes, and its finished trials in order."""

    def __init__(self, name: str, storage: BaseStorage) -> None:
        self.name = name
        self._storage = storage
        self.optuna: optuna.Study = _run_patiently(lambda: optuna.load_study(study_name=name, storage=storage))

    @property
    def key(self) -> str:
        """Name of the study for good: another may have its name once its file is gone."""
        return f"{self.name}-{self.notes['id']}"

    @property
    def notes(self) -> Mapping[str, Any]:
        """Notes of the study as a whole."""
        return _run_patiently(lambda: self._storage.get_study_user_attrs(self.optuna._study_id))

    @property
    def finished(self) -> str:
        """The version sealed from this study, or empty."""
        return str(self.notes.get(FINISHED, ""))

    def note(self, key: str, value: Any) -> None:
        """Note a JSON value of the study as a whole."""
        _run_patiently(lambda: self.optuna.set_user_attr(key, value))

    def wait_for(self, key: str, check: Callable[[], None]) -> Any:
        """Return a note once it is there; `check` is called meanwhile. Raises `StudyError` when it does not come."""
        end = time.monotonic() + WAIT
        while (noted := self.notes.get(key)) is None:
            check()
            if time.monotonic() > end or self.finished:
                raise StudyError(
                    f"The compile that began {self.name} has not said what is searched.",
                    "Go on with it first: ragc compile PROJECT --resume",
                )
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
        """Raise `StudyError`, with the differences, when the study was made under other conditions."""
        found = _find_differences("", self.notes.get(IDENTITY, {}), json.loads(json.dumps(identity)))
        if found:
            shown = "; ".join(found[:6]) + (f"; and {len(found) - 6} more" if len(found) > 6 else "")
            raise StudyError(
                f"The study {self.name} was made under other conditions: {shown}.",
                "Restore them to go on with it, or start anew: ragc compile PROJECT",
            )


def create_study(project: Project, identity: Mapping[str, Any], notes: Mapping[str, Any]) -> Study:
    """Return a new study under the project's next free name; its identity is noted last, which makes it whole."""
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
            _run_patiently(lambda: study.optuna.set_metric_names([*OBJECTIVES]))  # noqa: B023
        for key, value in {"id": uuid4().hex[:8], **notes, IDENTITY: dict(identity)}.items():
            study.note(key, value)
        return study


def open_study(project: Project, name: str = "") -> Study:
    """Return the study of that name, or the project's last whole one. Raises `StudyError` when there is none."""
    known = list_studies(project)
    if name and name not in known:
        mend = f"Known: {', '.join(known[-5:])}." if known else "Start one: ragc compile PROJECT"
        raise StudyError(f"{project.name} has no study {name!r}.", mend)
    for wanted in [name] if name else reversed(known):
        with contextlib.suppress(KeyError):  # killed before its first line was whole
            study = Study(wanted, _open_storage(project, wanted))
            if IDENTITY in study.notes:
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
    return RecordError(
        f"The trials cannot be kept: {reason}.",
        "Free space or mend access to them, then go on with: ragc compile PROJECT --resume",
    )


def _find_differences(name: str, there: Any, here: Any) -> list[str]:
    """Return what differs between two JSON values, each by its dotted name."""
    if isinstance(there, Mapping) and isinstance(here, Mapping):
        return [
            found
            for key in sorted({*there, *here})
            for found in _find_differences(f"{name}.{key}".lstrip("."), there.get(key), here.get(key))
        ]
    if there == here:
        return []
    if there is None or here is None:
        return [f"{name} is only {'here' if there is None else 'there'}"]
    was, now = (text if len(text := str(value)) <= 40 else f"{text[:24]}..." for value in (there, here))
    return [f"{name} was {was}, is {now}"]
