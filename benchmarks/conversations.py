"""What a program makes of follow-ups of a conversation; a part of `outcomes.py`.

No label of the example is learnt from: the program is asked as it is before any compile. RAGC_DATASETS gives `reading`
(vague questions, each with a twin that names an option) and `mtrag` (conversations, each last question also as a person
rewrote it to stand alone).
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import SequenceMatcher
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from figures import ROOT, Figure, figure, find_datasets
from sklearn.metrics import roc_auc_score

from ragc import open_program
from ragc.knowledge.project import Project
from ragc.loop.evidence import blend_pools, rank_pool
from ragc.loop.rag import AgenticRAG, read_asked
from ragc.loop.state import State
from ragc.loop.steps import _resolve_history
from ragc.models.embedded.encoder import Embedder, shared_embedder
from ragc.models.embedded.features import Case, compare_turns
from ragc.models.embedded.heads import Head, fit_decision
from ragc.optimize.evaluation.grades import judge_answer
from ragc.optimize.evaluation.retrieval import open_beir
from ragc.optimize.labelled.dataset import LabelledQuestion, read_labelled
from ragc.text.history import Turn, Turns, join_questions

EXAMPLE = ROOT / "data" / "tallowgate"
DOMAINS = ("clapnq", "cloud")  # of MTRAG's conversations
QUICK = 20  # questions of a set
WORTH = {"wrong": 0, "partial": 1, "correct": 2}
RUNS = 2_000  # of what a single question takes more
Triple = tuple[Turns, str, bool]  # a conversation, what is asked after it, and whether that follows on


def ask_both(
    rag: AgenticRAG, pairs: Sequence[tuple[str, str, str, LabelledQuestion]]
) -> Iterator[tuple[str, str, bool]]:
    """Yield the verdict on each twin asked directly, on the option chosen, and whether the latter was understood."""
    for vague, back, option, twin in pairs:
        history = [{"role": "user", "content": vague}, {"role": "assistant", "content": back}]
        answers = [rag(twin.question), rag(option, history=history)]
        told = []
        for answer in answers:
            verdict = judge_answer(twin, answer.outcome, answer.text)
            word = "correct" if verdict.correct else "wrong" if verdict.wrong else "partial"
            told.append(f"{answer.outcome} {word}")
        yield told[0], told[1], any(note.startswith("follows on") for note in answers[1].trace.path)


def measure_options(title: str, rag: AgenticRAG, pairs: Sequence[Any]) -> Iterator[Figure]:
    """Yield how often the option chosen after a question back is answered as the twin, which names it, is."""
    found = list(ask_both(rag, pairs))
    right = [(one, other) for one, other, _ in found if one.endswith("correct")]
    as_well = float(np.mean([WORTH[other.split()[1]] >= WORTH[one.split()[1]] for one, other, _ in found]))
    yield figure(f"{title} an option chosen is answered as well as its twin", as_well, ">= .80", len(found))
    alike = float(np.mean([one == other for one, other, _ in found]))
    yield figure(f"{title} with the twin's very outcome and verdict", alike, "reported", len(found))
    kept = float(np.mean([one == other for one, other in right]))
    yield figure(f"{title} of twins answered rightly, so is the option chosen", kept, "reported", len(right))
    yield figure(f"{title} taken to follow on", float(np.mean([it for *_, it in found])), "reported", len(found))


def pair_example(questions: Sequence[LabelledQuestion]) -> Iterator[tuple[str, str, str, LabelledQuestion]]:
    """Yield each twin with the vague question of its topic that is nearest in words, and what it names beside."""
    for twin in (one for one in questions if "twin" in one.tags and one.split != "test"):
        vague = [one for one in questions if one.outcome == "clarify" and one.topic == twin.topic]
        words, best = twin.question.split(), max(vague, key=lambda one: _ratio(one.question, twin.question))
        spans = SequenceMatcher(None, [w.lower() for w in best.question.split()], [w.lower() for w in words])
        added = [" ".join(words[j:k]) for kind, _, _, j, k in spans.get_opcodes() if kind not in {"delete", "equal"}]
        if _ratio(best.question, twin.question) > 0.6 and added:
            yield best.question, best.answer, max(added, key=len).strip("?,."), twin


def _ratio(one: str, other: str) -> float:
    return SequenceMatcher(None, one.lower().split(), other.lower().split()).ratio()


def pair_vague(path: Path) -> Iterator[tuple[str, str, str, LabelledQuestion]]:
    """Yield the pairs of a file of which the twin names one of the options."""
    rows: dict[str, dict[bool, Any]] = defaultdict(dict)
    for row in map(json.loads, path.open()):
        rows[row["pair"]][row["vague"]] = row
    for pair, one in rows.items():
        vague, twin = one[True], one[False]
        named = [option for option in vague["options"] if option.lower() in twin["question"].lower()]
        if named and twin["answers"]:
            *first, last = vague["options"]
            labels = {"outcome": "answered", "facts": ([answer["text"] for answer in twin["answers"]],)}
            asked = LabelledQuestion(id=pair, question=twin["question"], **labels)
            yield vague["question"], f"Which do you mean: {', '.join(first)} or {last}?", max(named, key=len), asked


def open_passages(project: Project, passages: Mapping[str, Mapping[str, Any]], folder: Path) -> AgenticRAG:
    """Return a project's program over other passages."""
    folder.mkdir(parents=True)
    lines = [{"_id": id_, "title": one.get("title", ""), "text": one["text"]} for id_, one in passages.items()]
    (folder / "corpus.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    library = open_beir(project, folder / "corpus.jsonl")
    return AgenticRAG(library.describe(), replace(open_program(project).runtime, library=library))


def read_mtrag(folder: Path, domain: str) -> Iterator[tuple[str, list[str], str, str]]:
    """Yield a conversation's id, the asker's questions so far, the last one, and a person's rewrite of it."""
    parts = ("questions", "lastturn", "rewrite")
    texts = [{r["_id"]: r["text"] for r in map(json.loads, (folder / f"{domain}_{n}.jsonl").open())} for n in parts]
    for id_ in texts[2]:
        asked, last, rewrite = ([t.strip() for t in re.split(r"\|user\|:", text[id_])[1:]] for text in texts)
        yield id_, asked, last[0], rewrite[0]


def measure_mtrag(folder: Path, project: Project, place: Path, quick: bool) -> Iterator[Figure]:
    """Yield how often what is searched by finds, among all rewrites of a domain, its own: those that need a history."""
    for domain in DOMAINS:
        rows = list(read_mtrag(folder, domain))
        rag = open_passages(project, {str(n): {"text": row[3]} for n, row in enumerate(rows)}, place / domain)
        tuning, library = replace(rag.policy.tuning(), k=5), rag.runtime.library
        ids, tops = (
            {passage.text: passage.id for passage in library.passages()},
            defaultdict[str, list[list[str]]](list),
        )
        later = [row for row in rows if len(row[1]) > 1]
        for _, asked, last, rewrite in later[::4] if quick else later:
            turns = tuple(Turn(role="user", content=one) for one in asked[:-1])
            queries = {"rewrite": (rewrite,), "as asked": (last,), "made": (join_questions(turns, last), last)}
            for name, texts in queries.items():
                pools = [library.candidates(text, rag.sources, graph=False) for text in texts]
                found = [passage.id for passage in rank_pool(blend_pools(pools, tuning.asked_weight), tuning)]
                tops[name].append([ids[rewrite], *found])
        reached = {
            name: {k: np.mean([own in top[:k] for own, *top in all_]) for k in (1, 5)} for name, all_ in tops.items()
        }
        n = len(tops["made"])
        for k in (1, 5):
            share = reached["made"][k] / reached["rewrite"][k]
            bar = ">= .80" if k == 5 else "reported"
            yield figure(f"mtrag {domain} R@{k} of a follow-up, of what the rewrite reaches", float(share), bar, n)
            yield figure(f"mtrag {domain} R@{k} of its own words alone", float(reached["as asked"][k]), "reported", n)


def label_turns(folder: Path, vague: Path, domains: Sequence[str]) -> Iterator[Triple]:
    """Yield questions that follow on, and rewrites behind another conversation, which do not."""
    draw = Random(0)
    for domain in domains:
        rows = list(read_mtrag(folder, domain))
        later = [row for row in rows if len(row[1]) > 1]
        for id_, asked, last, rewrite in rows:
            if len(asked) > 1 and re.findall(r"\w+", last.lower()) != re.findall(r"\w+", rewrite.lower()):
                yield _say(asked[:-1]), last, True
            others = [row for row in later if row[0].partition("<")[0] != id_.partition("<")[0]]
            yield _say(draw.choice(others)[1]), rewrite, False
    pairs = list(pair_vague(vague)) if len(domains) else []
    for question, back, option, _ in pairs:
        history = (*_say([question]), Turn(role="assistant", content=back))
        yield history, draw.choice([option, f"{option}, please", f"The {option} one"]), True
        yield history, draw.choice(pairs)[3].question, False


def _say(questions: Sequence[str]) -> Turns:
    return tuple(Turn(role="user", content=one) for one in questions[-4:])


def fit_follows_on(cases: Sequence[Triple], embedder: Embedder) -> Head:
    """Return the head that the reader's card holds as `follows_on`."""
    rows = [{"options": compare_turns(Case(asked, turns=turns), embedder)} for turns, asked, _ in cases]
    return fit_decision(rows, [int(label) for *_, label in cases], [asked for _, asked, _ in cases], ("options",))


def measure_prior(folder: Path, reading: Path) -> Iterator[Figure]:
    """Yield how well a head fitted on the one domain tells follow-ups of the other."""
    embedder, vague = shared_embedder(), reading / "vague.jsonl"
    for held, taught in zip(DOMAINS, reversed(DOMAINS), strict=True):
        head = fit_follows_on(list(label_turns(folder, vague, [taught])), embedder)
        asked = list(label_turns(folder, reading / "vague_dev.jsonl", [held]))
        rows = [compare_turns(Case(text, turns=turns), embedder) for turns, text, _ in asked]
        scores = [float(head.calibrated_logits({"options": row})[0]) for row in rows]
        auc = roc_auc_score([label for *_, label in asked], scores)
        yield figure(
            f"mtrag {held}, vague_dev AUC of following on, fitted on others", float(auc), "reported", len(rows)
        )


def measure_single(rag: AgenticRAG, questions: Sequence[str]) -> Iterator[Figure]:
    """Yield what a question without a history takes more than before there were any."""
    view, began = rag.view(), time.perf_counter()
    for n in range(RUNS):
        asked = read_asked(questions[n % len(questions)])
        list(_resolve_history(State(asked.question, view, 1, lambda: None, [], asked.history)))
    taken = (time.perf_counter() - began) / RUNS * 1000
    yield figure("a question without a history, added milliseconds", taken, "<= 1", RUNS)
    steps = [step.name for question in questions for step in rag(question).trace.steps]
    added = sum(name.startswith("conversation.") for name in steps)
    yield figure("a question without a history, added calls", added, "<= 0", len(questions))


def measure_follow_ups(quick: bool, place: Path) -> Iterator[Figure]:
    """Yield the figures of follow-ups."""
    project = Project.open(place / EXAMPLE.name)
    rag, questions = open_program(project), read_labelled(project.labelled)
    most = QUICK if quick else None
    yield from measure_options("example", rag, list(pair_example(questions))[:most])
    yield from measure_single(rag, [one.question for one in questions[: most or 100]])
    for reading in find_datasets("reading"):
        rows = [json.loads(line) for line in (reading / "vague_dev.jsonl").open()]
        passages = {p["id"]: {**p, "text": p["context"]} for row in rows for p in row["passages"]}
        other = open_passages(project, passages, place / "vague_dev")
        yield from measure_options("vague_dev", other, list(pair_vague(reading / "vague_dev.jsonl"))[:most])
        for mtrag in find_datasets("mtrag"):
            yield from measure_mtrag(mtrag, project, place, quick)
            yield from measure_prior(mtrag, reading)


def measure(quick: bool) -> Iterator[Figure]:
    """Yield every figure."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(EXAMPLE, Path(folder) / EXAMPLE.name, ignore=shutil.ignore_patterns(".ragc"))
        yield from measure_follow_ups(quick, Path(folder))
