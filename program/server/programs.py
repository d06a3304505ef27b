"""What a server answers with: a project's or an experiment's programs, by the names that a client may ask for."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ragc.errors import ExperimentError, RagcError, VersionError
from ragc.knowledge.documents import Documents
from ragc.knowledge.index.build import is_indexed
from ragc.models.catalog import is_local
from ragc.serve import experiment_store as store
from ragc.serve.experiment import Experiment
from ragc.serve.follow import Reopened
from ragc.serve.opening import find_project, load, open_latest
from ragc.serve.reference import (
    LATEST,
    PRODUCTION,
    find_whole_versions,
    is_alias,
    list_aliases,
    parse_reference,
    resolve,
)
from ragc.settings import FILE, artifacts_root
from ragc.storage import keep_last

if TYPE_CHECKING:
    from ragc.knowledge.library import Library
    from ragc.serve.opening import Advance

LOOK_SECONDS = 5.0  # between two looks at whether documents changed
CHANGED = "Documents changed since they were indexed: `ragc index` takes them over."
MOST_OPEN = 4  # versions besides the one served that are kept open
_NO_UNIT = (
    "%s: who asks without saying for whom (user, safety_identifier, metadata.user_id, X-OpenWebUI-User-Id or the "
    "page's cookie) gets the control %s, and takes no part. This is told once."
)
_LOG = logging.getLogger("ragc.server")


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
            latest = partial(open_latest, target, point=point, progress=progress)
            self.main = self._open(self.default) if produced else Reopened(self.default, latest)
        self._others: OrderedDict[str, Any] = OrderedDict()
        self._opening = asyncio.Lock()
        self._told = self._unindexed = False
        self._looked = -LOOK_SECONDS

    @property
    def library(self) -> Library:
        """The knowledge of the program that is served."""
        found: Library = self._served.runtime.library
        return found

    def tell_unindexed(self) -> str:
        """Return in a sentence that documents changed since they were indexed, or ""."""
        if time.monotonic() - self._looked > LOOK_SECONDS:
            self._looked, self._unindexed = time.monotonic(), not is_indexed(self.project)
        return CHANGED if self._unindexed else ""

    def list_changed(self) -> dict[str, str]:
        """Return by question why its reviewed answer holds no more."""
        reviewed = self._served.runtime.reviewed
        return reviewed.list_changed(self.library) if reviewed else {}

    @property
    def _served(self) -> Any:
        return self.main.current if isinstance(self.main, Reopened) else self.main

    @property
    def is_embedded(self) -> bool:
        """Whether an answer takes this machine's processors alone: no language model and no live source is asked."""
        models, sources = self._served.runtime.models, self.library.sources.values()
        clients = (models.decide, models.write, models.judge, models.query)
        here = all(isinstance(one, Documents) for one in sources)
        return here and all(one is None or is_local(one) for one in clients)

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
        found = find_whole_versions(self.root, self.project.name)[::-1]
        return list(dict.fromkeys(f"{self.project.name}@{version.partition('-')[0]}" for version in found))

    def label_models(self) -> dict[str, str]:
        """Return the models that a person may choose among, with what each is now.

        A version that another of the names stands for is left out.
        """
        labels, versions = {}, set()
        for model in self.list_models():
            version = self._find_version(model)
            if model != version or version not in versions:
                labels[model] = f"{model} (now {version})" if version and version != model else model
            versions.add(version)
        return labels

    def _find_version(self, model: str) -> str:
        """Return the version, `name@v2`, that answers under a name; empty for none, or for an experiment's arms."""
        if model == self.default:
            return "" if self.experiment is not None else str(self._served.runtime.version)
        with suppress(RagcError):  # of an alias that points at nothing
            return resolve(model, self.root).label
        return ""

    async def find(self, model: str) -> Any:
        """Return the program of a name, or of an arm's letter.

        Raises `VersionError` for one that is no version of this project.
        """
        if model == self.default:
            return self.main
        if self.experiment is not None and model in self.experiment.programs:
            return self.experiment.programs[model]
        async with self._opening:
            if (program := self._others.get(model)) is None:
                self.require_served(model)
                program = await asyncio.to_thread(self._open, model)
            keep_last(self._others, {model: program}, MOST_OPEN)
            return program

    def require_served(self, model: str) -> None:
        """Raise `VersionError` for a name under which nothing answers here."""
        if model == self.default:
            return
        if self.experiment is not None or parse_reference(model).name != self.project.name:
            what = f"{model[:80]!r} is not served here."
            raise VersionError(what, f"Name one of: {', '.join(self.list_models()[:5])}.")
        resolve(model, self.root)

    @contextmanager
    def assign(self, program: Any, unit: str | None) -> Iterator[Any]:
        """Give a unit its arm's program.

        Without a unit or an experiment it is the given one, unlogged.
        """
        if self.experiment is None or not unit:
            if unit == "" and not self._told:
                self._told = True
                _LOG.warning(_NO_UNIT, self.default, self.experiment and self.experiment.design.control.name)
            yield program
        else:
            with self.experiment.assign(unit) as arm:
                yield arm.program

    def _open(self, reference: str) -> Any:
        moves = False
        if not Path(reference).exists():
            selector = parse_reference(reference).selector
            moves = selector == LATEST or is_alias(selector)
        opened = partial(load, reference, artifacts=self.root, **self._options)
        return opened(follow=True) if moves else Reopened(reference, opened)


def _is_experiment(name: str, artifacts: str | Path | None) -> bool:
    with suppress(ExperimentError):
        return (store.experiment_folder(name, artifacts) / store.DESIGN).is_file()
    return False
