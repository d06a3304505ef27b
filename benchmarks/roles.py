"""One language model in each role: writer, splitter, writer of SQL, asker, rewriter of follow-ups, judge, claim check.

    python benchmarks/roles.py --base-url http://127.0.0.1:8081/v1 --model qwen

On labelled questions of the example's train and dev, uncompiled; SELECTs also on five invented tables from
RAGC_DATASETS. The writer sees four passages with the evidence, whole and as the five sentences of them that the reader
ranks first. The judge sees four passages, of every other question without the evidence, and the claim check a labelled
answer with the evidence or with a passage beside it; the embedded reader judges the same. Replies are kept under
`--keep` and asked for once.
"""

from __future__ import annotations

import argparse
import csv
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from conversations import pair_example
from drafts import Case, gather_cases, write_drafts
from figures import Figure, figure, find_datasets, show
from real_model import EXAMPLE, make_parser, sample, written_by
from sklearn.metrics import roc_auc_score
from small_projects import read_rows

from ragc.knowledge.project import Project
from ragc.loop.decisions import is_undecided, read_chances
from ragc.loop.evidence import rank_pool
from ragc.loop.rag import AgenticRAG
from ragc.loop.state import DRAFT, SQL, Ask, Find
from ragc.models.language.layout import LAYOUT, NUMBERED, PromptLayout
from ragc.models.language.provider import key_variable
from ragc.optimize.compiler.record import Record
from ragc.optimize.compiler.runs.replay import Replay
from ragc.optimize.evaluation.grades import judge_answer
from ragc.optimize.labelled.dataset import LabelledQuestion, read_labelled
from ragc.passage import embedding_text
from ragc.serve.opening import open_program
from ragc.signatures import CitedClaim, Statement
from ragc.text.facts import is_echo, states
from ragc.text.history import Turn, join_questions

TABLES = 5  # that are invented and asked about
FOUND = 8
"""Passages of each search that are looked at for the evidence."""
Judged = list[tuple[float, bool]]
"""Probabilities, each with whether it was so."""


def main() -> None:
    options = make_parser(__doc__, n=30).parse_args()
    os.environ.setdefault(key_variable(options.base_url), "none")
    show(measure(options), options.json)


def measure(options: argparse.Namespace) -> Iterator[Figure]:
    options.keep.mkdir(parents=True, exist_ok=True)
    record = Record(options.keep / "record.sqlite")
    asked = [q for q in read_labelled(Project.open(EXAMPLE).labelled, EXAMPLE) if q.split in ("train", "dev")]
    name = f"openai/{options.model}"
    with written_by(options.base_url, name):
        rag = open_program(Project.open(EXAMPLE))
        yield from measure_writer(rag.deepcopy(), record, asked, options.n)
        yield from measure_splitter(rag, record, asked, options.n)
        yield from measure_sql(rag, record, [q for q in asked if q.sql], options.n)
        for source in find_datasets("reading"):
            folder = options.keep / "tables"
            tables = write_tables(source, folder)
            yield from measure_sql(open_program(Project.open(folder)), record, tables, options.n, "invented ")
        yield from measure_asker(rag, record, asked, options.n)
        yield from measure_rewriter(rag, record, asked, options.n)
    with written_by(options.base_url, name, judge=True):
        judged = open_program(Project.open(EXAMPLE))
        yield from measure_judge(judged, rag, record, asked, options.n)
        yield from measure_claims(judged, rag, record, asked, options.n)


def measure_writer(rag: AgenticRAG, record: Record, asked: Sequence[LabelledQuestion], n: int) -> Iterator[Figure]:
    """Measure the facts that are delivered, the claims that no passage states, echoes, and refusals."""
    replay, layout = Replay(rag, record), dict(rag.named_parameters())[DRAFT + LAYOUT]
    cases = gather_cases(replay, asked, n)
    layout.value = PromptLayout(marks=NUMBERED, instruction="short", demonstrations=0)
    drafts = write_drafts(replay, cases)
    facts = [
        judge_answer(case.question, "answered", one.text).fact_share for case, one in zip(cases, drafts, strict=True)
    ]
    claims, refusals = sum(len(one.stated) for one in drafts), sum(one.quoted is not None for one in drafts)
    yield figure("writer: facts delivered", float(np.mean(facts)), "reported", len(cases))
    lost = claims - sum(len(one.upheld) for one in drafts)
    yield figure("writer: claims that no passage states", lost / max(claims, 1), "reported", claims)
    echoes = sum(not one.stated for one in drafts) - refusals
    yield figure("writer: echoes", echoes / len(cases), "reported", len(cases))
    yield figure("writer: none written, though it is there", refusals / len(cases), "reported", len(cases))


def measure_judge(
    rag: AgenticRAG, embedded: AgenticRAG, record: Record, asked: Sequence[LabelledQuestion], n: int
) -> Iterator[Figure]:
    """Measure the judge of passages and of their sufficiency, and the embedded reader beside it."""
    replay, relevant, sufficient, read = Replay(rag, record), Judged(), Judged(), 0
    cases = [without_evidence(case) if at % 2 else case for at, case in enumerate(gather_cases(replay, asked, n))]
    for case, reply in zip(cases, replay.reply_all([ask_of(case) for case in cases]), strict=True):
        if reply is None:
            continue
        held, shown = set(case.question.evidence), case.passages
        told = read_chances(reply["relevant"], len(shown), 0.5)
        (whole,) = read_chances(reply["sufficient"], 1, 0.5)
        read += not any(map(is_undecided, [*told, whole]))
        pairs = [*zip(told, [one.id in held for one in shown], strict=True)]
        relevant += [(decision.probability, so) for decision, so in pairs if not is_undecided(decision)]
        sufficient += [] if is_undecided(whole) else [(whole.probability, held <= {one.id for one in shown})]
    yield figure(
        "judge: replies that tell of every passage and of the question", read / len(cases), "reported", len(cases)
    )
    yield from show_judged("judge: a passage is relevant", relevant)
    yield from show_judged("judge: the passages suffice", sufficient)
    here = Replay(embedded, record)
    asks = [
        (Ask("judge.relevance", {"question": case.question.question, "passage": one}), one.id in case.question.evidence)
        for case in cases
        for one in case.passages
    ]
    replies = here.reply_all([ask for ask, _ in asks])
    own = [(reply["relevant"].probability, so) for reply, (_, so) in zip(replies, asks, strict=True) if reply]
    yield from show_judged("the embedded reader: a passage is relevant", own)


def measure_claims(
    rag: AgenticRAG, embedded: AgenticRAG, record: Record, asked: Sequence[LabelledQuestion], n: int
) -> Iterator[Figure]:
    """Measure the check of claims: labelled answers under the evidence, and every other under a passage beside it."""
    replay, here, checked, own = Replay(rag, record), Replay(embedded, record), Judged(), Judged()
    cases = [case for case in gather_cases(replay, asked, n) if case.question.answer]
    whole, single = [], []
    for at, case in enumerate(cases):
        evidence = [one for one in case.passages if one.id in case.question.evidence]
        shown = without_evidence(case).passages[:1] if at % 2 else evidence
        claim = CitedClaim(n=1, text=case.question.answer, cites=tuple(range(1, len(shown) + 1)))
        stated = (Statement(title=shown[0].title, text=claim.text),)
        inputs = {"question": case.question.question, "claims": [claim], "passages": shown, "answer": stated}
        whole.append(Ask("grounder.claims", inputs))
        single.append(Ask("grounder.support", {"claim": claim.text, "passages": shown}))
    for at, (reply, by_reader) in enumerate(zip(replay.reply_all(whole), here.reply_all(single), strict=True)):
        supported = read_chances(reply["supported"], 1, 0.5) if reply else []
        checked += [(one.probability, not at % 2) for one in supported if not is_undecided(one)]
        own.append((by_reader["supported"].probability, not at % 2))
    read = len(checked) / len(cases)
    yield figure("claim check: replies that tell of the claim", read, "reported", len(cases))
    yield from show_judged("claim check: a claim is supported", checked)
    yield from show_judged("the embedded reader: a claim is supported", own)


def ask_of(case: Case) -> Ask:
    """Return the request to judge a case's passages in one call."""
    return Ask("judge.evidence", {"question": case.question.question, "passages": [*case.passages]})


def without_evidence(case: Case) -> Case:
    """Return the case with the passages alone that are no evidence."""
    return replace(case, passages=[one for one in case.passages if one.id not in case.question.evidence])


def show_judged(name: str, judged: Judged) -> Iterator[Figure]:
    """Yield how well probabilities tell what was so, and how far they are from the shares in which it was."""
    chances, truths = np.array([chance for chance, _ in judged]), np.array([so for _, so in judged])
    if len(set(truths.tolist())) == 2:
        yield figure(f"{name}: AUC", roc_auc_score(truths, chances), "reported", len(judged))
    bins = np.minimum((chances * 5).astype(int), 4)
    off = [abs(chances[bins == b].mean() - truths[bins == b].mean()) * (bins == b).mean() for b in set(bins.tolist())]
    yield figure(f"{name}: calibration error, five bins", float(np.sum(off)), "reported", len(judged))


def measure_splitter(rag: AgenticRAG, record: Record, asked: Sequence[LabelledQuestion], n: int) -> Iterator[Figure]:
    """Measure how much of the evidence the look-ups of compound questions find."""
    replay = Replay(rag, record)
    chosen = sample([q for q in asked if q.sub_queries and q.evidence], n)
    replies = replay.reply_all([Ask("decomposer.split", {"question": q.question}) for q in chosen])
    written = [list(reply["sub_queries"])[:4] if reply else [] for reply in replies]
    yield figure(
        "splitter: questions that it splits", float(np.mean([len(one) > 1 for one in written])), "reported", len(chosen)
    )
    for name, queries in (
        ("the question alone", [[q.question] for q in chosen]),
        ("the look-ups written", [one or [q.question] for one, q in zip(written, chosen, strict=True)]),
        ("the look-ups labelled", [list(q.sub_queries) for q in chosen]),
    ):
        found = [find_share(replay, q, own) for q, own in zip(chosen, queries, strict=True)]
        yield figure(f"splitter: evidence found by {name}", float(np.mean(found)), "reported", len(chosen))


def find_share(replay: Replay, question: LabelledQuestion, queries: Sequence[str]) -> float:
    """Return the share of a question's evidence among as many passages, whatever the number of queries."""
    program, found = replay.program, set[str]()
    for query in queries:
        pool = replay.reply(Find(query, program.sources))
        found |= {one.id for one in rank_pool(pool, program.view().tuning)[: max(1, FOUND // len(queries))]}
    return len(found & set(question.evidence)) / len(question.evidence)


def measure_sql(
    rag: AgenticRAG, record: Record, asked: Sequence[LabelledQuestion], n: int, of: str = ""
) -> Iterator[Figure]:
    """Measure SELECTs: those that run, and those whose rows state every labelled fact."""
    replay, ran, right = Replay(rag, record), 0, 0
    ((name, schema),) = rag.view().tables.items()
    chosen = sample(asked, n)
    replies = replay.reply_all([Ask("retriever.sql", {"question": q.question, "tables": schema}) for q in chosen])
    for question, reply in zip(chosen, replies, strict=True):
        sql = str(reply["sql"]).strip() if reply else ""
        rows = replay.reply(Find(question.question, (name,), sql=sql)) if sql else []
        text = " ".join(one.text for one in rows if one.method == SQL)
        ran += bool(text)
        right += bool(text) and all(states(text, forms) for forms in question.alternatives)
    yield figure(f"{of}SQL: SELECTs that run and find rows", ran / len(chosen), "reported", len(chosen))
    yield figure(f"{of}SQL: rows that state every fact", right / len(chosen), "reported", len(chosen))


def write_tables(source: Path, folder: Path) -> list[LabelledQuestion]:
    """Write the invented tables most asked about as a project, and return the questions that their rows answer."""
    asked: dict[str, list[LabelledQuestion]] = {}
    rows_of: dict[str, list[list[str]]] = {}
    for n, row in enumerate(read_rows(source / "invented_dev.jsonl")):
        lines = [line for line in row["context"].splitlines() if line.startswith("|")]
        answer = row["answers"][0]["text"] if row["answerable"] else ""
        if len(lines) > 2 and answer and any(answer in line for line in lines[2:]):
            fact = answer.rpartition("|")[2].strip()
            one = LabelledQuestion(id=str(n), question=row["question"], outcome="answered", facts=((fact,),))
            asked.setdefault(row["title"], []).append(one)
            cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in (lines[0], *lines[2:])]
            rows_of[row["title"]] = [[cell or "item" for cell in cells[0]], *cells[1:]]
    chosen = sorted(asked, key=lambda title: -len(asked[title]))[:TABLES]
    (folder / "tables").mkdir(parents=True, exist_ok=True)
    (folder / "ragc.toml").write_text(
        'name = "invented"\n[knowledge.tables]\nkind = "tables"\npath = "tables"\nabout = "tables to look up in"\n'
    )
    for title in chosen:
        name = re.sub(r"\W+", "_", title.lower())
        with (folder / "tables" / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows(rows_of[title])
    return [question for title in chosen for question in asked[title]]


def measure_asker(rag: AgenticRAG, record: Record, asked: Sequence[LabelledQuestion], n: int) -> Iterator[Figure]:
    """Measure what is asked back of vague questions: is it one question, and no echo?"""
    replay = Replay(rag, record)
    chosen = sample([q for q in asked if q.outcome == "clarify"], n)
    pools = replay.reply_all([Find(q.question, rag.sources) for q in chosen])
    shown = [rank_pool(pool or [], rag.view().tuning) for pool in pools]
    inputs = [{"question": q.question, "passages": own} for q, own in zip(chosen, shown, strict=True)]
    replies = replay.reply_all([Ask("generator.clarify", one) for one in inputs])
    texts = [str(reply["clarifying_question"]).strip() if reply else "" for reply in replies]
    told = [f"{rag.view().prompt_of('generator.clarify')}\n{q.question}" for q in chosen]
    echoes = [
        is_echo(text, prompt, map(embedding_text, own)) for text, prompt, own in zip(texts, told, shown, strict=True)
    ]
    asks = [text.count("?") == 1 and text.endswith("?") for text in texts]
    good = [ask and not echo for ask, echo in zip(asks, echoes, strict=True)]
    yield figure("asker: one question, not an echo", float(np.mean(good)), "reported", len(chosen))
    yield figure("asker: echoes, or nothing", float(np.mean(echoes)), "reported", len(chosen))


def measure_rewriter(rag: AgenticRAG, record: Record, asked: Sequence[LabelledQuestion], n: int) -> Iterator[Figure]:
    """Measure the evidence that an option, chosen after a question back, finds once it is rewritten to stand alone."""
    replay = Replay(rag, record)
    chosen = [one for one in pair_example(asked) if one[-1].evidence][:n]
    turns = [(Turn(role="user", content=vague), Turn(role="assistant", content=back)) for vague, back, *_ in chosen]
    asks = [
        Ask("conversation.standalone", {"history": history, "question": option})
        for history, (_, _, option, _) in zip(turns, chosen, strict=True)
    ]
    written = [str(reply["standalone"]).strip() if reply else "" for reply in replay.reply_all(asks)]
    for name, queries in (
        ("the option alone", [option for *_, option, _ in chosen]),
        (
            "the words of all turns",
            [join_questions(history, one[2]) for history, one in zip(turns, chosen, strict=True)],
        ),
        ("what it writes", [text or one[2] for text, one in zip(written, chosen, strict=True)]),
        ("the question as labelled", [twin.question for *_, twin in chosen]),
    ):
        found = [find_share(replay, twin, [query]) for query, (*_, twin) in zip(queries, chosen, strict=True)]
        yield figure(f"rewriter: evidence found by {name}", float(np.mean(found)), "reported", len(chosen))


if __name__ == "__main__":
    main()
