"""The pages for people, rendered here: ask, compare two versions blind, review; and `POST /v1/feedback`."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence
from itertools import chain, zip_longest
from pathlib import Path
from textwrap import shorten
from typing import Annotated, Any, Literal
from urllib.parse import urlencode
from uuid import uuid4

from pydantic import BaseModel, Field
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.templating import Jinja2Templates

from ragc.answer import Answer, Outcome
from ragc.errors import DataError, ExperimentError
from ragc.loop.rag import check_question
from ragc.loop.reviewed import Drafts, FindPassage
from ragc.serve.experiment_store import require_outcome
from ragc.server.chat import describe, find_quotes
from ragc.server.feedback import UNDO, ReviewedAnswer, Verdict
from ragc.server.work import JsonResponse, Work, asker_of, keep_unit, readers_of, record, work_of
from ragc.storage import keep_last
from ragc.text.pieces import split_pieces

HERE = Path(__file__).parent
OUTCOMES = {
    **{Outcome.ANSWERED: "answered", Outcome.CLARIFY: "asks back"},
    **{Outcome.ABSTAIN: "not known", Outcome.FAILED: "failed"},
}
"""What every page calls an outcome."""
TEMPLATES = Jinja2Templates(HERE / "templates")
VERDICTS = {
    "right": ("Right", "r"),
    "wrong": ("Wrong", "w"),
    "should_clarify": ("Should have asked", "a"),
    "should_abstain": ("Should have said nothing", "n"),
    "skip": ("Skip", "s"),
}
"""What the review page calls a verdict, and its key."""
NOT_KNOWN = "Nothing was recorded for that answer: it is not known."
DECISIONS = {"keep": ("Keep", "k"), "drop": ("Drop", "d")}
"""What the page of drafts calls a decision, and its key."""
TEMPLATES.env.globals |= {"outcomes": OUTCOMES, "verdicts": VERDICTS, "decisions": DECISIONS}
THUMB = "thumb_up"
"""The outcome by which an experiment counts verdicts: 1 for right, 0 for wrong."""
EXAMPLES = 4  # questions that an empty page shows at most
MOST_PAIRS = 1000  # comparisons that may still be voted on
FILTERS = ("outcome", "version", "day")  # by which the answers to review are chosen
LISTED = 50  # answers to review that are listed at most
SHOWN = 12  # passages that a review shows at most
TraceId = Annotated[str, Field(pattern="^[0-9a-f]{16}$")]


class Feedback(BaseModel, extra="forbid"):
    """What the asker says of an answer: whether it is right, what is, and an outcome for an experiment."""

    trace_id: TraceId
    verdict: Literal["right", "wrong"] | None = None
    corrected: Annotated[str, Field(max_length=10_000)] = ""
    outcome: str = ""
    value: float = 1.0
    user: str = ""


class ComparisonForm(BaseModel, extra="forbid"):
    """One question to two versions."""

    question: str
    versions: tuple[str, str]


class Vote(BaseModel, extra="forbid"):
    """Which of two answers is better: its place, or None for neither."""

    pair: str
    preferred: Literal[0, 1] | None


class ReviewForm(BaseModel):
    """What the review page posts."""

    trace_id: TraceId
    verdict: Verdict
    fact: Annotated[str, Field(max_length=2_000)] = ""
    evidence: tuple[str, ...] = ()
    seconds: Annotated[float, Field(ge=0, le=86_400)] = 0.0


class DraftForm(BaseModel):
    """What the page of drafts posts."""

    id: str
    decision: Literal["keep", "drop", "undo"]
    question: Annotated[str, Field(max_length=10_000)] = ""
    fact: Annotated[str, Field(max_length=10_000)] = ""
    seconds: Annotated[float, Field(ge=0, le=86_400)] = 0.0


def show_ask(request: Request) -> Response:
    """Show the page on which one asks."""
    programs = work_of(request).programs
    cards = programs.library.readable_by(readers_of(request)).describe()
    in_turn = chain.from_iterable(zip_longest(*(card.asks for card in cards)))  # the first of each base, then the next
    context = {"models": programs.label_models(), "cards": cards, "examples": [*filter(None, in_turn)][:EXAMPLES]}
    context["changed"] = programs.tell_unindexed()
    page = TEMPLATES.TemplateResponse(request, "ask.html", context)
    keep_unit(request, page, uuid4().hex)
    return page


def show_compare(request: Request) -> Response:
    """Show the page on which two versions answer, their names hidden."""
    versions = work_of(request).programs.list_versions()
    return TEMPLATES.TemplateResponse(request, "compare.html", {"versions": versions})


async def compare_blind(request: Request) -> Response:
    """Return the answers of two versions in a random order, and a name for the pair."""
    work = work_of(request)
    asked = ComparisonForm.model_validate_json(await request.body())
    question = check_question(asked.question)
    if len({*asked.versions}) < len(asked.versions):
        raise HTTPException(400, "Choose two versions.")
    work.require_room()
    versions = secrets.SystemRandom().sample(asked.versions, 2)
    programs = [await work.programs.find(version) for version in versions]
    asker = asker_of(request, None)

    def tell(answer: Answer) -> tuple[str, dict[str, Any]]:
        found = describe(answer, work)
        return answer.version, {"text": answer.shown, **{name: found[name] for name in ("citations", "outcome")}}

    told = await asyncio.gather(*(work.ask(program, question, asker, tell) for program in programs))
    pair = secrets.token_urlsafe(12)
    keep_last(work.pairs, {pair: (versions, [version for version, _ in told])}, MOST_PAIRS)
    return JsonResponse({"pair": pair, "answers": [answer for _, answer in told]})


async def vote_version(request: Request) -> Response:
    """Record which of a pair is better, once, and tell the versions."""
    vote = Vote.model_validate_json(await request.body())
    work = work_of(request)
    versions, labels = work.pairs.pop(vote.pair, ([], []))
    if not versions:
        raise HTTPException(404, "This comparison is not open any more. Ask again.")
    preferred = "" if vote.preferred is None else versions[vote.preferred]
    try:
        await record(work.feedback.write_vote, versions, preferred)
    except HTTPException:
        work.pairs[vote.pair] = versions, labels
        raise
    work.metrics.count_event("vote", preferred or "neither")
    names = [label if name in label else f"{name} ({label})" for name, label in zip(versions, labels, strict=True)]
    return JsonResponse({"versions": names})


async def take_feedback(request: Request) -> Response:
    """Write down what the asker says of an answer.

    An outcome counts in an experiment alone.
    """
    work = work_of(request)
    feedback = Feedback.model_validate_json(await request.body())
    if feedback.verdict is None and not feedback.outcome:
        raise HTTPException(400, "Give a verdict, right or wrong, or the name of an outcome.")
    if feedback.outcome:
        try:
            require_outcome(feedback.outcome, feedback.value)
        except ExperimentError as error:
            raise HTTPException(400, str(error)) from error
    asked_by = await run_in_threadpool(work.feedback.find_asker, feedback.trace_id)
    if asked_by is None or not asked_by.is_judged_by(asker_of(request, feedback.user).pseudonymize()):
        raise HTTPException(404, "You were given no answer of this trace_id.")
    await record(_write_feedback, work, feedback, asked_by.counts)
    return JsonResponse({"recorded": feedback.verdict is not None or asked_by.counts})


def _write_feedback(work: Work, feedback: Feedback, counts: bool) -> None:
    outcomes = {feedback.outcome: feedback.value} if feedback.outcome else {}
    if feedback.verdict is not None:
        work.feedback.write_verdict(feedback.trace_id, feedback.verdict, feedback.corrected)
        work.metrics.count_event("verdict", feedback.verdict)
        outcomes[THUMB] = float(feedback.verdict == "right")
    if counts and work.programs.experiment is not None:
        work.programs.experiment.record(feedback.trace_id, outcomes)


def show_review(request: Request) -> Response:
    """Show the first answer of the queue, or that of `?trace=`.

    `?after=` names the trace whose review was recorded.
    """
    return _render_review(request, request.query_params.get("trace", ""), request.query_params.get("after", ""))


def _read_filters(request: Request) -> dict[str, str]:
    """Return what the answers to review have to have, by the query of a request."""
    return {name: wanted for name in FILTERS if (wanted := request.query_params.get(name, ""))}


def _describe_review(entry: dict[str, Any]) -> str:
    """Return a sentence on the last review of an answer, and what it replaced; empty without one."""
    if not (reviews := entry["reviews"]):
        return ""
    question = shorten(entry["question"], 200, placeholder=" …")
    if reviews[-1]["verdict"] == UNDO:
        return f"Undone: “{question}” is in the queue again."
    reviews = [review for review in reviews if review["verdict"] != UNDO]
    names = [VERDICTS[review["verdict"]][0] for review in reviews]
    instead = f", in place of {names[-2]}" if len(names) > 1 else ""
    unlabelled = reviews[-1]["verdict"] == "wrong" and not reviews[-1]["corrected"]
    no_label = " It made no label: nothing says what is right." if unlabelled else ""
    return f"Recorded: {names[-1]} for “{question}”{instead}.{no_label}"


def _render_review(
    request: Request, trace: str = "", after: str = "", problem: str = "", form: ReviewForm | None = None
) -> Response:
    """Return the page of one answer, or of the first in the queue, and what was recorded of that reviewed before it.

    After a `problem` it has what the `form` held.
    """
    work, readers = work_of(request), readers_of(request)
    every = work.feedback.list_queue(readers, work.programs.list_changed())
    wanted = _read_filters(request)
    queue = [one for one in every if wanted.items() <= one.items()]
    library = work.programs.library.readable_by(readers)
    entry = work.feedback.find_entry(trace, readers) if trace else None
    past = work.feedback.find_entry(after, readers) if after else entry
    status = 400 if problem else 404 if trace and entry is None else 200
    notice = NOT_KNOWN if status == 404 else _describe_review(past) if past else ""
    if entry is None and queue:
        entry = work.feedback.find_entry(queue[0]["trace_id"], readers)
    context: dict[str, Any] = {"left": len(queue), "entry": entry, "problem": problem, "notice": notice}
    context["why"] = next((one["why"] for one in queue if entry and one["trace_id"] == entry["trace_id"]), "")
    context |= {"reviewed": after if notice else "", "queue": queue[:LISTED], "wanted": wanted}
    context["filters"] = {name: sorted({str(one.get(name, "")) for one in every}) for name in FILTERS}
    context["query"], context["drafts"] = urlencode(wanted), len(_find_drafts(request)[2])
    if entry is not None:
        answered = entry["outcome"] == Outcome.ANSWERED
        numbers = {one["id"]: one["n"] for one in entry["citations"] if answered}
        ids = list(dict.fromkeys([*numbers, *entry.get("retrieved", ())]))[:SHOWN]
        found = [passage for id_ in ids if (passage := library.find_passage(id_)) is not None]
        quotes = {p.id: find_quotes(entry["text"], numbers[p.id], p.text) for p in found if p.id in numbers}
        first = next(((p, places[0]) for p in found if (places := quotes.get(p.id))), None)
        quoted = first[0].text[first[1][0] : first[1][1]] if first else ""
        segments = {p.id: _cut_segments(p.text, quotes.get(p.id, [])) for p in found}
        wrong = entry["verdict"] == "wrong"  # what the answer quotes is then no proposal
        fact, ticked = entry["corrected"] or ("" if wrong else quoted), () if wrong else (*numbers,)
        fact, ticked = (form.fact, form.evidence) if form else (fact, ticked)
        context |= {"passages": found, "numbers": numbers, "segments": segments, "fact": fact, "ticked": ticked}
    return TEMPLATES.TemplateResponse(request, "review.html", context, status_code=status)


def _cut_segments(text: str, quotes: Sequence[tuple[int, int]]) -> list[tuple[str, bool, bool]]:
    """Return a passage cut up: each part, whether it is a piece that can be chosen, and whether it was quoted."""
    found, end = [], 0
    for piece in split_pieces(text):
        start = max(piece.start, end)
        if start < piece.end:
            quoted = any(first <= start < last for first, last in quotes)
            found += [(text[end:start], False, False), (text[start : piece.end], True, quoted)]
            end = piece.end
    return [*found, (text[end:], False, False)]


async def take_review(request: Request) -> Response:
    """Write a review, and go on to the next one."""
    data = await request.form()
    fields = {key: value for key, value in data.items() if key != "evidence"}
    form = ReviewForm.model_validate({**fields, "evidence": tuple(data.getlist("evidence"))})
    return await record(_write_review, request, form)


def _write_review(request: Request, form: ReviewForm) -> Response:
    work, readers = work_of(request), readers_of(request)
    entry = work.feedback.find_entry(form.trace_id, readers)
    if entry is None:
        return _render_review(request, form.trace_id)
    facts = (form.fact.strip(),) if form.fact.strip() else ()
    review = ReviewedAnswer(form.verdict, facts, form.evidence, form.seconds, request.user.username[:8])
    try:
        work.feedback.write_review(entry, review, work.programs.library.readable_by(readers))
    except DataError as error:
        return _render_review(request, form.trace_id, problem=str(error), form=form)
    work.metrics.count_event("review", form.verdict)
    return RedirectResponse(f"/review?{urlencode({'after': form.trace_id, **_read_filters(request)})}", 303)


def _find_drafts(request: Request) -> tuple[Drafts, FindPassage, list[dict[str, Any]]]:
    """Return the project's drafts, what finds their passages, and those that wait and the reviewer may read."""
    work, readers = work_of(request), readers_of(request)
    drafts, find = Drafts(work.programs.project), work.programs.library.readable_by(readers).find_passage
    return drafts, find, [row for row in drafts.list_waiting(find) if {*row.get("readers", ())} <= {*readers}]


def show_draft(request: Request, problem: str = "", form: DraftForm | None = None) -> Response:
    """Show the first draft that waits; after a `problem` that of the `form`."""
    _, find, waiting = _find_drafts(request)
    draft = next((row for row in waiting if form and row["id"] == form.id), waiting[0] if waiting else None)
    context: dict[str, Any] = {"draft": draft, "left": len(waiting), "problem": problem}
    context["decided"] = request.query_params.get("after", "")
    if draft is not None:
        fact = " | ".join(map(str, draft["facts"]))
        context["question"], context["fact"] = (form.question, form.fact) if form else (draft["question"], fact)
        context["passages"] = [passage for id_ in draft["evidence"] if (passage := find(id_)) is not None]
    return TEMPLATES.TemplateResponse(request, "draft.html", context, status_code=400 if problem else 200)


async def take_draft(request: Request) -> Response:
    """Keep or drop a draft, or take that back, and go on to the next one."""
    return await record(_write_draft, request, DraftForm.model_validate(dict(await request.form())))


def _write_draft(request: Request, form: DraftForm) -> Response:
    drafts, find, waiting = _find_drafts(request)
    try:
        if form.decision == "undo":
            drafts.reopen(form.id)
        elif form.id in {row["id"] for row in waiting}:
            if form.decision == "drop":
                drafts.drop(form.id)
            else:
                facts = [fact.strip() for fact in form.fact.split("|") if fact.strip()]
                changes = {"question": form.question.strip(), "facts": facts}
                drafts.keep(form.id, find, changes, by=request.user.username[:8], seconds=form.seconds)
    except DataError as error:
        return show_draft(request, str(error), form)
    after = "" if form.decision == "undo" else f"?{urlencode({'after': form.id})}"
    return RedirectResponse(f"/review/draft{after}", 303)


ROUTES = [
    Route("/", show_ask, methods=["GET"]),
    Route("/compare", show_compare, methods=["GET"]),
    Route("/compare", compare_blind, methods=["POST"]),
    Route("/compare/vote", vote_version, methods=["POST"]),
    Route("/review", show_review, methods=["GET"]),
    Route("/review", take_review, methods=["POST"]),
    Route("/review/draft", show_draft, methods=["GET"]),
    Route("/review/draft", take_draft, methods=["POST"]),
    Route("/v1/feedback", take_feedback, methods=["POST"]),
    Mount("/static", StaticFiles(directory=HERE / "static"), name="static"),
]
