"""Question sets, public ones and one's own tables and test cases, as knowledge and labelled questions.

An answer without evidence is looked up in the documents that the project has: the passage that states it is proposed
as the evidence.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ragc.errors import DataError
from ragc.knowledge.ingest.convert import UnreadableFile
from ragc.knowledge.ingest.csv_rows import EXCEL, SUFFIXES
from ragc.knowledge.project import Project, mend_folder
from ragc.optimize.labelled.dataset import LabelledQuestion, read_labelled
from ragc.optimize.labelled.draft import find_support
from ragc.optimize.labelled.formats import Item, Passages, list_objects, read_beir, read_cases, read_squad
from ragc.optimize.labelled.leaks import link_components
from ragc.passage import Flaw
from ragc.serve.opening import open_library
from ragc.serve.reference import name_from
from ragc.settings import BASE_NAME, FILE, MAX_MEGABYTES
from ragc.storage import ASIDE, write_whole
from ragc.text.facts import normalise_text, states
from ragc.text.history import read_history

NEW = 'name = "{name}"\nartifacts = "artifacts"\n'
BASE = '\n[knowledge.{base}]\nkind = "documents"\npath = "knowledge/{base}"\nabout = "passages of {source}"\n'
_MARKS = {
    **{"musique": '"paragraph_text"', "squad": '"qas"'},
    **{"2wiki": '"evidences"', "hotpotqa": '"supporting_facts"'},
    **{"ragas": '"user_input"', "deepeval": '"expected_output"', "promptfoo": '"vars"'},
    **{"evals": '"ideal"'},
}


PROPOSED = "proposed"
"""The tag of a question whose evidence and facts were looked up in the documents."""


@dataclass(slots=True)
class ImportReport:
    """What an import wrote."""

    format: str  # the layout of the set
    base: str  # the knowledge base that was made
    questions: int = 0  # questions added
    passages: int = 0  # passages written
    proposed: int = 0  # answers whose evidence was found in the documents of the project
    unchecked: int = 0  # answers that no passage states, so that no fact was made of them
    contrary: int = 0  # unanswerable questions left out, since the set answers them elsewhere
    files: list[str] = field(default_factory=list)  # the files that were written
    flaws: list[Flaw] = field(default_factory=list)  # what of the set was not read, or is probably not meant


def import_set(
    folder: Path,
    source: Path,
    format: str = "",
    base: str = "",
    limit: int | None = None,
    *,
    question: str = "",
    answer: str = "",
    abstain: bool = False,
) -> ImportReport:
    """Add a set, or its first `limit` questions, to a project, new or old.

    `question` and `answer` name the columns of a table; with `abstain` a question without an answer is one to abstain
    from, else it is left out.

    Passages go to `knowledge/<base>`, questions to the end of the labelled file, and last the base into `ragc.toml`:
    until then the set is not imported, and what is there of it is taken over. Raises `DataError` for a set that is
    absent, of another format, or imported already.
    """
    if not source.exists():
        raise DataError(f"There is nothing at {source}.", "Name the file or folder that you downloaded.")
    named, format = bool(format), format or _detect_format(source)
    if format not in FORMATS:
        raise DataError(f"There is no format {format!r}.", f"Use one of: {', '.join(FORMATS)}.")
    report = ImportReport(format, base or format.replace("2wiki", "twowiki"))
    if not re.fullmatch(BASE_NAME, report.base):
        raise DataError(f"{report.base!r} is no name for a knowledge base.", "Use lower-case letters, digits and _.")
    passages = Passages(question, answer, abstain, (folder / FILE).is_file())
    try:
        items = list(FORMATS[format](source, passages))[:limit]
    except UnreadableFile as error:
        raise DataError(f"{source} was not read: {error.what}.", error.mend) from error
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, OSError, RecursionError) as error:
        others = ", ".join(each for each in FORMATS if each != format)
        why = str(error)[:120] if isinstance(error, ValueError | OSError) else "it is of another shape"
        raise DataError(
            f"{source} cannot be read as {format}: {f'it lacks {error}' if isinstance(error, KeyError) else why}.",
            f"Look whether it is whole{' and the right file' if named else ''}, or name another --format: {others}.",
        ) from error
    report.flaws = passages.flaws
    answered = {normalise_text(item.question) for item in items if item.answered}
    kept = [item for item in items if item.answered or normalise_text(item.question) not in answered]
    report.contrary, items = len(items) - len(kept), kept
    if not items:
        why = " ".join(map(str, passages.flaws))
        mend = "" if why else "Look whether it is the whole set, with its labels."
        raise DataError(f"{source} holds no questions{' that can be used' if why else ''}. {why}".strip(), mend)
    _add_to_project(folder, source, items, passages, report)
    return report


def _add_to_project(
    folder: Path, source: Path, items: Sequence[Item], passages: Passages, report: ImportReport
) -> None:
    base, toml = report.base, folder / FILE
    project = Project.open(folder) if toml.is_file() else None
    if project is None and not passages.texts:
        raise DataError(f"{source} brings no passages, and {folder} is no project.", mend_folder(folder))
    corpus = folder / "knowledge" / base / "corpus.jsonl"
    own = {path.name for path in corpus.parent.iterdir()} if corpus.parent.exists() else set()
    strange = {name for name in own if not name.startswith(ASIDE)} - {corpus.name}
    if passages.texts and (strange or (project is not None and base in project.settings.knowledge)):
        raise DataError(f"The project has a knowledge base {base!r} already.", "Give the import another name: --base.")

    ids = {key: f"{base}/corpus.jsonl#{key}" for key in passages.texts}
    if project is not None:
        looked = _look_up(items, project, source)
        report.proposed, items = sum(a is not b for a, b in zip(items, looked, strict=True)), looked
    topics = _name_topics(items, base)
    questions = [_label_item(item, ids, passages, topics[item.id], base if ids else "") for item in items]
    labelled = project.labelled if project is not None else folder / "labelled.jsonl"
    read = read_labelled(labelled) if labelled.is_file() and labelled.stat().st_size else []
    taken = {question.id: question.model_copy(update={"line": 0}) for question in read}
    kept = {q.id for q in questions if ids and own and taken.get(q.id) == q}  # of an import that did not end
    if again := next((q.id for q in questions if q.id in taken.keys() - kept), None):
        raise DataError(f"The labelled questions have the id {again!r} already.", "Import each set once.")
    report.unchecked = sum(bool(q.answer and not q.facts) for q in questions)
    settings = "" if project else NEW.format(name=name_from(folder.resolve().name))
    if ids:
        corpus.unlink(missing_ok=True)
        _append_rows(
            corpus, ({"_id": key, "title": title, "text": text} for key, (title, text) in passages.texts.items())
        )
        report.files.append(str(corpus))
        settings += BASE.format(base=base, source=source.name.replace('"', ""))
        if (megabytes := corpus.stat().st_size / 1e6) > MAX_MEGABYTES:
            settings += f"max_megabytes = {math.ceil(megabytes)}\n"
    new = (q for q in questions if q.id not in kept)
    _append_rows(labelled, (q.model_dump(mode="json", exclude_defaults=True, exclude={"line"}) for q in new))
    _append_text(toml, settings)
    report.questions, report.passages = len(items), len(ids)
    report.files += [str(labelled), str(toml)]


def _look_up(items: Sequence[Item], project: Project, source: Path) -> list[Item]:
    """Return the items, those with an answer and no evidence with what the documents of the project say of it."""
    bare = {item.id for item in items if item.answered and any(item.answers) and not item.evidence}
    if not bare:
        return [*items]
    library, found = open_library(project), list[Item]()
    for item in items:
        wanted = [(fact,) if isinstance(fact, str) else fact for fact in item.facts] or [item.answers]
        supports = [find_support(item.question, one, library, source.name) for one in wanted if item.id in bare]
        if supports and all(supports):
            evidence = tuple({one.evidence: None for one in supports if one})
            facts, tags = tuple(one.fact for one in supports if one), (*item.tags, PROPOSED)
            found.append(replace(item, evidence=evidence, facts=facts, tags=tags))
        else:
            found.append(item)
    return found


def _append_rows(file: Path, rows: Iterable[dict[str, Any]]) -> None:
    _append_text(file, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def _append_text(file: Path, text: str) -> None:
    before = file.read_text(encoding="utf-8") if file.is_file() else ""
    file.parent.mkdir(parents=True, exist_ok=True)
    gap = "\n" if before and not before.endswith("\n") else ""
    write_whole(file, f"{before}{gap}{text}".encode())


def _label_item(item: Item, ids: Mapping[str, str], passages: Passages, topic: str, base: str) -> LabelledQuestion:
    """Return the labels that hold: an answer that no passage states is no fact."""
    keys = item.evidence if item.answered else ()
    evidence = [ids.get(key, key) for key in keys if key in ids or PROPOSED in item.tags]
    text = "\n\n".join("\n\n".join(passages.texts[key]) for key in keys if key in ids)
    spellings = tuple(dict.fromkeys(answer for answer in item.answers if answer.strip())) if item.answered else ()
    sub_queries = item.sub_queries if 2 <= len(item.sub_queries) <= 4 else ()
    facts = item.facts or ((spellings if len(spellings) > 1 else "".join(spellings),) if spellings else ())
    stated = PROPOSED in item.tags or (bool(evidence) and all(states(text, fact) for fact in facts))
    return LabelledQuestion(
        id=item.id,
        question=item.question,
        history=read_history(item.history),
        topic=topic,
        outcome="answered" if item.answered else "abstain",
        route="complex" if sub_queries or len(evidence) > 1 else "simple",
        sources=(base,) if base and not item.answered else tuple({id_.partition("/")[0]: None for id_ in evidence}),
        sub_queries=sub_queries,
        evidence=tuple(evidence),
        facts=facts if stated else (),
        answer=spellings[0] if spellings else "",
        tags=item.tags,
    )


def _name_topics(items: Sequence[Item], base: str) -> dict[str, str]:
    """Return a topic for each question: its own, or that of its shared evidence."""
    links = [(f"passage {key}", f"question {item.id}") for item in items for key in item.evidence]
    component = link_components([*((f"question {item.id}",) * 2 for item in items), *links])
    names: dict[int, str] = {}
    return {
        item.id: item.topic or names.setdefault(component[f"question {item.id}"], f"{base}-{len(names) + 1}")
        for item in items
    }


def _detect_format(source: Path) -> str:
    if source.is_dir() and (source / "corpus.jsonl").is_file():
        return "beir"
    if source.suffix.lower() in (*SUFFIXES, *EXCEL):
        return "csv"
    if source.is_file():
        with source.open(encoding="utf-8", errors="replace") as file:
            head = file.read(200_000)
        if found := next((format for format, mark in _MARKS.items() if mark in head), None):
            return found
    if source.suffix.lower() in (".yaml", ".yml"):
        return "promptfoo"
    raise DataError(f"{source} looks like no known format.", f"Name one with --format: {', '.join(FORMATS)}.")


def _read_beir(source: Path, passages: Passages) -> Iterator[Item]:
    """Read a folder in BEIR's layout, without the questions that have no qrel."""
    beir = read_beir(source)
    for passage in list_objects(beir.corpus):
        passages.add(str(passage.get("title") or ""), str(passage["text"]), " ".join(str(passage["_id"]).split()))
    for key, row in beir.queries.items():
        known = row.get("metadata") or {}
        answered = known.get("answerable") is not False
        if key in beir.judged or not answered:
            answers = tuple(map(str, known.get("answers") or [known.get("answer") or ""]))
            evidence = tuple(beir.judged.get(key, ()))
            yield Item(key, row["text"], answers, evidence, answered, tags=_tag_kind(known.get("type")))


def _read_hotpotqa(source: Path, passages: Passages) -> Iterator[Item]:
    """Read HotpotQA's and 2WikiMultihopQA's JSON, contexts as pairs or columns."""
    for row in list_objects(source):
        context, facts = row["context"], row.get("supporting_facts") or []
        if isinstance(context, Mapping):
            context = list(zip(context["title"], context.get("sentences") or context["content"], strict=True))
        titles = set(facts["title"] if isinstance(facts, Mapping) else [title for title, *_ in facts])
        keys = {title: passages.add(title, _join_sentences(sentences)) for title, sentences in context}
        evidence = tuple(key for title, key in keys.items() if title in titles)
        id_ = str(row.get("_id") or row["id"])
        yield Item(id_, row["question"], (str(row["answer"]),), evidence, tags=_tag_kind(row.get("type")))


def _read_musique(source: Path, passages: Passages) -> Iterator[Item]:
    """Read MuSiQue's JSON Lines, hops with the answers of earlier ones put in."""
    for row in list_objects(source):
        keys = [passages.add(p["title"], p["paragraph_text"]) for p in row["paragraphs"]]
        evidence = (k for k, p in zip(keys, row["paragraphs"], strict=True) if p.get("is_supporting"))
        hops = row.get("question_decomposition") or []
        found = {n: str(hop["answer"]) for n, hop in enumerate(hops, 1)}
        answers = (str(row["answer"]), *map(str, row.get("answer_aliases") or ()))
        tags = (f"{len(hops)}-hop",) if hops else ()
        if row.get("answerable", True):
            sub_queries = tuple(_fill_hop(str(hop["question"]), found) for hop in hops)
            evidence_keys = tuple(dict.fromkeys(evidence))
            yield Item(str(row["id"]), row["question"], answers, evidence_keys, sub_queries=sub_queries, tags=tags)
        else:
            yield Item(str(row["id"]), row["question"], answered=False, tags=tags)


def _read_squad(source: Path, passages: Passages) -> Iterator[Item]:
    """Read SQuAD 1.1's and 2.0's JSON; an article is a topic."""
    for article, context, qa in read_squad(source):
        title, answered = article.replace("_", " "), not qa.get("is_impossible", False)
        key = passages.add(title, context)
        answers = tuple(answer["text"] for answer in qa["answers"]) if answered else ()
        yield Item(qa["id"], qa["question"], answers, (key,) if answered else (), answered, topic=title)


FORMATS: dict[str, Callable[[Path, Passages], Iterator[Item]]] = {
    **{"beir": _read_beir, "hotpotqa": _read_hotpotqa, "2wiki": _read_hotpotqa},
    **{"musique": _read_musique, "squad": _read_squad},
    **dict.fromkeys(("csv", "ragas", "deepeval", "promptfoo", "evals"), read_cases),
}


def _fill_hop(question: str, answers: Mapping[int, str]) -> str:
    """Return a hop's question with earlier answers in the place of #1, #2."""
    return re.sub(r"#(\d)", lambda mark: answers.get(int(mark[1]), mark[0]), question)


def _join_sentences(sentences: Sequence[str]) -> str:
    """Join sentences that may or may not bring the space between them along."""
    return "".join(s if n == 0 or s.startswith(" ") else f" {s}" for n, s in enumerate(sentences))


def _tag_kind(kind: object) -> tuple[str, ...]:
    return (str(kind),) if kind else ()
