"""Public question sets as a project's knowledge folder and labelled questions."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from optimize.labelled.dataset import LabelledQuestion, read_labelled
from optimize.labelled.facts import states
from optimize.labelled.importformats import FORMATS, Imported, Passages, detected
from program.errors import DataError
from program.project import Project
from program.serve.reference import name_from
from program.settings import BASE_NAME, FILE

SHARD = 40_000_000
"""Characters after which a corpus goes on in another file: below the size at which files are skipped."""

NEW = 'name = "{name}"\nartifacts = "artifacts"\n'
BASE = '\n[knowledge.{base}]\nkind = "documents"\npath = "knowledge/{base}"\nabout = "passages of {source}"\n'


@dataclass(slots=True)
class ImportReport:
    """What an import wrote. `unchecked` counts answers no passage states, so that no fact was made of them."""

    format: str
    base: str
    questions: int = 0
    passages: int = 0
    unchecked: int = 0
    files: list[str] = field(default_factory=list)


def import_set(folder: Path, source: Path, format: str = "", base: str = "", limit: int | None = None) -> ImportReport:
    """Adds a public set (its first `limit` questions) to the project in `folder`, which is made when there is none.

    Passages go to `knowledge/<base>`, questions to the end of its labelled file. Raises `DataError` for a set
    that is absent, of another format, or imported already.
    """
    if not source.exists():
        raise DataError(f"There is nothing at {source}.", "Name the file or folder that you downloaded.")
    named, format = bool(format), format or detected(source)
    if format not in FORMATS:
        raise DataError(f"There is no format {format!r}.", f"Use one of: {', '.join(FORMATS)}.")
    report = ImportReport(format, base or format.replace("2wiki", "twowiki"))
    if not re.fullmatch(BASE_NAME, report.base):
        raise DataError(f"{report.base!r} is no name for a knowledge base.", "Use lower-case letters, digits and _.")
    passages = Passages()
    try:
        found = list(islice(FORMATS[format](source, passages), limit))
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, OSError, RecursionError) as error:
        others = ", ".join(each for each in FORMATS if each != format)
        raise DataError(
            f"{source} cannot be read as {format}: {type(error).__name__}: {str(error)[:120]}.",
            f"Look whether it is whole{' and the right file' if named else ''}, or name another --format: {others}.",
        ) from error
    if not found:
        raise DataError(f"{source} holds no questions.", "Look whether it is the whole set, with its labels.")
    _write(folder, source, found, passages, report)
    return report


def _write(folder: Path, source: Path, found: Sequence[Imported], passages: Passages, report: ImportReport) -> None:
    base, toml = report.base, folder / FILE
    place = folder / "knowledge" / base
    project = Project.open(folder) if toml.is_file() else None
    if project is None and not passages.texts:
        raise DataError(
            f"{source} brings no passages, and {folder} is no project.", f"Run: ragc init {shlex.quote(str(folder))}"
        )
    if place.exists() or (project is not None and base in project.settings.knowledge):
        raise DataError(f"The project has a knowledge base {base!r} already.", "Give the import another name: --base.")
    labelled = project.labelled if project is not None else folder / "labelled.jsonl"
    taken = {q.id for q in read_labelled(labelled)} if labelled.is_file() and labelled.stat().st_size else set()
    if again := next((item.id for item in found if item.id in taken), None):
        raise DataError(f"The labelled questions have the id {again!r} already.", "Import each set once.")

    where = {}
    if passages.texts:
        place.mkdir(parents=True)
        for number, shard in enumerate(_shards(passages), 1):
            name = "corpus.jsonl" if number == 1 else f"corpus-{number}.jsonl"
            (place / name).write_text("".join(line for _, line in shard), encoding="utf-8")
            where.update({key: f"{base}/{name}#{key}" for key, _ in shard})
            report.files.append(str(place / name))
    topics = _topics(found, base)
    lines = []
    for item in found:
        question, stated = _question(item, where, passages, topics[item.id], base if where else "")
        report.unchecked += not stated
        fields = question.model_dump(mode="json", exclude_defaults=True, exclude={"line"})
        lines.append(json.dumps(fields, ensure_ascii=False) + "\n")
    _add(labelled, "".join(lines))
    name = name_from(folder.resolve().name)
    table = BASE.format(base=base, source=source.name.replace('"', "")) if where else ""
    if project is None or table:
        _add(toml, ("" if project else NEW.format(name=name)) + table)
    report.questions, report.passages = len(found), len(where)
    report.files += [str(labelled), str(toml)]


def _add(file: Path, text: str) -> None:
    """Appends to a file by way of a whole new one, so that a kill leaves either."""
    before = file.read_text(encoding="utf-8") if file.is_file() else ""
    if before and not before.endswith("\n"):
        before += "\n"
    file.parent.mkdir(parents=True, exist_ok=True)
    aside = file.with_name(f"{file.name}.new")
    aside.write_text(before + text, encoding="utf-8")
    aside.replace(file)


def _shards(passages: Passages) -> Iterator[list[tuple[str, str]]]:
    shard: list[tuple[str, str]] = []
    size = 0
    for key, (title, text) in passages.texts.items():
        line = json.dumps({"_id": key, "title": title, "text": text}, ensure_ascii=False) + "\n"
        if shard and size + len(line.encode()) > SHARD:
            yield shard
            shard, size = [], 0
        shard.append((key, line))
        size += len(line.encode())
    if shard:
        yield shard


def _question(
    item: Imported, where: dict[str, str], passages: Passages, topic: str, base: str
) -> tuple[LabelledQuestion, bool]:
    """The question with the labels that hold, and whether its answer, if it has one, is a fact of its evidence."""
    evidence = [key for key in item.evidence if key in where] if item.answered else []
    told = "\n\n".join("\n\n".join(passages.texts[key]) for key in evidence)
    spellings = tuple(dict.fromkeys(answer for answer in item.answers if answer.strip()))
    stated = item.answered and bool(evidence) and any(states(told, spelling) for spelling in spellings)
    sub_queries = item.sub_queries if 2 <= len(item.sub_queries) <= 4 else ()
    question = LabelledQuestion(
        id=item.id,
        question=item.question,
        topic=topic,
        outcome="answered" if item.answered else "abstain",
        route="complex" if sub_queries or len(evidence) > 1 else "simple",
        sources=(base,) if base and (evidence or not item.answered) else (),
        sub_queries=sub_queries,
        evidence=tuple(where[key] for key in evidence),
        facts=((spellings if len(spellings) > 1 else spellings[0]),) if stated else (),
        answer=spellings[0] if item.answered and spellings else "",
        tags=item.tags,
    )
    return question, stated or not (item.answered and spellings)


def _topics(found: Sequence[Imported], base: str) -> dict[str, str]:
    """A topic for each question: its own, or one for all questions that evidence links to each other."""
    leader: dict[str, str] = {}

    def root(key: str) -> str:
        while leader.setdefault(key, key) != key:
            leader[key] = leader[leader[key]]
            key = leader[key]
        return key

    for item in found:
        for key in item.evidence:
            leader[root(f"passage {key}")] = root(f"question {item.id}")
    names: dict[str, str] = {}
    return {
        item.id: item.topic or names.setdefault(root(f"question {item.id}"), f"{base}-{len(names) + 1}")
        for item in found
    }
