"""A folder of files as documents, each a list of passages; what cannot be read is named, never fatal."""

from __future__ import annotations

import difflib
import os
import re
import stat
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path

from program.errors import KnowledgeError
from program.knowledge.bases import KINDS, BaseSpec
from program.knowledge.ingest.chunks import TOKENS
from program.knowledge.ingest.convert import Unreadable
from program.knowledge.ingest.parsedfile import Known, ParsedFiles
from program.knowledge.ingest.sections import MEGABYTES, READ, Document
from program.passage import Flaw, Passage

SHOWN = 3  # files that were skipped, named where nothing was read


@dataclass(frozen=True, slots=True)
class Skipped:
    """A file that was not read, and why."""

    path: str
    reason: str


@dataclass(slots=True)
class Reading:
    """What one or several folders hold: documents in order of path, files left out, and flaws of the others."""

    documents: list[Document] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    flaws: list[Flaw] = field(default_factory=list)

    @property
    def passages(self) -> list[Passage]:
        """Every passage of every document, in order."""
        return [p for document in self.documents for p in document.passages]


def read_base(
    name: str,
    path: Path,
    method: str = "dense",
    *,
    limit: int = TOKENS,
    megabytes: float = MEGABYTES,
    kept: ParsedFiles | None = None,
) -> Reading:
    """The documents of the base `name` in a folder (or one file), each passage marked with `method`.

    `limit` is a passage's size in tokens; files over so many `megabytes` are skipped; a file that `kept` knows
    is not parsed again. Names that start with a dot are not looked at, links to folders are not followed.
    Raises KnowledgeError when `path` is absent, holds no text at all, or disappears while it is read.
    """
    reading = Reading()
    kept = kept or ParsedFiles(None)
    with kept.of(name, limit, megabytes) as known:
        for file, relative in _files(reading, name, path):
            _read_file(reading, name, file, relative, method, known)
    if not path.exists():
        raise KnowledgeError(
            f"The folder of the knowledge base {name!r} disappeared while it was read: {path}.",
            "Bring it back, and run `ragc index PROJECT` again; the last index stays as it is.",
        )
    _drop_repeats(reading)
    if not reading.passages:
        left_out = [f"{one.path}: {one.reason.rstrip('.')}" for one in reading.skipped[:SHOWN]]
        left_out += [f"{more} more"] if (more := len(reading.skipped) - SHOWN) > 0 else []
        skipped = f" (skipped: {'; '.join(left_out)})" if left_out else ""
        raise KnowledgeError(
            f"The knowledge base {name!r} holds no text: {path}{skipped}.",
            f"Put {', '.join(READ)} files there, or correct `path` under [knowledge.{name}] in ragc.toml.",
        )
    return reading


def read_spec(base: BaseSpec, kept: ParsedFiles | None = None) -> Reading:
    """`read_base` for a base as its project declares it."""
    method, limit, megabytes = KINDS[base.kind], base.chunk_tokens, base.max_megabytes
    return read_base(base.name, Path(base.path), method, limit=limit, megabytes=megabytes, kept=kept)


def link_superseded(readings: Sequence[Reading]) -> Reading:
    """All bases as one reading, every superseded passage naming the document that replaced it.

    A document supersedes another as a whole, `<base>/<file>`, or one passage of it, `<base>/<file>#<heading>`. Order of
    files and bases does not matter. Of two documents that supersede a third, the newer counts.
    """
    whole = Reading(
        documents=[d for r in readings for d in r.documents],
        skipped=[s for r in readings for s in r.skipped],
        flaws=[f for r in readings for f in r.flaws],
    )
    passages = {d.path: [p.id for p in d.passages] for d in whole.documents}
    for id_ in [id_ for ids in passages.values() for id_ in ids]:
        file, _, heading = id_.partition("#")  # a long section is several passages: #fees, #fees~2
        passages.setdefault(f"{file}#{heading.partition('~')[0]}", []).append(id_)
    successor: dict[str, str] = {}
    for document in sorted(whole.documents, key=lambda d: (d.as_of or date.min, d.path)):
        for old in document.supersedes:
            if old.partition("#")[0] == document.path:
                whole.flaws.append(Flaw("supersedes itself", "Name the document that it replaces.", path=document.path))
            elif old not in passages:
                near = difflib.get_close_matches(old, passages, n=1)
                mend = f"Did you mean {near[0]}?" if near else "Write it as <base>/<file> or <base>/<file>#<heading>."
                whole.flaws.append(
                    Flaw(f"supersedes {old!r}, which is no document or section", mend, path=document.path)
                )
            else:
                successor.update(dict.fromkeys(passages[old], document.path))
    whole.documents = [
        replace(d, passages=tuple(replace(p, superseded_by=successor.get(p.id, "")) for p in d.passages))
        if any(p.id in successor for p in d.passages)
        else d
        for d in whole.documents
    ]
    return whole


def _files(reading: Reading, name: str, path: Path) -> Iterator[tuple[Path, str]]:
    """Files with their relative path in posix form, sorted by it: every machine reads in one order."""
    if path.is_file():
        yield path, path.name
        return
    if not path.is_dir():
        raise KnowledgeError(
            f"The folder of the knowledge base {name!r} does not exist: {path}.",
            f"Make it, or correct `path` under [knowledge.{name}] in ragc.toml.",
        )

    def skip(folder: str, reason: str | None) -> None:
        relative = Path(folder).relative_to(path).as_posix()
        reading.skipped.append(Skipped(f"{name}/{relative}", f"a folder that is not looked into: {reason}"))

    found = []
    for folder, folders, files in os.walk(path, onerror=lambda e: skip(str(e.filename), e.strerror)):
        folders[:] = sorted(f for f in folders if not f.startswith("."))
        for link in (f for f in folders if Path(folder, f).is_symlink()):
            skip(str(Path(folder, link)), "it is a link")
        for file in (Path(folder, f) for f in sorted(files) if not f.startswith(".")):
            if file.is_symlink() and not file.resolve().is_relative_to(path.resolve()):
                relative = file.relative_to(path).as_posix()
                reading.skipped.append(Skipped(f"{name}/{relative}", "a link that leads out of the folder"))
            else:
                found.append(file)
    # One spelling of accented names, whatever the file system makes of them.
    pairs = [(f, unicodedata.normalize("NFC", f.relative_to(path).as_posix())) for f in found]
    yield from sorted(pairs, key=lambda pair: (pair[1], str(pair[0])))


def _read_file(reading: Reading, base: str, file: Path, relative: str, method: str, known: Known) -> None:
    path = f"{base}/{relative}".encode(errors="backslashreplace").decode()
    try:
        document, flaws = known.parsed(path, _content(file, known.megabytes))
    except Unreadable as error:
        reading.skipped.append(Skipped(path, error.what))
        return
    passages = tuple(replace(p, source=base, method=method) for p in document.passages)
    reading.documents.append(replace(document, passages=passages))
    reading.flaws += [replace(flaw, path=path) for flaw in flaws]
    if not passages:
        reading.flaws.append(Flaw("holds no text", lost=False, path=path))


def _content(file: Path, megabytes: float) -> bytes:
    """The bytes of a file. Raises Unreadable, saying why, for one that is not to be read."""
    if file.suffix.lower() not in READ:
        raise Unreadable(f"only {', '.join(READ)} files are read")
    try:
        status = file.stat()
        if not stat.S_ISREG(status.st_mode):
            raise Unreadable("not a regular file")
        if status.st_size > megabytes * 1e6:
            raise Unreadable(f"it has {status.st_size / 1e6:.1f} MB, and max_megabytes is {megabytes:g}")
        return file.read_bytes()
    except OSError as error:
        raise Unreadable(f"cannot be read: {error.strerror}") from error


def _line(passage: Passage) -> int:
    """The line that a passage begins on, 0 where its link does not tell."""
    found = re.search(r":(\d+)-\d+$", passage.link)
    return int(found[1]) if found else 0


def _drop_repeats(reading: Reading) -> None:
    """Keep the first passage of each id; the others are flaws, for an id must cite one text."""
    seen: dict[str, str] = {}
    for at, document in enumerate(reading.documents):
        kept = []
        for passage in document.passages:
            if passage.id in seen:
                first = seen[passage.id]
                what = f"the id {passage.id!r} is that of {first}, and the passage was left out"
                reading.flaws.append(Flaw(what, "Rename one.", _line(passage), path=document.path))
            else:
                seen[passage.id] = passage.link
                kept.append(passage)
        reading.documents[at] = replace(document, passages=tuple(kept))
