"""The loop: what to ask and what to look up next, until there is an answer. It performs nothing itself.

`steps` yields requests and receives replies; a driver performs them. The same generator therefore runs live,
asynchronously, streaming, or from a record.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import date

from ragc.answer import FOLLOWS, Answer, Outcome, StoppedBy
from ragc.loop import evidence, grounding
from ragc.loop.decide import Move, Verdict, decide
from ragc.loop.judging import judge_evidence
from ragc.loop.state import SQL, Ask, Find, Flow, Plan, State, StepFailed, View, format_share, read_look_ups, read_plan
from ragc.models.embedded.direct import GREETINGS, find_reply
from ragc.text.history import Asked
from ragc.text.words import find_foreign_language

DIRECT_CONFIDENCE = 0.9
"""The confidence of an answer that the writer gave by itself, without evidence; no calibrated figure."""
KNOWN_ABOVE = 0.5
"""How surely no look-up is needed for a language model to answer of itself, after the knowledge had no answer."""
UNREAD = "I read English only, and this seems to be another language. Please ask in English."


def steps(
    asked: Asked,
    program: View,
    max_rounds: int = 10,
    tripped: Callable[[], StoppedBy | None] = lambda: None,
    path: list[str] | None = None,
) -> Flow[Answer]:
    """Yield requests, receive their replies, and return the answer.

    `path` is filled with the readable trace as it grows; `tripped` names the cap that is reached, if any.
    """
    path = [] if path is None else path
    state = State(asked.question, program, max_rounds, tripped, path, asked.history, asked.today or date.today())
    text = ""
    for attempt in (_answer_in_rounds, _fall_back):
        try:
            answer = yield from attempt(state)
            if answer.outcome is Outcome.ANSWERED and answer.confidence < state.tuning.refuse_below:
                answer = yield from grounding.abstain(state, "", 1.0 - answer.confidence, answer.stopped_by)
            return answer
        except StepFailed as failure:
            path.append(f"failed: {failure}")
            text = failure.text
    return Answer(grounding.make_answer(state, "", Outcome.FAILED, 0.0, stopped_by=StoppedBy.FALLBACK), text=text)


def _answer_in_rounds(state: State) -> Flow[Answer]:
    tuning = state.tuning
    if language := find_unread_language(state.program, state.question):
        state.path.append(f"language {language}")
        return grounding.make_answer(state, UNREAD, Outcome.ABSTAIN, 0.5)
    if not state.program.sources:  # all of it is kept from whoever asks
        return (yield from grounding.abstain(state, "", 1.0))
    yield from _resolve_history(state)
    yield from _plan_question(state)
    question, plan = state.question, state.plan
    # Where it is likelier that no look-up is needed than that the question is vague, there is nothing to ask back.
    if plan.vague and not (plan.route == "direct" and plan.confidence > plan.vagueness):
        state.path.append(f"clarify ({format_share(plan.vagueness)})")
        state.kept = state.found = evidence.preview_pool(
            evidence.drop_superseded(state.pool or (), state.years, state.day)
        )
        return (yield from _ask_back(state))
    direct = bool(tuning.route) and plan.route == "direct"
    # The embedded writer greets and computes; a language model may invent, so the knowledge is asked before it.
    at_once = direct and (state.program.quotes or is_greeting(state.program, question))
    if at_once:
        answer = yield from _answer_directly(state, DIRECT_CONFIDENCE)
        if answer is not None or not tuning.look_up_unknown:
            return answer or (yield from grounding.abstain(state, "", 0.5))
    answer = yield from _look_up(state)
    may_know = direct and not at_once and plan.confidence > KNOWN_ABOVE and state.tripped() is None
    if may_know and answer.outcome is Outcome.ABSTAIN:
        return (yield from _answer_directly(state, plan.confidence, answer.stopped_by)) or answer
    return answer


def _answer_directly(state: State, confidence: float, stopped_by: StoppedBy = StoppedBy.DONE) -> Flow[Answer | None]:
    """Return what the writer knows by itself, or None."""
    (reply,) = yield [Ask("generator.direct", {"question": state.question})]
    text = reply["answer"].strip()
    if not text or grounding.repeats_prompt(state, "generator.direct", text):
        state.path.append("no direct answer")
        return None
    state.path.append("unretrieved")
    state.kept = []
    return grounding.make_answer(state, text, Outcome.ANSWERED, confidence, stopped_by=stopped_by)


def _look_up(state: State) -> Flow[Answer]:
    """Search as planned, and answer from what is found or abstain."""
    tuning, plan = state.tuning, state.plan
    if tuning.one_strategy:
        state.order = state.promising
        state.strategy = state.order[0]
    if tuning.decompose and (plan.route == "complex" or state.program.quotes):
        (reply,) = yield [Ask("decomposer.split", {"question": state.question})]
        state.look_ups = read_look_ups(reply)
    yield from _search_plan(state)
    if tuning.judge and plan.route == "simple" and plan.confidence > tuning.fast_above:
        state.kept = state.found[: tuning.keep_at_most]
        state.verdict = Verdict(True, plan.confidence, len(state.kept))
        answer = yield from _write_answer(state, StoppedBy.DONE, last=False)
        if answer is not None:
            return answer
        state.path.append("unsure")
    return (yield from _take_rounds(state))


def _resolve_history(state: State) -> Flow[None]:
    """Have a question that follows on from the conversation stand by itself; one that cannot be is taken as it is."""
    if not state.history or is_greeting(state.program, state.question):
        return
    inputs = {"history": state.history, "question": state.question}
    try:
        (reply,) = yield [Ask("conversation.follows_on", inputs)]
        if not reply["follows_on"].value:
            return
        (reply,) = yield [Ask("conversation.standalone", inputs)]
    except StepFailed as failure:
        state.path.append(f"history left out: {failure}")
        return
    if not grounding.repeats_prompt(state, "conversation.standalone", text := reply["standalone"].strip()):
        state.follow_on(text)
        state.path.append(f"{FOLLOWS}{text}")


def _look_first(state: State) -> list[Find]:
    """Return the searches for the question by itself, and for a follow-up's own words."""
    asked = [state.asked] if state.asked and state.tuning.asked_weight else []
    return [Find(query, state.program.sources) for query in (state.question, *asked)]


def _plan_question(state: State) -> Flow[None]:
    """Search the question as it is, and plan by what was found. A greeting needs neither."""
    question = state.question
    if state.tuning.route and is_greeting(state.program, question):
        state.plan = Plan("direct", (), ())
        state.path.append("greeting")
        return
    state.pool = evidence.blend_pools((yield [*_look_first(state)]), state.tuning.asked_weight)
    if not state.tuning.route:
        return
    glimpse = evidence.preview_pool(state.pool)
    (reply,) = yield [Ask("classifier.route", {"question": question, "glimpse": glimpse})]
    state.plan = read_plan(reply, state.program.sources)
    if state.chose:  # nobody is asked back twice in a row
        state.plan = replace(state.plan, vague=False, vagueness=0.0)
    state.path.append(f"classify->{state.plan.route}[{','.join(state.plan.bases)}]")


def _take_rounds(state: State) -> Flow[Answer]:
    """Judge what was searched, and do what `decide` says until there is an answer."""
    while True:
        if state.tripped() is StoppedBy.SECONDS:
            if not state.rounds:  # of what was found nobody is sure
                state.kept = state.found[: state.tuning.keep_at_most]
                state.verdict = Verdict(False, 0.0, len(state.kept))
            return (yield from _write_or_abstain(state, StoppedBy.SECONDS))
        yield from judge_evidence(state)
        action = decide(state.verdict, state.progress, state.tuning, state.max_rounds, state.tripped())
        if action.move is Move.WRITE:
            return (yield from _write_or_abstain(state, action.stopped_by))
        if action.move is Move.ASK_BACK:
            state.path.append("clarify")
            return (yield from _ask_back(state, action.stopped_by))
        if action.move is Move.GIVE_UP:
            return (yield from _abstain(state, action.stopped_by))
        state.previous = state.verdict.sufficiency
        if action.move is Move.SEARCH:
            yield from _search_queries(state, action.queries)
        else:
            state.strategy = next(s for s in state.order if s.name == action.strategy)
            state.path.append(f"switch->{action.strategy}")
            yield from _search_queries(state, state.queries or [state.question])


def _ask_back(state: State, stopped_by: StoppedBy = StoppedBy.DONE) -> Flow[Answer]:
    """Ask one question back that names the options read in what was found; that counts as found, not as cited.

    The embedded writer reads them. A language model that writes words the question; an echo gives way to the embedded
    writer's own.
    """
    inputs = {"question": state.question, "passages": state.kept, "options": []}
    (reply,) = yield [Ask("generator.clarify", inputs)]
    text, options = reply["clarifying_question"], reply.get("offered", [])
    if options and not state.program.quotes:
        (reply,) = yield [Ask("generator.clarify", {**inputs, "options": options})]
        if not grounding.repeats_prompt(state, "generator.clarify", reply["clarifying_question"]):
            text = reply["clarifying_question"]
    if grounding.repeats_prompt(state, "generator.clarify", text):
        return (yield from grounding.abstain(state, state.missing, 0.0, stopped_by))
    state.kept = []
    answer = grounding.make_answer(state, text, Outcome.CLARIFY, state.plan.vagueness, stopped_by=stopped_by)
    return Answer(answer, options=tuple(option for option in options if option in answer.text))


def _write_or_abstain(state: State, stopped_by: StoppedBy) -> Flow[Answer]:
    """Return the answer; when nothing of it can be upheld, say what is known to be missing."""
    answer = yield from _write_answer(state, stopped_by)
    return answer or (yield from _abstain(state, stopped_by))


def _abstain(state: State, stopped_by: StoppedBy) -> Flow[Answer]:
    return (yield from grounding.abstain(state, state.missing, 1.0 - state.verdict.sufficiency, stopped_by))


def _write_answer(state: State, stopped_by: StoppedBy, last: bool = True) -> Flow[Answer | None]:
    """Return the grounded answer or None; the `last` text without any support gives way to a quotation."""
    draft = yield from grounding.write_draft(state)
    if last:
        draft = yield from grounding.quote_unsupported(state, draft)
    return (yield from grounding.conclude_answer(state, draft, stopped_by))


def _fall_back(state: State) -> Flow[Answer]:
    """Answer as plain RAG does with what is there: at most one search, one text, nothing judged."""
    if not state.ranked:
        if state.pool is None:
            state.pool = evidence.blend_pools((yield [*_look_first(state)]), state.tuning.asked_weight)
        evidence.rank_searches(state, {(state.strategy.name, state.question): state.pool or ()})
    state.kept = state.kept or state.found[: state.tuning.k]
    state.conflicts = []
    state.path.append("fallback")
    state.tuning = replace(state.tuning, ground=0)
    if state.kept:
        draft = yield from grounding.quote_unsupported(state, (yield from grounding.write_once(state, strict=False)))
        if draft.text:
            return grounding.make_answer(state, draft.text, Outcome.ANSWERED, 0.0, state.kept, StoppedBy.FALLBACK)
    return (yield from grounding.abstain(state, "", 0.0, StoppedBy.FALLBACK))


def _search_plan(state: State) -> Flow[None]:
    """Search the question, or each look-up of its plan: independent ones together, a dependent one afterwards."""
    if not state.look_ups:
        yield from _search_queries(state, [state.question])
        return
    state.queries = [look_up.query for look_up in state.look_ups]
    after = [look_up.after for look_up in state.look_ups]
    waiting = list(range(len(after)))
    done: set[int] = set()
    while waiting and (not done or state.tripped() is None):
        ready = [n for n in waiting if done.issuperset(after[n])]
        dependent = [n for n in ready if after[n]]
        if dependent:
            replies = yield [_ask_follow_up(state, n) for n in dependent]
            state.path.append(f"follow({len(dependent)})")
            for n, reply in zip(dependent, replies, strict=True):
                written = reply["query"].strip() or state.queries[n]
                state.followed |= {written} - set(state.queries)
                state.queries[n] = written
        yield from _search_queries(state, [state.queries[n] for n in ready], count=not done)
        done.update(ready)
        waiting = [n for n in waiting if n not in done]
    state.queries = list(dict.fromkeys(state.queries))


def _search_queries(state: State, queries: Sequence[str], count: bool = True) -> Flow[None]:
    """Search by the strategy in use, with those queries that it was not given before."""
    scope, name = state.scope, state.strategy.name
    finds = [Find(query, scope) for query in dict.fromkeys(queries) if (name, query) not in state.ranked]
    yield from _rank_found(state, name, finds)
    state.searched += count
    state.path.append(f"search{f' {name}' if state.order else ''}({len(finds)})")


def _rank_found(state: State, name: str, finds: Sequence[Find]) -> Flow[None]:
    """Rank what each search finds: one made before is not made again, nor is the question's own first look."""
    first = [find for find in finds if find.query == state.question]
    state.pools.update({find: evidence.filter_by_source(state.pool or (), find.sources) for find in first})
    new = [find for find in dict.fromkeys(finds) if find not in state.pools]
    if new:
        state.pools.update(zip(new, (yield [*new]), strict=True))
    yield from _query_tables(state, finds)
    evidence.rank_searches(state, {(name, find.query): state.pools[find] for find in finds})


def _query_tables(state: State, finds: Sequence[Find]) -> Flow[None]:
    """Search the tables that the classifier wants by a SELECT that a language model writes.

    Its rows take the place of what the source found by itself; where it has none, that stays.
    """
    tables = state.program.tables if state.tuning.route and state.tuning.sql else {}
    wanted = [(f, name) for f in finds for name in f.sources if name in tables and name in state.plan.bases]
    wanted = [(find, name) for find, name in wanted if (find, name) not in state.queried]
    if not wanted:
        return
    state.queried.update(wanted)
    try:
        asks = [Ask("retriever.sql", {"question": find.query, "tables": tables[name]}) for find, name in wanted]
        written = [reply["sql"].strip() for reply in (yield [*asks])]
        given = [(find, name, sql) for (find, name), sql in zip(wanted, written, strict=True) if sql]
        state.path.append(f"sql({len(given)})")
        found = (yield [replace(find, sources=(name,), sql=sql) for find, name, sql in given]) if given else []
    except StepFailed as failure:
        state.path.append(f"no sql: {failure}")
        return
    for (find, name, _), rows in zip(given, found, strict=True):
        if any(passage.method == SQL for passage in rows):
            state.pools[find] = evidence.Pool([*(p for p in state.pools[find] if p.source != name), *rows])
        else:
            state.path.append(f"sql refused or empty: {name}")


def _ask_follow_up(state: State, n: int) -> Ask:
    parents = [state.ranked[state.strategy.name, state.queries[parent]] for parent in state.look_ups[n].after]
    inputs = {"question": state.question, "draft": state.look_ups[n].query, "passages": evidence.interleave(parents)}
    return Ask("decomposer.follow", inputs)


def find_unread_language(view: View, question: str) -> str:
    """Return the ISO 639 code of a question that no model here reads, or "".

    A question most of whose words stand in the documents is read, whatever its language.
    """
    if not view.runtime.models.english_only or not (language := find_foreign_language(question)):
        return ""
    known = view.runtime.library.find_known_words(question).values()
    return "" if sum(known) > len(known) / 2 else language


def is_greeting(view: View, message: str) -> bool:
    """Tell whether a message greets, thanks or takes leave, and asks nothing."""
    if not view.runtime.models.english_only or not find_reply(message):
        return False
    examples = " ".join(example for of_reply in GREETINGS.values() for example in of_reply)
    known = view.runtime.library.find_known_words
    return not any(stands for word, stands in known(message).items() if word not in known(examples))
