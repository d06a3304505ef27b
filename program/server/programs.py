"""What a server answers with: a project's or an experiment's programs, by the names that a client may ask for."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from program.errors import ExperimentError, VersionError
from program.serve import experiment_store as store
from program.serve.experiment import Experiment
from program.serve.follow import Followed
from program.serve.opening import find_project, load, open_latest
from program.serve.reference import LATEST, PRODUCTION, find_versions, is_alias, list_aliases, parse_reference
from program.settings import FILE, artifacts_root

if TYPE_CHECKING:
    from program.knowledge.library import Library
    from program.serve.opening import Advance

MOST_OPEN = 4  # versions besides the one served that are kept open


class Programs:
    """The programs of one server: the one served, and versions of the same project that a client names."""

    def __init__(
        self,
        target: str,
        artifacts: str | Path | None = None,
        project: str | Path | None = None,
        point: str | None = None,
        progress: Advance | None = None,
    ) -> None:
        """Open an experiment, a reference, or a project's folder by its production alias, which is followed.

        Raises as `load`; `ExperimentError` for an experiment that cannot be opened.
        """
        folder = (Path(target) / FILE).is_file()
        artifacts = None if folder else artifacts  # a project names its own
        self._options: dict[str, Any] = {"point": point, "project": project, "progress": progress}
        self.experiment = None
        if "@" not in target and not Path(target).exists() and _is_experiment(target, artifacts):
            self.experiment = Experiment.open(target, artifacts=artifacts, project=project)
            design = self.experiment.design
            self.project = find_project(design.control.version, artifacts, project)
        else:
            self.project = find_project(target, artifacts, project)
        self.root = self.project.artifacts if folder else artifacts_root(artifacts)
        self.default = target
        if self.experiment is not None:
            self.default, self.main = design.id, self.experiment.programs[design.control.name]
        elif not folder:
            self.main = self._open(target)
        else:
            self._options["project"] = self.project.folder
            produced = PRODUCTION in list_aliases(self.root, self.project.name)
            self.default = f"{self.project.name}@{PRODUCTION}" if produced else self.project.name
            self.main = self._open(self.default) if produced else open_latest(target, point=point, progress=progress)
        self._others: OrderedDict[str, Any] = OrderedDict()
        self._opening = asyncio.Lock()

    @property
    def library(self) -> Library:
        """The knowledge of the program that is served."""
        program = self.main.current if isinstance(self.main, Followed) else self.main
        found: Library = program.runtime.library
        return found

    def list_models(self) -> list[str]:
        """Return the names that a client may ask for, the one served first."""
        if self.experiment is not None:
            return [self.default]
        aliases = [f"{self.project.name}@{alias}" for alias in list_aliases(self.root, self.project.name)]
        return list(dict.fromkeys([self.default, *aliases, *self.list_versions()]))

    def list_versions(self) -> list[str]:
        """Return what may be compared: an experiment's arms, or versions, newest first."""
        if self.experiment is not None:
            return [arm.name for arm in self.experiment.design.arms]
        found = find_versions(self.root, self.project.name)[::-1]
        return list(dict.fromkeys(f"{self.project.name}@{version.partition('-')[0]}" for version in found))

    async def find(self, model: str) -> Any:
        """Return the program of a name, or of an arm's letter.

        Raises `VersionError` for one that is no version of this project.
        """
        if model == self.default:
            return self.main
        if self.experiment is not None and model in self.experiment.programs:
            return self.experiment.programs[model]
        if self.experiment is not None or parse_reference(model).name != self.project.name:
            what = f"{model[:80]!r} is not served here."
            raise VersionError(what, f"Name one of: {', '.join(self.list_models()[:5])}.")
        async with self._opening:
            if model not in self._others:
                self._others[model] = await asyncio.to_thread(self._open, model)
            self._others.move_to_end(model)
            while len(self._others) > MOST_OPEN:
                self._others.popitem(last=False)
            return self._others[model]

    @contextmanager
    def assign(self, program: Any, unit: str) -> Iterator[Any]:
        """Give a unit its arm's program; without a unit or an experiment the given one."""
        if self.experiment is None or not unit:
            yield program
        else:
            with self.experiment.assign(unit) as arm:
                yield arm.program

    def record_outcome(self, trace: str, name: str, value: float) -> None:
        """Write an outcome of an answer into the experiment's log, where there is one."""
        if self.experiment is not None and self.experiment.knows(trace):
            self.experiment.record(trace, {name: value})

    def _open(self, reference: str) -> Any:
        moves = False
        if not Path(reference).exists():
            selector = parse_reference(reference).selector
            moves = selector == LATEST or is_alias(selector)
        opened = partial(load, reference, artifacts=self.root, **self._options)
        return opened(follow=True) if moves else opened()


def _is_experiment(name: str, artifacts: str | Path | None) -> bool:
    with suppress(ExperimentError):
        return (store.experiment_folder(name, artifacts) / store.DESIGN).is_file()
    return False
