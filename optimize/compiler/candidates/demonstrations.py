"""Demonstrations for each predictor, from labelled questions and from the program's own good runs.

Labels (route, sources, evidence, facts) say what each decision should have been, `sub_queries`, `sql` and `answer` what
should have been written. A demonstration remembers its topic, so that a fold can leave its own topics out.
"""

from __future__ import annotations

import contextlib
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ragc.answer import Answer
from ragc.loop.evidence import interleave, preview_pool, rank_pool
from ragc.loop.rag import AgenticRAG
from ragc.loop.reply import ReplyKind
from ragc.loop.state import DRAFT, Ask, Find, Reply, StepFailed
from ragc.models.catalog import client_of, is_decision, is_local
from ragc.models.embedded.features import read_case
from ragc.models.language.adapter import LOGPROB
from ragc.models.requests import Decision, to_jsonable
from ragc.optimize.compiler.runs.replay import Replay, ReplayArm
from ragc.optimize.evaluation.grades import Correctness, judge_answer
from ragc.optimize.labelled.dataset import LabelledQuestion
from ragc.optimize.metrics import graded
from ragc.passage import Passage
from ragc.signatures import BASE_PREFIX, Statement, excerpts, to_prompt_inputs
from ragc.text.facts import holds, states
from ragc.text.pieces import split_pieces, split_sentences

UNRELATED = 2  # questions, for each that follows on, behind its conversation
CONTEXT = 6  # passages shown to a judge of sufficiency or to a writer
SHOWN = 3  # passages, and no less than the evidence, of a text to be shown to a language model
MOST = 200  # demonstrations of one predictor at most, the classifier's left out
CLASSIFIED = 300  # demonstrations of the classifier, and of a judge of sufficiency, at most: a question gives each one
WORKED = 200  # questions at most that are worked through for the other predictors: each gives several
CLASSIFIER = "classifier.route"
FOLLOWS_ON = "conversation.follows_on"
LABEL = {
    FOLLOWS_ON: "follows_on",
    "judge.sufficiency": "sufficient",
    "grounder.responsive": "responsive",
}
HALF_RIGHT = (0.34, 0.99)  # share of the facts between which a draft is neither an answer nor a miss

Fields = dict[str, Any]
Failure = Mapping[str, Any]  # GEPA's form: `Inputs`, `Generated Outputs` and `Feedback`
Found = Mapping[str, Sequence[Passage]]  # passages by the query that found them


@dataclass(frozen=True, slots=True)
class Demonstration:
    """One worked example of a predictor, and the topic of its question."""

    predictor: str
    topic: str
    fields: Fields


@dataclass(frozen=True, slots=True)
class Run:
    """A labelled question with its answer, the grade of it, and every request on the way with its reply."""

    question: LabelledQuestion
    answer: Answer
    verdict: Correctness
    asked: Sequence[tuple[Ask, Reply]]


class Demonstrator:
    """Makes demonstrations by running an uncompiled program over labelled questions, through a replay.

    The questions in `worked` give demonstrations of every predictor with labels, all others of the classifier alone. No
    language model is asked: labelled look-ups stand in for those it would write, quotations for its drafts.
    """

    def __init__(self, program: AgenticRAG, replay: Replay, worked: Sequence[LabelledQuestion]) -> None:
        self._program = program
        self._replay = replay
        self._worked = {question.id for question in worked}
        self._passages = {p.id: p for p in program.readable_by().runtime.library.passages()}

    def make(self, questions: Sequence[LabelledQuestion]) -> list[Demonstration]:
        """Return the demonstrations of questions without a history that anybody may ask."""
        questions = [question for question in questions if not question.readers]
        single = [question for question in questions if not question.history]
        self._replay.reply_all([Find(question.question, self._program.sources) for question in single])
        made: list[Demonstration] = []
        for question in single:
            with contextlib.suppress(StepFailed):  # a call that failed for good costs its question's examples only
                found = self._work_through(question)
                made += [Demonstration(name, question.cluster, fields) for name, fields in found]
        return made

    def read_inputs(self, demonstrations: Sequence[Demonstration]) -> None:
        """Read the passages that embedded deciders are shown, to fit their heads."""
        pairs = []
        for one in demonstrations:
            if learns_demos(self._program, one.predictor):
                names = self._program.predictor(one.predictor).signature.input_fields
                given = {name: to_jsonable(one.fields[name]) for name in names}
                case = read_case(given, " ".join(f"`{name}`" for name in names))
                pairs += [(case.asked, text[:2]) for text in (*case.evidence, *case.cells)]
        self._program.runtime.models.reader.read_pairs(pairs)

    @staticmethod
    def label_conversations(questions: Sequence[LabelledQuestion]) -> list[Demonstration]:
        """Label questions as following on or not.

        Those with a history do; others, behind the history of another topic, do not.
        """
        later = [question for question in questions if question.history and not question.readers]
        others = [question for question in questions if not question.history and not question.readers]
        pairs = [(one, one.history, True) for one in later]
        for n, question in enumerate(later):
            apart = [one for one in others if one.cluster != question.cluster]
            pairs += [(one, question.history, False) for one in apart[n :: max(1, len(later))][:UNRELATED]]
        return [
            Demonstration(FOLLOWS_ON, one.cluster, {"history": turns, "question": one.question, "follows_on": follows})
            for one, turns, follows in pairs
        ]

    def _work_through(self, question: LabelledQuestion) -> list[tuple[str, Fields]]:
        glimpse = preview_pool(self._replay.reply(Find(question.question, self._program.sources)))
        made = [(CLASSIFIER, self._label_route(question, glimpse))]
        if question.route == "direct" or question.outcome == "clarify":
            if question.route == "direct" and question.answer:
                made.append(
                    (DRAFT, self._show_draft(question, glimpse[:SHOWN], f"{ReplyKind.GENERAL}: {question.answer}"))
                )
            return made
        if question.sql:  # the schema stands in the request alone, once for all examples
            made.append(("retriever.sql", {"question": question.question, "sql": question.sql}))
        found = self._search(question)
        evidence = [self._passages[i] for i in question.evidence if i in self._passages]
        made += [("judge.sufficiency", fields) for fields in _label_sufficiency(question, found, evidence)]
        if question.id not in self._worked:
            return made
        if question.sub_queries:
            split = {"question": question.question, "sub_queries": list(question.sub_queries)}
            made.append(("decomposer.split", split))
        if not self._program.view().quotes:  # of what is quoted, the pieces are judged and nothing else
            made += [("grounder.responsive", fields) for fields in self._label_drafts(question, found, evidence)]
        made += [(DRAFT, fields) for fields in self._label_answer(question, found, evidence)]
        return made

    def _search(self, question: LabelledQuestion) -> dict[str, list[Passage]]:
        """Return what the question or its look-ups bring, by query."""
        queries = [question.question]
        if question.route == "complex" and not reads_instructions(self._program, "decomposer.split"):
            reply = self._replay.reply(Ask("decomposer.split", {"question": question.question}))
            queries = reply["sub_queries"][:4] or queries
        elif question.route == "complex":
            queries = list(question.sub_queries)[:4] or queries
        pools = [self._replay.reply(Find(query, self._program.sources)) for query in queries]
        return {query: rank_pool(pool, self._program.view().tuning) for query, pool in zip(queries, pools, strict=True)}

    def _label_route(self, question: LabelledQuestion, glimpse: list[Passage]) -> Fields:
        fields: Fields = {"question": question.question, "glimpse": excerpts(glimpse)}
        if question.route is not None:
            fields["route"] = question.route
        if question.sources or question.route == "direct":
            fields |= {BASE_PREFIX + name: name in question.sources for name in self._program.sources}
        return fields

    def _label_drafts(self, question: LabelledQuestion, found: Found, evidence: Sequence[Passage]) -> list[Fields]:
        """Label quotations of the passages, right when they state every fact and no rival one."""
        wanted = {p.id for p in evidence}
        others = [p for p in _first_passages(found) if p.id not in wanted]
        shown = [_first_passages(found), *([list(evidence), others[:CONTEXT]] if evidence else [])]
        made = []
        for draft in dict.fromkeys(self._draft_answer(question.question, list(found), passages) for passages in shown):
            try:
                verdict = judge_answer(question, "answered", " ".join(said.text for said in draft))
            except Exception:  # a question that cannot be graded teaches nothing; the search names it
                return []
            if not (verdict.partial and HALF_RIGHT[0] < verdict.fact_share < HALF_RIGHT[1]):
                made.append({"question": question.question, "answer": list(draft), "responsive": verdict.correct})
        return made

    def _draft_answer(self, question: str, queries: list[str], passages: list[Passage]) -> tuple[Statement, ...]:
        """Return for each query the pieces that the reader takes for its answer, the best one at least."""
        drafted: dict[str, Statement] = {}
        for query in dict.fromkeys([*queries, question]):
            read = self._program.runtime.models.reader.read(query, [(p.title, p.text) for p in passages])
            scored = [
                (reading.best_within(piece.start, piece.end)[0] + reading.answers, piece.text, passage.title)
                for reading, passage in zip(read, passages, strict=True)
                for piece in split_pieces(passage.text)
            ]
            most = self._program.view().tuning.sentences
            for n, (score, text, title) in enumerate(sorted(scored, reverse=True)[:most]):
                if n == 0 or score > 0:
                    drafted[text] = Statement(title=title, text=text)
        return tuple(drafted.values())

    def _label_answer(self, question: LabelledQuestion, found: Found, evidence: Sequence[Passage]) -> list[Fields]:
        """Return the labelled answer, each sentence citing the evidence that bears it out; none when one is not.

        Of a question without an answer it is that something is missing.
        """
        wanted = {p.id for p in evidence}
        others = [p for p in _first_passages(found) if p.id not in wanted]
        if question.outcome == "abstain":
            return [self._show_draft(question, others[:SHOWN], f"{ReplyKind.MISSING}: what is asked")]
        if not evidence or not question.answer:
            return []
        passages = sorted([*evidence, *others[: max(0, SHOWN - len(evidence))]], key=lambda p: p.id)
        numbered = [(n, p) for n, p in enumerate(passages, 1) if p.id in wanted]
        cited = [_cite_evidence(sentence, numbered) for sentence in split_sentences(question.answer)]
        return [] if "" in cited else [self._show_draft(question, passages, " ".join(cited))]

    def _show_draft(self, question: LabelledQuestion, passages: Sequence[Passage], reply: str) -> Fields:
        """Return the fields of a reply to a question with these passages."""
        sentences = self._program.view().tuning.sentences
        inputs = {"conversation": (), "question": question.question, "passages": [*passages], "sentences": sentences}
        return {**to_prompt_inputs(inputs), "answer": reply}


def _label_sufficiency(question: LabelledQuestion, found: Found, evidence: Sequence[Passage]) -> list[Fields]:
    """Label what was found: sufficient where it states every labelled fact, or holds all evidence without one."""
    context = _first_passages(found)
    if question.outcome == "abstain":
        sufficient = False
    elif question.alternatives:
        text = " ".join(passage.text for passage in context)
        sufficient = all(states(text, forms) for forms in question.alternatives)
    elif evidence:
        sufficient = {p.id for p in evidence} <= {p.id for p in context}
    else:
        return []
    return [{"question": question.question, "passages": excerpts(context), "sufficient": sufficient}]


def _cite_evidence(sentence: str, evidence: Sequence[tuple[int, Passage]]) -> str:
    """Return the sentence with the marks of the first passage that bears it out, or of all that do together.

    Empty where none do, or where it has no number and no name by which to tell.
    """
    said = sentence.strip()
    if holds("", said):
        return ""
    for among in (*([one] for one in evidence), evidence):
        if holds(" ".join(f"{p.title} {p.text}" for _, p in among), said):
            marks = "".join(f"[{n}]" for n, _ in among)
            return f"{said[:-1]} {marks}." if said.endswith(".") else f"{said} {marks}"
    return ""


def _first_passages(found: Found) -> list[Passage]:
    return interleave(found.values())[:CONTEXT]


def thin_out(demonstrations: Sequence[Demonstration], most: int | None = None) -> list[Demonstration]:
    """Return at most `most` of each predictor, in the proportion of their labels.

    Without `most`, at most CLASSIFIED of the classifier and of sufficiency, MOST of any other.
    """
    groups: dict[tuple[str, bool], list[int]] = defaultdict(list)
    for at, one in enumerate(demonstrations):
        right = bool(one.fields.get(LABEL.get(one.predictor, "")))  # no for a predictor with several outputs
        groups[one.predictor, right].append(at)
    sizes = Counter(one.predictor for one in demonstrations)
    kept: set[int] = set()
    for (predictor, _), places in groups.items():
        limit = most or {CLASSIFIER: CLASSIFIED, "judge.sufficiency": CLASSIFIED}.get(predictor, MOST)
        share = min(1.0, limit / sizes[predictor])
        kept |= {places[int(n / share)] for n in range(int(len(places) * share))}
    return [one for at, one in enumerate(demonstrations) if at in kept]


def to_json(demonstration: Demonstration) -> Demonstration:
    """Return the demonstration in JSON values, as a predictor has it."""
    return replace(demonstration, fields={name: to_jsonable(value) for name, value in demonstration.fields.items()})


def reads_instructions(program: AgenticRAG, name: str) -> bool:
    """Return True when a language model may answer the predictor."""
    client = client_of(program.runtime.models, program.predictor(name))
    return client is not None and not is_local(client)


def learns_demos(program: AgenticRAG, name: str) -> bool:
    """Return True when an embedded decider answers the predictor."""
    predictor = program.predictor(name)
    return is_decision(predictor) and is_local(client_of(program.runtime.models, predictor))


def observe_runs(arms: Sequence[ReplayArm]) -> list[Run]:
    """Return the runs of the arms' questions that anybody may ask."""
    runs = []
    for arm in arms:
        questions = [question for question in arm.questions if not question.readers]
        traced = arm.replay.trace_all([question.asked for question in questions])
        for question, (answer, asked) in zip(questions, traced, strict=True):
            with contextlib.suppress(Exception):  # a question that cannot be graded teaches nothing
                runs.append(Run(question, answer, judge_answer(question, answer.outcome, answer.text), asked))
    return runs


def bootstrap_demonstrations(runs: Sequence[Run]) -> list[Demonstration]:
    """Return the replies in the runs that ended well, no input twice."""
    found: dict[str, Demonstration] = {}
    for run in runs:
        for ask, reply in run.asked if run.verdict.correct else ():
            fields = {**to_prompt_inputs(ask.inputs), **plain_values(reply)}
            found.setdefault(
                f"{ask.predictor} {ask.inputs!r}", Demonstration(ask.predictor, run.question.cluster, fields)
            )
    return list(found.values())


def plain_values(reply: Mapping[str, Any]) -> dict[str, Any]:
    """Return a reply as plain values: decisions decoded, texts without a weight."""
    values = {name: value.value if isinstance(value, Decision) else value for name, value in reply.items()}
    return {name: value for name, value in values.items() if name != LOGPROB}


def collect_failures(runs: Sequence[Run], name: str) -> list[Failure]:
    """Return the predictor's part in runs that ended badly."""
    failures: list[Failure] = []
    for run in (run for run in runs if not run.verdict.correct):
        remarks = graded(run.question.as_example(), run.answer, pred_name=name).feedback
        said = f"{remarks} The final answer was: {run.answer.text!r}"
        parts = [
            (to_prompt_inputs(ask.inputs), plain_values(reply)) for ask, reply in run.asked if ask.predictor == name
        ]
        failures += [describe_failure(inputs, outputs, said) for inputs, outputs in parts]
    return failures


def describe_failure(inputs: Mapping[str, Any], outputs: Mapping[str, Any], feedback: str) -> Failure:
    """Return what a predictor got wrong, in GEPA's form."""
    return {
        "Inputs": {name: to_jsonable(value) for name, value in inputs.items()},
        "Generated Outputs": {name: to_jsonable(value) for name, value in outputs.items()},
        "Feedback": feedback,
    }
