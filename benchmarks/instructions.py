"""Instructions for one language model as the writer, proposed by itself and by a stronger one: what they bring.

    python benchmarks/instructions.py --base-url http://127.0.0.1:8081/v1 --model qwen

The proposers are GEPA's reflection on what the writer got wrong, as `ragc compile` runs it, and MIPROv2's proposer. The
stronger one is scripted: it replies with SCRIPTED. Every instruction is tried on the same questions of the example's
train and dev, with the evidence among the passages and none of them shown to a proposer; a figure is the share of facts
in what would be delivered. Replies are kept under `--keep` and asked for once.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout

import dspy
import numpy as np
from drafts import Case, gather_cases, score_cases, write_drafts
from dspy.lm15 import Message, Request, Response, TextPart, Usage
from dspy.propose.grounded_proposer import GroundedProposer
from figures import Figure, figure, show
from real_model import EXAMPLE, make_parser, written_by

from ragc.answer import Outcome
from ragc.knowledge.project import Project
from ragc.loop.rag import AgenticRAG
from ragc.loop.state import DRAFT
from ragc.models.catalog import open_endpoint
from ragc.models.language.gateway import ProviderLM
from ragc.models.language.provider import key_variable
from ragc.optimize.compiler.candidates.demonstrations import Failure, describe_failure
from ragc.optimize.compiler.candidates.instructions import propose_instructions
from ragc.optimize.compiler.record import Record
from ragc.optimize.compiler.runs.recorded_lm import RecordedLM
from ragc.optimize.compiler.runs.replay import Replay
from ragc.optimize.compiler.spending import Spending
from ragc.optimize.evaluation.grades import judge_answer
from ragc.optimize.evaluation.stats import paired_test
from ragc.optimize.labelled.dataset import read_labelled
from ragc.serve.opening import open_program
from ragc.signatures import excerpts

SHOWN = 5
"""Questions that a proposer sees."""
SCRIPTED = (
    "Read the passages, find the sentence that answers the question, and reply with that fact in one short sentence. "
    "Keep every number, unit and name as the passage writes it. Add nothing else."
)


class _Scripted:
    """An engine that replies with one instruction, in the field that either proposer asks for."""

    def complete(self, request: Request) -> Response:
        text = json.dumps(dict.fromkeys(("new_instruction", "proposed_instruction"), SCRIPTED))
        parts, usage = Message.assistant([TextPart(text)]), Usage(input_tokens=0, output_tokens=0, total_tokens=0)
        return Response(id=None, model=request.model, message=parts, finish_reason="stop", usage=usage)


def main() -> None:
    options = make_parser(__doc__, n=20).parse_args()
    os.environ.setdefault(key_variable(options.base_url), "none")
    show(measure(options), options.json)


def measure(options: argparse.Namespace) -> Iterator[Figure]:
    options.keep.mkdir(parents=True, exist_ok=True)
    record, name = Record(options.keep / "record.sqlite"), f"openai/{options.model}"
    asked = [q for q in read_labelled(Project.open(EXAMPLE).labelled, EXAMPLE) if q.split in ("train", "dev")]
    with written_by(options.base_url, name):
        project = Project.open(EXAMPLE)
        rag = open_program(project).plain()
        cases = gather_cases(Replay(rag, record), asked, SHOWN + options.n)
        shown, tried = cases[:SHOWN], cases[SHOWN:]
        itself = RecordedLM(ProviderLM(open_endpoint(name, project.settings.provider)), record, Spending())
        stronger = dspy.LM("scripted", engine=_Scripted(), cache=False)
        now = rag.predictor(DRAFT).signature.instructions
        proposed = {
            "GEPA by itself": reflect(itself, rag, record, shown),
            "MIPROv2 by itself": propose(itself, rag, shown),
            "GEPA by the stronger": reflect(stronger, rag, record, shown),
            "MIPROv2 by the stronger": propose(stronger, rag, shown),
        }
        before = score(rag, now, record, tried)
        yield figure("our instruction: facts delivered", np.mean(before), "reported", len(tried))
        for proposer, text in proposed.items():
            if not text or text == now:
                yield figure(f"{proposer}: instructions that came out", 0, "reported", 1)
                continue
            after = before if text == now else score(rag, text, record, tried)
            gain = paired_test(before, after, [case.question.cluster for case in tried])
            yield figure(f"{proposer}: facts delivered", np.mean(after), "reported", len(tried))
            yield figure(f"{proposer}: gain, low end", gain.ci[0], "reported", gain.n)
            yield figure(f"{proposer}: gain, high end", gain.ci[1], "reported", gain.n)


def reflect(lm: dspy.LM, rag: AgenticRAG, record: Record, shown: Sequence[Case]) -> str:
    """Return what GEPA's reflection makes of the cases that the writer got wrong; empty where nothing came out."""
    failures: list[Failure] = [
        describe_failure(
            {"question": case.question.question, "passages": excerpts(case.passages)},
            {"answer": draft.text},
            f"A right answer is: {case.question.answer}",
        )
        for case, draft in zip(shown, write_drafts(Replay(rag, record), shown), strict=True)
        if not judge_answer(case.question, Outcome.ANSWERED, draft.text).correct
    ]
    return next(iter(propose_instructions(lm, rag, DRAFT, failures)), "")


def propose(lm: dspy.LM, rag: AgenticRAG, shown: Sequence[Case]) -> str:
    """Return what MIPROv2's proposer writes; empty where nothing came out."""
    examples = [
        dspy.Example(question=case.question.question, answer=case.question.answer).with_inputs("question")
        for case in shown
    ]
    place = [name for name, _ in rag.named_predictors()].index(DRAFT)
    try:
        with redirect_stdout(sys.stderr):
            proposer = GroundedProposer(lm, rag, examples, program_aware=False, use_task_demos=False, use_tip=False)
            return proposer.propose_instruction_for_predictor(rag, rag.predictor(DRAFT), place, [], 0, {}).strip()
    except Exception as error:  # DSPy raises what it likes at a reply it cannot read
        print(f"MIPROv2's proposer: {str(error)[:200]}", file=sys.stderr)
        return ""


def score(rag: AgenticRAG, text: str, record: Record, cases: Sequence[Case]) -> list[float]:
    """Return the share of the facts of each case that the writer delivers under an instruction."""
    predictor = rag.predictor(DRAFT)
    before, predictor.signature = predictor.signature, predictor.signature.with_instructions(text)
    try:
        return score_cases(Replay(rag, record), cases)
    finally:
        predictor.signature = before


if __name__ == "__main__":
    main()
