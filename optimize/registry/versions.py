"""Versions below the artifacts folder: publish, list, verify, compare, and a ledger of looks at their test sets.

Several processes may publish at once.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

from ragc.errors import IntegrityError, RagcError, SettingsError, VersionError
from ragc.optimize.evaluation.comparison import PRIMARY, Comparison, compare_rows, list_questions, read_sealed_rows
from ragc.optimize.labelled.units import question_digest
from ragc.serve import manifest, reference
from ragc.serve.reference import Manifest
from ragc.settings import artifacts_root
from ragc.storage import ASIDE, append_row, read_json_rows, remove_leftovers, sync_folder, write_whole

LOCK = ".lock"
LOCK_SECONDS = 60.0
LOOKS = "looks.jsonl"  # the ledger beside the versions of a name, to be committed with them
DIGITS = 8  # of a question's digest
GIT_FILES = {
    ".gitattributes": "* -text\nhistory.jsonl merge=union\n",
    ".gitignore": f"{LOCK}\n{ASIDE}*\nexposures*.jsonl\n",
}
"""Git must not touch a sealed byte (line endings), and merges two branches' histories line by line."""


@dataclass(frozen=True, slots=True)
class Listed:
    """A version, or a broken alias, as `ragc ls` shows it."""

    name: str
    version: str  # the version's folder; empty for an alias that cannot be read
    digest: str
    created_at: str  # the time of sealing, UTC, ISO 8601
    aliases: tuple[str, ...]
    parent: str | None
    metrics: Mapping[str, Any]
    broken: str = ""  # why it cannot be read, and the way out; empty where it can


@dataclass(frozen=True, slots=True)
class Checked:
    """The result of verifying a reference."""

    reference: str
    digest: str
    problems: tuple[str, ...]
    mend: str = ""
    note: str = ""  # what could not be tried, such as loading a version whose project is not here

    @property
    def sound(self) -> bool:
        """True when there is no problem."""
        return not self.problems


def publish_version(
    name: str, fields: Mapping[str, Any], files: Mapping[str, bytes], root: Path | str | None = None
) -> str:
    """Seal files as the next version of a name and return its reference, `name@v7`.

    `fields` are the manifest's; name and version are filled in. Readers see a whole version or none: the folder is
    written aside under the name's lock and then renamed. Raises `VersionError` for a name that is not one.
    """
    if not reference.is_name(name) or name in reference.RESERVED:
        mend = "Use 1 to 63 of a-z, 0-9, '-', '_' and '.', with a letter or digit at both ends."
        raise VersionError(f"{name[:80]!r} cannot be the name of a program.", mend)
    base = artifacts_root(root)
    with hold_lock(base, name):
        for git_file, text in GIT_FILES.items():
            if not (base / git_file).exists():
                write_whole(base / git_file, text.encode())
        folder = base / name / "versions"
        folder.mkdir(exist_ok=True)
        remove_leftovers(base / name)
        number = max(map(reference.version_number, reference.find_versions(base, name)), default=0) + 1
        aside = folder / f"{ASIDE}{os.getpid()}"
        sealed = manifest.seal_folder(aside, {**fields, "name": name, "version": f"v{number}"}, files)
        aside.rename(folder / f"v{number}-{sealed.digest[7:15]}")
        sync_folder(folder)
    return f"{name}@v{number}"


def list_versions(name: str = "", root: Path | str | None = None) -> list[Listed]:
    """List the versions of a name, or of every name, oldest first.

    Manifests are read, not verified. A version or an alias that cannot be read is listed as broken, aliases last of a
    name. Raises `VersionError` when `name` is given and has no version.
    """
    base = artifacts_root(root)
    if name:
        reference.require_name(base, name)
    found = []
    for one in [name] if name else reference.list_programs(base):
        pointing: dict[str, tuple[str, ...]] = {}
        lost = []
        for alias in reference.list_aliases(base, one):
            try:
                version = reference.read_alias(base, one, alias)["version"]
                pointing[version] = (*pointing.get(version, ()), alias)
            except (IntegrityError, VersionError) as error:
                lost.append(Listed(one, "", "", "", (alias,), None, {}, str(error)))
        for version, read in scan_versions(base, one):
            at = pointing.get(version, ())
            if isinstance(read, IntegrityError):
                found.append(Listed(one, version, "", "", at, None, {}, str(read)))
            else:
                scores = read.section("scores")
                found.append(Listed(one, version, read.digest, read.created_at, at, read.parent, scores))
        found += lost
    return found


def scan_versions(root: Path, name: str) -> Iterator[tuple[str, Manifest | IntegrityError]]:
    """Yield a name's versions, oldest first.

    With each comes its manifest, unchecked, or why it cannot be read. A folder that was removed since it was listed is
    left out.
    """
    for version in reference.find_versions(root, name):
        folder = root / name / "versions" / version
        try:
            yield version, reference.read_manifest(folder)
        except IntegrityError as error:
            if folder.exists():
                yield version, error


def read_manifests(root: Path, name: str) -> list[Manifest]:
    """Read the manifests of a name, oldest first; warn of what cannot be read."""
    found = []
    for version, read in scan_versions(root, name):
        if isinstance(read, IntegrityError):
            reference.warn_left_out(f"{name}@{version}", str(read))
        else:
            found.append(read)
    return found


def read_ancestors(ref: str, root: Path | str | None = None) -> list[Manifest]:
    """Return the manifests of a version and of those it was compiled from."""
    found: dict[Path, Manifest] = {}
    wanted: str | None = ref
    with contextlib.suppress(VersionError, IntegrityError):
        while wanted and (one := reference.resolve(wanted, root)).path not in found:
            found[one.path] = one
            wanted, root = one.parent, one.path.parents[2]
    return list(found.values())


def open_published(ref: str, root: Path | str | None = None) -> Manifest:
    """Open a version below the artifacts folder, each byte checked.

    Raises `VersionError` for a folder elsewhere.
    """
    found = manifest.open_version(ref, root)
    if not found.version:
        what = f"{found} is not a version below {artifacts_root(root)}."
        raise VersionError(what, "Name a published version, such as support@v8.")
    return found


def verify_version(ref: str, root: Path | str | None = None) -> Checked:
    """Check every byte of a version. Raises `VersionError` for an unknown one."""
    digest = ""
    try:
        digest = reference.resolve(ref, root).digest
        manifest.open_version(ref, root)
    except IntegrityError as error:
        return Checked(ref, digest, tuple(error.data.get("differences", (error.what,))), error.mend)
    return Checked(ref, digest, ())


def verify_by_loading(
    ref: str,
    root: Path | str | None = None,
    project: Path | str | None = None,
    progress: Callable[[int, int], None] | None = None,
    make: Callable[[], Any] | None = None,
) -> Checked:
    """Check every byte of a version, and whether it loads here.

    Options are those of `load`.
    """
    if not (checked := verify_version(ref, root)).sound:
        return checked
    if not manifest.open_version(ref, root).section("program").get("structure"):
        return replace(checked, note="it holds no program to load")
    from ragc.serve.opening import load

    try:
        if make is not None:
            load(ref, make, artifacts=root)
        else:
            load(ref, artifacts=root, project=project, progress=progress)
    except SettingsError as error:
        return replace(checked, note=f"not loaded: {error}")
    except RagcError as error:
        return replace(checked, problems=(error.what,), mend=error.mend)
    return checked


def verify_all(root: Path | str | None = None) -> list[Checked]:
    """Check every version and every alias; an alias of a lost version is a problem."""
    base = artifacts_root(root)
    found = []
    for name in reference.list_programs(base):
        for selector in (*reference.find_versions(base, name), *reference.list_aliases(base, name)):
            try:
                found.append(verify_version(f"{name}@{selector}", base))
            except VersionError as error:
                if reference.is_version(selector) and not (base / name / "versions" / selector).exists():
                    continue  # removed since it was listed
                found.append(Checked(f"{name}@{selector}", "", (error.what,), error.mend))
    return found


@contextlib.contextmanager
def hold_lock(base: Path, name: str) -> Iterator[None]:
    """Hold the lock of a name, which its holder may take again.

    The system frees it when the holder dies. Raises `RagcError` when another process holds it for a minute,
    `VersionError` when a folder of the name is a link: what is written there would land elsewhere.
    """
    from filelock import FileLock, Timeout

    for part in (base / name, base / name / "versions", base / name / "aliases"):
        if part.is_symlink():
            raise VersionError.link(part)
    (base / name).mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(base / name / LOCK, timeout=LOCK_SECONDS, is_singleton=True):
            yield
    except Timeout as error:
        what = f"Another process has been writing to {name} for {LOCK_SECONDS:.0f} s."
        raise RagcError(what, "Wait for it, or end it.") from error


def identify_look(programs: Iterable[str], metric: str, questions: Iterable[str]) -> str:
    """Return the identity of a look: programs in any order, metric, questions."""
    digests = sorted({question_digest(text)[:DIGITS] for text in questions})
    return reference.digest_of("\n".join([*sorted(set(programs)), metric, *digests]).encode())[7:23]


def note_comparison(
    sealed: Sequence[Manifest], metric: str, questions: Sequence[str], by: str, root: Path, asked: str = ""
) -> int:
    """Note a comparison with the first version, and return the number of looks.

    A pair is one look, however often and by whatever verb it is shown. What a compile showed (its version beside the
    parent, by the sealed scores of its own metric) was its look. Scores of versions `asked` anew, at such a point and
    over such documents, are others than those sealed.
    """
    first, *others = sealed
    pairs = [one for one in others if asked or metric != PRIMARY or not _is_of_one_compile(first, one)]
    looks = " ".join(identify_look([first.digest, one.digest, asked], metric, questions) for one in pairs)
    count = partial(note_test_use, by=by, identity=looks) if looks else count_test_uses
    return max(count(root, name, questions=questions) for name in {one.name for one in sealed})


def _is_of_one_compile(a: Manifest, b: Manifest) -> bool:
    pairs = ((a, b), (b, a))
    return a.digest == b.digest or any(x.section("gain") and x.parent in (y.label, y.full_label) for x, y in pairs)


@manifest.refuse_unreadable("What one of the versions was scored")
def compare_versions(
    a: str, b: str, metric: str = PRIMARY, root: Path | str | None = None, by: str = "compare"
) -> Comparison:
    """Compare two versions, once verified, by their sealed scores. It is a look."""
    sealed = [manifest.open_version(ref, root) for ref in (a, b)]
    rows = read_sealed_rows(sealed, metric)
    found = compare_rows(rows[0], rows[1], metric, names=(sealed[0].label, sealed[1].label), timed=False)
    note_comparison(sealed, metric, list_questions(rows[0]), by, artifacts_root(root))
    return found


def note_test_use(root: Path, name: str, by: str, questions: Iterable[str], identity: str = "") -> int:
    """Note that scores on questions are seen, and return how often any of them were.

    Each use is a draw in which chance may find favour. Uses of the same `identity` are one, however often they are
    noted; of several, parted by blanks, what is new is one use. Where nothing can be written, nothing is.
    """
    digests = {question_digest(text)[:DIGITS] for text in questions}
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # two at once are two uses
            stack.enter_context(hold_lock(root, name))
        rows = list(_read_ledger(root, name, digests))
        new = {*(identity.split() or [uuid4().hex[:16]])}.difference(*(str(row["look"]).split() for row in rows))
        number = _count_uses(rows) + bool(new)
        if new:
            line = {"look": " ".join(sorted(new)), "by": by, "number": number, "questions": "".join(sorted(digests))}
            with contextlib.suppress(OSError):
                append_row(root / name / LOOKS, line)
    return number


def count_test_uses(root: Path, name: str, questions: Iterable[str]) -> int:
    """Count how often scores on any of these questions were seen so far."""
    return _count_uses(_read_ledger(root, name, {question_digest(text)[:DIGITS] for text in questions}))


def _count_uses(rows: Iterable[Mapping[str, Any]]) -> int:
    numbers = [int(row["number"]) for row in rows]
    return max(len(numbers), *numbers, 0)


def _read_ledger(root: Path, name: str, digests: set[str]) -> Iterator[Mapping[str, Any]]:
    """Yield the uses of any of the questions, by the ledger and by sealed versions, which a clone has without it.

    A line that was cut off and a version that cannot be read are left out.
    """
    seen = set()
    with contextlib.suppress(OSError):
        for row in filter(None, read_json_rows(root / name / LOOKS)):
            with contextlib.suppress(KeyError, TypeError):
                text = row["questions"]
                if digests & {text[at : at + DIGITS] for at in range(0, len(text), DIGITS)}:
                    seen.add(row["look"])
                    yield row
    for _, sealed in scan_versions(root, name):
        if isinstance(sealed, Manifest):
            optimizer, tested = sealed.section("optimizer"), sealed.section("data").get("test", {}).get("questions", ())
            known = "compile" not in optimizer or optimizer["compile"] in seen
            if not known and digests & {digest[:DIGITS] for digest in tested}:
                yield {"look": optimizer["compile"], "number": optimizer.get("test_looks", 0)}
