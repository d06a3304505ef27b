"""One language model as the writer: plain RAG, plain RAG with the best of six prompts, ragc, and no model at all.

    python benchmarks/real_model.py --base-url http://127.0.0.1:8081/v1 --model qwen [--version REF] [--parent REF]

On questions of the example (`--split`, `--n`), and on six tenths as many answerable ones of an invented organisation
from RAGC_DATASETS, where the versions keep the settings that the example gave them. The best of the six prompts is
chosen on questions of train. Every reply is kept under `--keep` and asked for once: a run that was stopped goes on
where it was. Calls, tokens and seconds are those of the first time. A server that wants a key finds it in
RAGC_API_KEY_<HOST>_<PORT>.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import dspy
import numpy as np
from drafts import gather_cases
from figures import ROOT, Figure, figure, find_datasets, show
from small_projects import read_rows, write_beir

from ragc.answer import Answer, Outcome
from ragc.knowledge.project import Project
from ragc.loop.rag import AgenticRAG
from ragc.loop.state import DRAFT
from ragc.models.language.layout import NUMBERED, PromptLayout
from ragc.models.language.provider import key_variable
from ragc.optimize.compiler.record import Record
from ragc.optimize.compiler.runs.replay import Replay
from ragc.optimize.evaluation.evaluate import Evaluation, Grader
from ragc.optimize.evaluation.stats import paired_test
from ragc.optimize.labelled.dataset import LabelledQuestion, read_labelled
from ragc.optimize.labelled.imports import import_set
from ragc.optimize.labelled.split import split_questions
from ragc.passage import embedding_text
from ragc.serve.opening import load, open_program
from ragc.signatures import excerpts
from ragc.text.facts import is_echo

EXAMPLE = ROOT / "data" / "tallowgate"
PATIENCE = 600.0  # seconds for a call, and for a question: a small model on a processor is slow, not gone
TUNED = 12  # questions of train on which the best of six prompts is chosen
QUICK = 3  # questions of a set
ORGANISATION = "org0_2"  # of `invented_dev`: a chain of climbing gyms
INVENTED = 0.6  # of as many questions as of the example
ASK = "Answer the question from the passages in one sentence."
COPY = "Copy the one sentence of the passages that answers the question."
HAND = PromptLayout(marks=NUMBERED, place="user", demonstrations=0)
SIX: Mapping[str, tuple[str, PromptLayout]] = {
    "question last": (ASK, HAND),
    "question first": (ASK, PromptLayout(marks=NUMBERED, place="user", demonstrations=0, order="question first")),
    "two passages": (ASK, PromptLayout(marks=NUMBERED, place="user", demonstrations=0, passages=2)),
    "copy the sentence": (COPY, HAND),
    "under a system line": (ASK, PromptLayout(marks=NUMBERED, demonstrations=0)),
    "two demonstrations": (ASK, PromptLayout(marks=NUMBERED, place="user", demonstrations=2)),
}
"""Prompts as people write them, by name: the instruction and where everything stands."""


@dataclass(frozen=True, slots=True)
class Row:
    """One arm's answers, graded."""

    name: str
    program: AgenticRAG
    questions: Sequence[LabelledQuestion]
    answers: Sequence[Answer]
    evaluation: Evaluation

    def recalls(self) -> list[float]:
        """Return the share of facts stated for each question that has any."""
        return [found for one in self.evaluation.grades if (found := one.read_metric("fact_recall")) is not None]

    def topics(self) -> list[str]:
        return [one.topic for one in self.evaluation.grades if one.read_metric("fact_recall") is not None]


def main() -> None:
    parser = make_parser(__doc__, n=100)
    parser.add_argument("--version", default="", help="the compiled version; else the uncompiled program")
    parser.add_argument("--parent", default="", help="the version without the model; else the uncompiled program")
    parser.add_argument("--split", default="test", choices=("train", "dev", "test"))
    parser.add_argument("--quick", action="store_true", help=f"{QUICK} questions, and no choice among six prompts")
    options = parser.parse_args()
    os.environ.setdefault(key_variable(options.base_url), "none")
    show(measure(options), options.json)


def make_parser(about: str | None, n: int) -> argparse.ArgumentParser:
    """Return the options of a benchmark that asks a language model; `n` questions are the default."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base-url", required=True, help="the server of the model, in OpenAI's protocol")
    parser.add_argument("--model", required=True, help="its name there")
    parser.add_argument("--n", type=int, default=n, help="questions of each set, or role")
    parser.add_argument("--keep", type=Path, default=EXAMPLE / ".ragc" / "real-model", help="where replies are kept")
    parser.add_argument("--json", action="store_true")
    return parser


def measure(options: argparse.Namespace) -> Iterator[Figure]:
    options.keep.mkdir(parents=True, exist_ok=True)
    record = Record(options.keep / "record.sqlite")
    parts = split_questions(read_labelled(Project.open(EXAMPLE).labelled, EXAMPLE))
    train = sample(parts["train"], TUNED)
    with written_by(options.base_url, f"openai/{options.model}"):
        served = Project.open(EXAMPLE)
        name, hand = choose_prompt(open_program(served), train, record, served, options.quick)
    print(f"by hand: {name}", file=sys.stderr)
    n = QUICK if options.quick else options.n
    yield from measure_set("example", EXAMPLE, sample(parts[options.split], n), hand, record, options)
    for source in find_datasets("reading"):
        folder = options.keep / ORGANISATION
        if not (folder / "ragc.toml").is_file():
            import_set(folder, write_organisation(source, options.keep / "beir"))
        asked = [one for one in read_labelled(Project.open(folder).labelled, folder) if one.facts]
        asked = sample(asked, max(QUICK, round(n * INVENTED)))
        yield from measure_set("invented", folder, asked, hand, record, options)


def measure_set(
    name: str,
    folder: Path,
    questions: Sequence[LabelledQuestion],
    hand: AgenticRAG,
    record: Record,
    options: argparse.Namespace,
) -> Iterator[Figure]:
    """Measure every arm on questions of one project; `hand` has the best of the six prompts."""
    rows = []
    with written_by(options.base_url, f"openai/{options.model}"):
        served = Project.open(folder)
        rag = open_program(served)
        rows.append(ask_all("plain, our prompt", rag.plain(), questions, record, served))
        rows.append(by_hand := ask_all("plain, by hand", take_over(hand, rag.plain()), questions, record, served))
        arm = "ragc, compiled" if options.version else "ragc, uncompiled"
        program = take_over(load_version(options.version), rag) if options.version else rag
        rows.append(compiled := ask_all(arm, program, questions, record, served))
    project = Project.open(folder)
    alone = open_program(project)
    alone = take_over(load_version(options.parent), alone) if options.parent else alone
    rows.append(parent := ask_all("ragc, embedded alone", alone, questions, record, project))
    for row in rows:
        yield from show_row(row, name)
    for other in (by_hand, parent) if options.version and len(compiled.recalls()) > 1 else ():
        gain = paired_test(other.recalls(), compiled.recalls(), compiled.topics())
        over = f"{name}: {compiled.name}: fact recall over {other.name}"
        yield figure(over, gain.difference, "reported", gain.n)
        yield figure(f"{over}, low end", gain.ci[0], "> 0", gain.n)
        yield figure(f"{over}, high end", gain.ci[1], "reported", gain.n)


def load_version(reference: str) -> AgenticRAG:
    """Return a version of the example, without the reviewed answers that it carries."""
    program = load(reference, artifacts=Project.open(EXAMPLE).artifacts, project=EXAMPLE)
    program.runtime = replace(program.runtime, reviewed=None)
    return program


def take_over(given: AgenticRAG, rag: AgenticRAG) -> AgenticRAG:
    """Return a program with the parameters of another, but for predictors that ask of other knowledge bases."""
    parameters = dict(given.named_parameters())
    for name, own in rag.named_parameters():
        other = parameters[name]
        if not isinstance(own, dspy.Predict) or own.signature.fields.keys() == other.signature.fields.keys():
            own.load_state(other.dump_state())
    return rag


def write_organisation(source: Path, folder: Path) -> Path:
    """Write one organisation's pages, and the questions that they answer, in BEIR's layout."""
    pages = [page for page in read_rows(source / "invented_pages.jsonl") if page["group"] == ORGANISATION]
    asked = enumerate(read_rows(source / "invented_dev.jsonl"))
    answerable = {n: row for n, row in asked if row["group"] == ORGANISATION and row["answerable"]}
    return write_beir(answerable, folder, pages)


@contextmanager
def written_by(base_url: str, model: str, judge: bool = False) -> Iterator[None]:
    """Have every project that is opened inside write, and `judge` too, with that model."""
    own = {"api_base": base_url, "usd_in": 0, "usd_out": 0, "concurrency": 1}
    said = {
        "RAGC_MODELS__WRITE": model,
        "RAGC_BUDGET__MAX_SECONDS": str(PATIENCE),
        "RAGC_PROVIDER__CALL_SECONDS": str(PATIENCE),
        "RAGC_PROVIDER__FALLBACK": "false",
        "RAGC_PROVIDER__MODEL": json.dumps({model: own}),
        **({"RAGC_MODELS__JUDGE": model} if judge else {}),
    }
    os.environ.update(said)
    try:
        yield
    finally:
        for variable in said:
            del os.environ[variable]


def ask_all(
    name: str, program: AgenticRAG, questions: Sequence[LabelledQuestion], record: Record, project: Project
) -> Row:
    """Return the arm's answers, those kept before from the record."""
    replay = Replay(program, record)
    grader = Grader(program, project.settings.utility, relevancy=False)
    answers = []
    for done, question in enumerate(questions, 1):
        answers.append(replay(question.asked))
        print(f"\r{name}: {done}/{len(questions)}, {record.calls} calls made", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    graded = tuple(grader(question, answer) for question, answer in zip(questions, answers, strict=True))
    return Row(name, program, questions, answers, Evaluation(graded))


def show_row(row: Row, name: str) -> Iterator[Figure]:
    """Yield the figures of one arm."""
    bars = row.name == "ragc, compiled"
    for metric in ("fact_recall", "correct", "wrong"):
        if (found := row.evaluation.measure(metric)) is not None:
            yield figure(f"{name}: {row.name}: {metric}", found.value, "reported", found.n)
    if (held := row.evaluation.measure("supported")) is not None:
        bar = "<= 0" if bars else "reported"
        yield figure(f"{name}: {row.name}: statements that no passage supports", 1 - held.value, bar, held.n)
    n = len(row.answers)
    yield figure(f"{name}: {row.name}: echoes delivered", count_echoes(row), "<= 0" if bars else "reported", n)
    calls = float(np.mean([one.usage.calls for one in row.answers]))
    yield figure(f"{name}: {row.name}: calls a question", calls, "<= 0.6" if bars else "reported", n)
    tokens = float(np.mean([one.usage.tokens_in + one.usage.tokens_out for one in row.answers]))
    yield figure(f"{name}: {row.name}: tokens a question", tokens, "reported", n)
    seconds = float(np.mean([one.usage.seconds for one in row.answers]))
    yield figure(f"{name}: {row.name}: seconds a question, when first asked", seconds, "reported", n)


def count_echoes(row: Row) -> int:
    """Return how many answers repeat the prompt or the question."""
    texts = {passage.id: embedding_text(passage) for passage in row.program.runtime.library.passages()}
    told = row.program.view().prompt_of(DRAFT)
    return sum(
        one.outcome is Outcome.ANSWERED
        and is_echo(one.text, f"{told}\n{q.question}", [texts[id_] for id_ in one.retrieved if id_ in texts])
        for q, one in zip(row.questions, row.answers, strict=True)
    )


def choose_prompt(
    rag: AgenticRAG, train: Sequence[LabelledQuestion], record: Record, project: Project, quick: bool
) -> tuple[str, AgenticRAG]:
    """Return that of the six prompts with which plain RAG states most facts on train."""
    made = {name: write_prompt(rag, name, train, record) for name in list(SIX)[: 1 if quick else None]}
    asked = [question for question in train if question.facts]
    recalls = {
        name: float(np.mean(ask_all(f"choosing: {name}", program, asked, record, project).recalls()))
        for name, program in (made.items() if len(made) > 1 else ())
    }
    for name, recall in recalls.items():
        print(f"{name}: fact recall {recall:.3f} on {len(asked)} questions of train", file=sys.stderr)
    best = max(recalls, key=lambda name: recalls[name]) if recalls else next(iter(made))
    return best, made[best]


def write_prompt(rag: AgenticRAG, name: str, train: Sequence[LabelledQuestion], record: Record) -> AgenticRAG:
    """Return plain RAG with one of the six prompts."""
    program, (text, layout) = rag.plain(), SIX[name]
    predictor = program.predictor(DRAFT)
    predictor.signature = predictor.signature.with_instructions(text)
    dict(program.named_parameters())[f"{DRAFT}_layout"].value = layout
    if layout.demonstrations:
        told = [question for question in train if question.answer]
        cases = gather_cases(Replay(program, record), told, layout.demonstrations)
        predictor.demos = [
            {
                **{"question": case.question.question, "passages": excerpts(case.passages)},
                "answer": case.question.answer,
            }
            for case in cases
        ]
    return program


def sample(questions: Sequence[LabelledQuestion], n: int) -> list[LabelledQuestion]:
    """Return the same n questions each time, those of a smaller sample among them."""
    shuffled = list(questions)
    random.Random(0).shuffle(shuffled)
    return shuffled[:n]


if __name__ == "__main__":
    main()
