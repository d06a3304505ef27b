"""Folders of files as documents; what cannot be read is named, never fatal."""

from __future__ import annotations

import difflib
import hashlib
import os
import re
import stat
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import date
from functools import cache as keep_result
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import orjson
from pydantic import TypeAdapter, ValidationError

from ragc.errors import KnowledgeError, SettingsError
from ragc.knowledge.ingest.convert import UnreadableFile
from ragc.knowledge.ingest.csv_rows import SUFFIXES, name_column
from ragc.knowledge.ingest.sections import READ, Document, Parsed, parse_file
from ragc.knowledge.project import Project, find_local
from ragc.passage import TITLE_STEP, Flaw, Passage, ReaderSets, ReadReport, join_readers
from ragc.settings import FILE, KINDS, FileSettings, TablesSettings
from ragc.storage import DiskCache, digest_code

_CODE = "knowledge/ingest/**/*.py text/*.py models/language/fence.py"  # that makes passages of files
_LIBRARIES = (
    "beautifulsoup4 docutils mammoth markdown-it-py mdit-py-plugins openpyxl pypdfium2 pyyaml rapidocr selectolax"
    " semantic-text-splitter sentencex"
)
"""Packages that read files, or cut texts."""
_CACHED = TypeAdapter[Parsed | Flaw](Parsed | Flaw)  # what the cache holds of a file: why it cannot be read, too
_MAX_NAMED = 3  # files that were not read, named where nothing was
_REMEDIES = {
    ending: mend
    for endings, mend in (
        (".xls .xlsb .numbers", "Save it as .xlsx."),
        (".ppt .key", "Save it as .pptx."),
        (".doc .rtf .pages .wpd .wps", "Save it as .docx."),
        (".msg .mbox .pst", "Save each message as .eml."),
        (".png .jpg .jpeg .gif .tif .tiff .webp .bmp .heic .svg", "Save the text in it as .txt, or the scan as .pdf."),
        (".mp3 .wav .m4a .ogg .mp4 .mov .mkv .webm", "Save what is said in it as .vtt, .srt or .txt."),
        (".zip .tar .gz .tgz .7z .rar", "Unpack it into the folder."),
        (".xml .plist .sql .sqlite .db .parquet", "Save what it holds as .csv, .json or .html."),
        (".tex .adoc .org .textile .ipynb .mobi .azw3", "Convert it to .md, .html or .epub."),
        (".url .webloc .lnk", "Save the page that it leads to as .html."),
    )
    for ending in endings.split()
}
_OF_PROGRAMS = (".json", ".jsonl", ".yaml", ".yml", ".log")  # of which many lie about that nobody wrote
_NO_KNOWLEDGE = {"readme", "license", "changelog", "contributing", "notice"}  # of a project, not of what it knows


@dataclass(slots=True)
class FolderContents:
    """The documents of bases in order of path, and what of the folders was not read."""

    documents: list[Document] = field(default_factory=list)
    flaws: list[Flaw] = field(default_factory=list)
    parsed: int = 0
    """How many files were read now, for the cache lacked them."""
    successors: dict[str, list[tuple[str, ReaderSets]]] = field(default_factory=dict)
    """By the id of a passage, the documents that supersede it and their readers, the newest last.

    Left out is what only documents for all supersede.
    """

    def keep_to(self, readers: ReaderSets) -> FolderContents:
        """Return the contents, which are in addition for these readers only."""
        for at, one in enumerate(self.documents if readers else ()):
            passages = tuple(replace(p, readers=join_readers(readers, p.readers)) for p in one.passages)
            self.documents[at] = replace(one, passages=passages, readers=join_readers(readers, one.readers))
        return self

    @property
    def passages(self) -> list[Passage]:
        """Every passage of every document, in order."""
        return [p for document in self.documents for p in document.passages]

    @property
    def report(self) -> ReadReport:
        """The number of files, and the flaws."""
        return ReadReport(len(self.documents) + sum(flaw.unread for flaw in self.flaws), tuple(self.flaws))


def list_bases(project: Project) -> dict[str, FileSettings]:
    """Return the bases that are indexed, by name, their places absolute."""
    found: dict[str, FileSettings] = {}
    for name, base in project.settings.knowledge.items():
        if isinstance(base, FileSettings) and (base.path or isinstance(base, TablesSettings)):
            found[name] = base.model_copy(update={"path" if base.path else "url": str(project.place(base))})
    return found


def read_base(name: str, base: FileSettings, cache: DiskCache | None = None) -> FolderContents:
    """Return the documents of a folder of files.

    A file of tables is named `<base>/<table>`. Files whose bytes `cache` knows are not parsed again. Names that start
    with a dot are not looked at, links to folders are not followed. Raises `KnowledgeError` when the path is absent,
    holds no text at all, or disappears while it is read.
    """
    contents, place = FolderContents(), Path(base.path)
    fresh: dict[str, bytes] = {}
    tables = base.kind == "tables"
    kinds = SUFFIXES if tables else READ
    known: set[str] = set()
    for file, relative in list_files(name, base, contents.flaws):
        path = f"{name}/{relative}".encode(errors="backslashreplace").decode()
        read = _read_document(base, file, path, kinds, cache, fresh)
        shown = f"{name}/{name_column(file.stem)}" if tables else path
        if not isinstance(read, Flaw) and shown.lower() in known and tables:
            read = make_unread(path, f"the table {shown} is that of another file", "Give it a plain name of its own.")
        if isinstance(read, Flaw):
            contents.flaws.append(read)
            continue
        known.add(shown.lower())
        document, flaws = read
        flaws = flaws if document.passages else [*flaws, Flaw("holds no text", lost=False)]
        if isinstance(base, TablesSettings) and len(document.passages) > base.max_rows:
            flaws = [*flaws, tell_rows_left_out(name, base, len(document.passages))]
            counts = Counter[ReaderSets]()  # no row takes the place of one that has other readers
            first = (
                p for p in document.passages if not counts.update([p.readers]) and counts[p.readers] <= base.max_rows
            )
            document = replace(document, passages=tuple(first))
        passages = tuple(
            replace(p, id=shown + p.id.removeprefix(path), source=name, method=KINDS[base.kind].method)
            for p in document.passages
        )
        contents.documents.append(replace(document, path=shown, passages=passages))
        contents.flaws += [replace(flaw, path=path) for flaw in flaws]
    if cache is not None:
        cache.put(fresh)
    contents.parsed = len(fresh)
    if not place.exists():
        raise KnowledgeError(
            f"The folder of the knowledge base {name!r} disappeared while it was read: {place}.",
            "Bring it back, and run `ragc index PROJECT` again; the last index stays as it is.",
        )
    _drop_repeated_ids(contents)
    _name_alike(contents)
    if not contents.passages:
        unread = [f"{flaw.path} {flaw.what}" for flaw in contents.flaws if flaw.unread]
        unread[_MAX_NAMED:] = [f"{len(unread) - _MAX_NAMED} more"] * (len(unread) > _MAX_NAMED)
        why = f" ({'; '.join(unread)})" if unread else ""
        raise KnowledgeError(
            f"The knowledge base {name!r} holds no text: {place}{why}.",
            f"Put {_name_kinds(kinds)} there, or correct `path` under [knowledge.{name}] in ragc.toml.",
        )
    return contents


def _name_alike(contents: FolderContents) -> None:
    """Put the words of a file's name before a title that it has in common with another, where no date tells them."""
    every, texts = contents.documents, Counter((p.title, p.text) for p in contents.passages)
    names = [" ".join(re.findall(r"[^\W\d_]{3,}", Path(one.path).stem)) * (not one.as_of) for one in every]
    alike = Counter(title for title, name in {*zip([one.title for one in every], names, strict=True)} if name)
    for at, (one, name) in enumerate(zip(every, names, strict=True)):
        if name and alike[one.title] > 1 and name.lower() not in one.title.lower():
            titles = [f"{name}{TITLE_STEP}{p.title}" if texts[p.title, p.text] == 1 else p.title for p in one.passages]
            every[at] = replace(
                one, passages=tuple(replace(p, title=t) for p, t in zip(one.passages, titles, strict=True))
            )


def link_superseded(bases: Sequence[FolderContents]) -> FolderContents:
    """Return all bases as one, each superseded passage naming its successor.

    A document supersedes another as a whole, `<base>/<file>`, or one passage of it, `<base>/<file>#<heading>`. Order
    of files and bases does not matter. Of two documents that supersede a third, or each other, the newer counts; where
    neither is newer, both that supersede each other stay.
    """
    whole = FolderContents()
    for base in bases:
        whole.documents += base.documents
        whole.flaws += base.flaws
        whole.parsed += base.parsed
    passages = {d.path: [p.id for p in d.passages] for d in whole.documents}
    for passage in whole.passages:
        file, _, heading = passage.id.partition("#")  # a long section is several passages: #fees, #fees~2
        passages.setdefault(f"{file}#{heading.partition('~')[0]}", []).append(passage.id)
    successors: dict[str, dict[str, ReaderSets]] = {}
    dates = {d.path: d.as_of or date.min for d in whole.documents}
    replaced = {d.path: [old.partition("#") for old in d.supersedes] for d in whole.documents}
    for document in sorted(whole.documents, key=lambda d: (d.as_of or date.min, d.path)):
        for old in document.supersedes:
            file, _, heading = old.partition("#")
            newer = dates[document.path] > dates.get(file, date.min)
            if file == document.path:
                whole.flaws.append(Flaw("supersedes itself", "Name the document that it replaces.", path=document.path))
            elif old in passages and not newer and _leads_back(replaced, file, document.path, heading):
                what = f"supersedes {old!r}, which supersedes it, and is not the newer of the two"
                whole.flaws.append(Flaw(what, "Leave it out of one of them.", path=document.path))
            elif old in passages:
                for id_ in passages[old]:
                    successors.setdefault(id_, {})[document.path] = document.readers
            else:
                near = difflib.get_close_matches(old, passages, n=1)
                mend = f"Did you mean {near[0]}?" if near else "Write it as <base>/<file> or <base>/<file>#<heading>."
                what = f"supersedes {old!r}, which is no document or section"
                whole.flaws.append(Flaw(what, mend, path=document.path))
    for at, document in enumerate(whole.documents):
        if any(p.id in successors for p in document.passages):
            marked = (replace(p, superseded_by=[*successors.get(p.id, ("",))][-1]) for p in document.passages)
            whole.documents[at] = replace(document, passages=tuple(marked))
    whole.successors = {id_: [*found.items()] for id_, found in successors.items() if any(found.values())}
    return whole


def _leads_back(replaced: Mapping[str, Sequence[tuple[str, str, str]]], start: str, goal: str, heading: str) -> bool:
    """Tell whether a document supersedes another, as a whole or under a heading, if through others."""
    known, todo = {start}, [start]
    while todo and goal not in known:
        new = {file for file, _, part in replaced.get(todo.pop(), ()) if part in ("", heading)} - known
        known |= new
        todo += new
    return goal in known


@keep_result
def digest_reading() -> str:
    """Return the digest of the code and the packages that read files."""
    found = [digest_code(Path(__file__).parents[2], _CODE)]
    for name in _LIBRARIES.split():
        with suppress(PackageNotFoundError):  # an extra that is not installed
            found.append(version(name))
    return " ".join(found)


def fingerprint_files(bases: Mapping[str, FileSettings], settings: str = "") -> str:
    """Return a digest of bases, settings and every file, by path, size and time."""
    digest = hashlib.sha256(f"{digest_reading()} {settings}".encode())
    for name, base in bases.items():
        limits = base.model_dump(include={"kind", "chunk_tokens", "max_megabytes", "max_rows", "readers"})
        seen: list[object] = [name, limits]
        with suppress(KnowledgeError):
            for file, relative in list_files(name, base, []):
                try:
                    status = file.stat()
                    seen += [relative, status.st_size, status.st_mtime_ns]
                except OSError:  # a link to nothing
                    seen.append(relative)
        digest.update(repr(seen).encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def list_files(name: str, base: FileSettings, flaws: list[Flaw]) -> Iterator[tuple[Path, str]]:
    """Yield files with their relative posix path, sorted by it on every machine.

    Of a database of SQLite they are its file and its log, of another none.
    """
    if isinstance(base, TablesSettings) and base.url:
        file = find_local(base.url)
        yield from ((one, one.name) for one in (file, Path(f"{file}-wal")) if file and one and one.is_file())
        return
    path = Path(base.path)
    if path.is_file():
        yield path, path.name
        return
    if not path.is_dir():
        raise KnowledgeError(
            f"The folder of the knowledge base {name!r} does not exist: {path}.",
            f"Make it, or correct `path` under [knowledge.{name}] in ragc.toml.",
        )

    def skip_entry(entry: Path, reason: str) -> None:
        shown = f"{name}/{entry.relative_to(path).as_posix()}"
        flaws.append(make_unread(shown, reason, "Move what it holds into the folder."))

    def skip_folder(folder: Path, reason: str | None) -> None:
        skip_entry(folder, f"a folder that is not looked into: {reason}")

    found, own = [], _list_own(path)
    for folder, folders, files in os.walk(path, onerror=lambda e: skip_folder(Path(e.filename), e.strerror)):
        folders[:] = sorted(f for f in folders if not f.startswith(".") and Path(folder, f).resolve() not in own)
        for link in (f for f in folders if Path(folder, f).is_symlink()):
            skip_folder(Path(folder, link), "it is a link")
        for file in (Path(folder, f) for f in sorted(files) if not f.startswith(".")):
            if file.resolve() in own:
                continue
            if file.is_symlink() and not file.resolve().is_relative_to(path.resolve()):
                skip_entry(file, "a link that leads out of the folder")
            else:
                found.append(file)
    # One spelling of accented names, whatever the file system makes of them.
    pairs = [(f, unicodedata.normalize("NFC", f.relative_to(path).as_posix())) for f in found]
    yield from sorted(pairs, key=lambda pair: (pair[1], str(pair[0])))


def make_unread(path: str, reason: str, mend: str, lost: bool = True) -> Flaw:
    """Return the flaw of a file that is not read."""
    return Flaw(f"was not read: {reason.rstrip('.')}", mend, path=path, unread=True, lost=lost)


def _name_kinds(kinds: Sequence[str]) -> str:
    """Return the usual ones of the kinds that are read."""
    usual = [one for one in (".md", ".txt", ".html", ".pdf", ".docx", ".xlsx", ".csv", ".tsv") if one in kinds]
    return f"{', '.join(usual)} files{' and the like' * (len(usual) < len(kinds))}"


def list_documents(folder: Path, deep: bool = False) -> list[Path]:
    """Return the documents that lie in a folder, `deep`: in those within it, too."""
    own, found = _list_own(folder), list[Path]()
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(one for one in folders if deep and not one.startswith(".") and Path(place, one) not in own)
        found += (Path(place, name) for name in sorted(files) if Path(name).stem.lower() not in _NO_KNOWLEDGE)
    return [one for one in found if one.suffix.lower() in READ and one.suffix.lower() not in _OF_PROGRAMS]


def find_strays(project: Project) -> list[Flaw]:
    """Return a flaw for documents beside `ragc.toml` that lie in no knowledge base."""
    places = [Path(base.path).resolve() for base in list_bases(project).values() if base.path]
    files = list_documents(project.folder)
    stray = [file.name for file in files if not any(file.is_relative_to(place) for place in places)]
    if not stray:
        return []
    what = f"{len(stray)} {'document lies' if len(stray) == 1 else 'documents lie'} in no knowledge base"
    named = ", ".join([*stray[:_MAX_NAMED], "..."][: len(stray)])
    mend = 'Move what answers questions into the `path` of one, or set path = "." in ragc.toml.'
    return [Flaw(f"{what}: {named}", mend, path=project.folder.name, lost=False)]


def _list_own(folder: Path) -> set[Path]:
    """Return what in a folder is a project's own, if it is one's."""
    with suppress(SettingsError):
        project = Project.open(folder)
        return {project.folder / FILE, project.labelled, project.reviewed, project.artifacts}
    return set()


def tell_rows_left_out(name: str, base: TablesSettings, rows: int) -> Flaw:
    """Return the flaw of a table with more rows than become passages."""
    what = f"has {rows:,} rows, of which the first {base.max_rows:,} are passages"
    return Flaw(what, f"Raise `max_rows` under [knowledge.{name}] in ragc.toml; a SELECT reads all of them.")


def _read_document(
    base: FileSettings, file: Path, path: str, kinds: Sequence[str], cache: DiskCache | None, fresh: dict[str, bytes]
) -> Parsed | Flaw:
    """Return a file's document and flaws, or why it is not read; what the cache lacks is added to `fresh`."""
    if file.suffix.lower() not in kinds:
        mend = _REMEDIES.get(file.suffix.lower(), "Save it as one of them.")
        mend = "Save it as .csv." if kinds == SUFFIXES else mend
        return make_unread(path, f"only {_name_kinds(kinds)} are read", mend, lost=False)
    try:
        content = _read_bytes(file, base.max_megabytes)
    except UnreadableFile as error:
        return make_unread(path, error.what, error.mend)
    key = f"{digest_reading()} {base.chunk_tokens} {base.max_megabytes} {hashlib.sha256(content).hexdigest()} {path}"
    kept = cache.get([key]) if cache else {}
    with suppress(KeyError, ValidationError):  # not kept, or damaged
        return _CACHED.validate_json(kept[key])
    try:
        parsed: Parsed | Flaw = parse_file(path, content, base.chunk_tokens, base.max_megabytes)
    except UnreadableFile as error:
        parsed = make_unread(path, error.what, error.mend)
    fresh[key] = orjson.dumps(parsed)
    return parsed


def _read_bytes(file: Path, megabytes: float) -> bytes:
    """Return the bytes of a file, or raise `UnreadableFile`."""
    try:
        status = file.stat()
        if not stat.S_ISREG(status.st_mode):
            raise UnreadableFile("not a regular file", "Put a file in its place.")
        if status.st_size > megabytes * 1e6:
            why = f"it has {status.st_size / 1e6:.1f} MB, and max_megabytes is {megabytes:g}"
            raise UnreadableFile(why, "Cut it up, or raise max_megabytes.")
        return file.read_bytes()
    except OSError as error:
        raise UnreadableFile(f"{error.strerror}", "Mend access to it.") from error


def _drop_repeated_ids(contents: FolderContents) -> None:
    """Keep the first passage of each id: an id must cite one text."""
    seen: dict[str, Passage] = {}
    for at, document in enumerate(contents.documents):
        for passage in (p for p in document.passages if seen.setdefault(p.id, p) is not p):
            what = f"the id {passage.id!r} is that of {seen[passage.id].link}, and the passage was left out"
            line = re.search(r":(\d+)-\d+$", passage.link)
            contents.flaws.append(Flaw(what, "Rename one.", int(line[1]) if line else 0, path=document.path))
        kept = tuple(p for p in document.passages if seen[p.id] is p)
        contents.documents[at] = replace(document, passages=kept)
