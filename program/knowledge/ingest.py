"""A folder of files as documents, each a list of passages; what cannot be read is named, never fatal."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path

from program.errors import KnowledgeError
from program.knowledge import metadata, records
from program.knowledge.markdown import Section, paragraphs, sections
from program.knowledge.source import Passage

READ = (".md", ".txt", ".jsonl", ".csv")
"""Endings of the files that are read."""


@dataclass(frozen=True, slots=True)
class Document:
    """One file: `path` is `<base>/<file relative to the base>`; `supersedes` holds such paths."""

    path: str
    title: str
    as_of: date | None
    supersedes: tuple[str, ...]
    passages: tuple[Passage, ...]


@dataclass(frozen=True, slots=True)
class Skipped:
    """A file that was not read, and why."""

    path: str
    reason: str


@dataclass(slots=True)
class Reading:
    """What one or several folders hold: documents in order of path, files left out, sentences of warning."""

    documents: list[Document] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    @property
    def passages(self) -> list[Passage]:
        """Every passage of every document, in order."""
        return [p for document in self.documents for p in document.passages]


def read_base(name: str, path: Path, method: str = "dense") -> Reading:
    """The documents of the base `name` in a folder (or one file), each passage marked with `method`.

    Names that start with a dot are not looked at, links to folders are not followed. Raises KnowledgeError
    when `path` is absent or holds no text at all.
    """
    reading = Reading()
    for file, relative in _files(reading, name, path):
        _read_file(reading, name, file, relative, method)
    _drop_repeats(reading)
    if not reading.passages:
        left_out = f" ({len(reading.skipped)} files were skipped)" if reading.skipped else ""
        raise KnowledgeError(
            f"The knowledge base {name!r} holds no text: {path}{left_out}.",
            f"Put {', '.join(READ)} files there, or correct `path` under [knowledge.{name}] in ragc.toml.",
        )
    return reading


def link_superseded(readings: Sequence[Reading]) -> Reading:
    """All bases as one reading, every passage of a superseded document naming the document that replaced it.

    Order of files and bases does not matter. Of two documents that supersede a third, the newer counts.
    """
    whole = Reading(
        documents=[d for r in readings for d in r.documents],
        skipped=[s for r in readings for s in r.skipped],
        warnings=[w for r in readings for w in r.warnings],
    )
    known = {d.path for d in whole.documents}
    successor: dict[str, str] = {}
    for document in sorted(whole.documents, key=lambda d: (d.as_of or date.min, d.path)):
        for old in document.supersedes:
            if old == document.path:
                whole.warnings.append(f"{document.path}: supersedes itself, which was left out.")
            elif old not in known:
                whole.warnings.append(
                    f"{document.path}: supersedes {old!r}, which is no document; write it as <base>/<file>."
                )
            else:
                successor[old] = document.path
    whole.documents = [
        replace(d, passages=tuple(replace(p, superseded_by=successor[d.path]) for p in d.passages))
        if d.path in successor
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
        found += [Path(folder, f) for f in files if not f.startswith(".")]
    # One spelling of accented names, whatever the file system makes of them.
    pairs = [(f, unicodedata.normalize("NFC", f.relative_to(path).as_posix())) for f in found]
    yield from sorted(pairs, key=lambda pair: (pair[1], str(pair[0])))


def _read_file(reading: Reading, base: str, file: Path, relative: str, method: str) -> None:
    path = f"{base}/{relative}".encode(errors="backslashreplace").decode()
    suffix = file.suffix.lower()
    if suffix not in READ:
        reading.skipped.append(Skipped(path, f"only {', '.join(READ)} files are read"))
        return
    try:
        if not file.is_file():
            raise OSError(0, "not a regular file")
        text = file.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        reading.skipped.append(Skipped(path, f"not UTF-8 text (byte {error.start})"))
        return
    except OSError as error:
        reading.skipped.append(Skipped(path, f"cannot be read: {error.strerror}"))
        return
    if "\0" in text:
        reading.skipped.append(Skipped(path, "binary"))
        return
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    parse = _records if suffix in (".jsonl", ".csv") else _prose
    document, warnings = parse(path, text, suffix)
    passages = tuple(
        replace(p, id=_sound(p.id), title=_sound(p.title), text=_sound(p.text), source=base, method=method)
        for p in document.passages
    )
    reading.documents.append(replace(document, passages=passages))
    reading.warnings += [f"{path}: {warning}." for warning in warnings]
    if not passages:
        reading.warnings.append(f"{path}: holds no text.")


def _prose(path: str, text: str, suffix: str) -> tuple[Document, list[str]]:
    about, body, first_line = metadata.split(text)
    if suffix == ".md":
        heading, parts = sections(body, first_line)
    else:
        heading, parts = "", paragraphs(body, first_line)
    title = about.title or heading or _stem(path)
    as_of = about.as_of or metadata.day(path.rpartition("/")[2])
    passages = tuple(
        Passage(
            id=f"{path}#{part.slug}",
            source="",
            title=" > ".join((title, *_crumbs(part, title, heading))),
            text=part.text,
            as_of=as_of,
            authority=about.authority,
            link=f"{path}:{part.first}-{part.last}",
            attributes=about.attributes,
        )
        for part in parts
    )
    return Document(path, title, as_of, about.supersedes, passages), list(about.warnings)


def _crumbs(part: Section, title: str, heading: str) -> tuple[str, ...]:
    """The headings that the title does not already say: the document's # heading stands for the title."""
    under_main = len(part.path) > 1 and part.path[0] == heading
    return tuple(h for h in part.path[under_main:] if h != title)


def _records(path: str, text: str, suffix: str) -> tuple[Document, list[str]]:
    rows = records.read_jsonl(text) if suffix == ".jsonl" else records.read_csv(text)
    title, dated = _stem(path), metadata.day(path.rpartition("/")[2])
    passages = tuple(
        Passage(
            id=f"{path}#{row.key}",
            source="",
            title=row.title or title,
            text=row.text,
            as_of=row.metadata.as_of or dated,
            authority=row.metadata.authority,
            link=f"{path}:{row.first}-{row.last}",
            attributes=row.metadata.attributes,
        )
        for row in rows.records
    )
    return Document(path, title, dated, (), passages), rows.warnings


def _sound(text: str) -> str:
    """The text without lone surrogates, which JSON and YAML escapes can spell and UTF-8 cannot hold."""
    return text.encode("utf-8", "replace").decode()


def _stem(path: str) -> str:
    """A title from the file's name: `refund-policy_2024.txt` is "refund policy 2024"."""
    return Path(path).stem.replace("-", " ").replace("_", " ").strip()


def _drop_repeats(reading: Reading) -> None:
    """Keep the first passage of each id and warn of the others: an id must cite one text."""
    seen: dict[str, str] = {}
    for at, document in enumerate(reading.documents):
        kept = []
        for passage in document.passages:
            if passage.id in seen:
                first = seen[passage.id]
                reading.warnings.append(
                    f"{passage.link}: has the id {passage.id!r} of {first} and was left out; rename one."
                )
            else:
                seen[passage.id] = passage.link
                kept.append(passage)
        reading.documents[at] = replace(document, passages=tuple(kept))
