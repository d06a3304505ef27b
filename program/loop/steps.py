"""The loop: what to ask and what to look up next, until there is an answer. It performs nothing itself.

`steps` yields requests and receives replies; a driver performs them. The same generator therefore runs live,
asynchronously, streaming, or from a record.

1. A question that follows on is made to stand by itself, searched as it is, and classified by what was found.
2. A greeting, or a sum, is answered at once.
3. Each look-up is searched. The engine judges what was found, and `decide` says what is next: search again, by another
   strategy, give up, or have the engine write.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import date

from ragc.answer import Answer, Outcome, StoppedBy
from ragc.loop import evidence
from ragc.loop.answers import abstain, make_answer, repeats_prompt
from ragc.loop.decide import Move, Verdict, decide
from ragc.loop.engines import Engine, engine_of
from ragc.loop.state import SQL, Ask, Find, Flow, Plan, State, StepFailed, View, read_look_ups, read_plan
from ragc.models.embedded.writer import GREETINGS, find_reply, solve_sum
from ragc.notes import Note, NoteKind
from ragc.passage import Passage
from ragc.text.history import Asked
from ragc.text.words import find_foreign_language

DIRECT_CONFIDENCE = 0.9
"""The confidence of a greeting or a sum; no calibrated figure."""
UNREAD = "I read English only, and this seems to be another language. Please ask in English."


def steps(
    asked: Asked,
    program: View,
    max_rounds: int = 10,
    tripped: Callable[[], StoppedBy | None] = lambda: None,
    path: list[Note] | None = None,
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
                answer = yield from abstain(state, "", 1.0 - answer.confidence, answer.stopped_by)
            return answer
        except StepFailed as failure:
            path.append(NoteKind.FAILED(why=failure))
            text = failure.text
    return Answer(make_answer(state, "", Outcome.FAILED, 0.0, stopped_by=StoppedBy.FALLBACK), text=text)


def _answer_in_rounds(state: State) -> Flow[Answer]:
    if language := find_unread_language(state.program, state.question):
        state.path.append(NoteKind.LANGUAGE(code=language))
        return make_answer(state, UNREAD, Outcome.ABSTAIN, 0.5)
    if not state.program.sources:  # all of it is kept from whoever asks
        return (yield from abstain(state, "", 1.0))
    yield from _resolve_history(state)
    yield from _plan_question(state)
    plan = state.plan
    if state.tuning.route and plan.route == "direct" and (text := _reply_directly(state)):
        state.path.append(NoteKind.UNRETRIEVED())
        return make_answer(state, text, Outcome.ANSWERED, DIRECT_CONFIDENCE)
    return (yield from _look_up(state, engine_of(state)))


def _reply_directly(state: State) -> str:
    """Return the reply to a greeting; of the embedded models, that to a sum too. Empty for anything else."""
    if is_greeting(state.program, state.question):
        return find_reply(state.question)
    return solve_sum(state.question) if state.program.quotes else ""


def _look_up(state: State, engine: Engine) -> Flow[Answer]:
    """Search as planned, and do what `decide` says of the evidence until there is an answer or a refusal."""
    tuning, plan = state.tuning, state.plan
    if tuning.one_strategy:
        state.order = state.promising
        state.strategy = state.order[0]
    if tuning.decompose and (plan.route == "complex" or state.program.quotes):
        (reply,) = yield [Ask("decomposer.split", {"question": state.question})]
        state.look_ups = read_look_ups(reply)
    yield from search_plan(state)
    while True:
        if state.tripped() is StoppedBy.SECONDS:
            if not state.rounds:  # of what was found nobody is sure
                state.kept = state.found[: tuning.keep_at_most]
                state.verdict = Verdict(False, 0.0, len(state.kept))
            return (yield from _write(state, engine, StoppedBy.SECONDS))
        state.verdict = yield from engine.judge(state)
        if not state.verdict.sufficient and state.tripped() is None and (yield from query_tables(state)):
            state.verdict = yield from engine.judge(state)
        state.missing = state.verdict.missing or ("" if state.verdict.sufficient else state.missing)
        action = decide(state.verdict, state.progress, tuning, state.max_rounds, state.tripped())
        if action.move is Move.WRITE:
            return (yield from _write(state, engine, action.stopped_by))
        if action.move is Move.GIVE_UP:
            return (yield from abstain(state, state.missing, 1.0 - state.verdict.sufficiency, action.stopped_by))
        state.previous = state.verdict.sufficiency
        if action.move is Move.SWITCH:
            state.strategy = next(s for s in state.order if s.name == action.strategy)
            state.path.append(NoteKind.SWITCHED(strategy=action.strategy))
        yield from search_queries(state, action.queries or state.queries or [state.question])


def _write(state: State, engine: Engine, stopped_by: StoppedBy) -> Flow[Answer]:
    """Return the answer; when nothing of it can be said, say what is known to be missing."""
    answer = yield from engine.write(state, stopped_by)
    return answer or (yield from abstain(state, state.missing, 1.0 - state.verdict.sufficiency, stopped_by))


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
        state.path.append(NoteKind.HISTORY_LEFT_OUT(why=failure))
        return
    if not repeats_prompt(state, "conversation.standalone", text := reply["standalone"].strip()):
        state.follow_on(text)
        state.path.append(NoteKind.FOLLOWS(question=text))


def _plan_question(state: State) -> Flow[None]:
    """Search the question as it is, and plan by what was found. A greeting needs neither."""
    question = state.question
    if state.tuning.route and is_greeting(state.program, question):
        state.plan = Plan("direct", (), ())
        state.path.append(NoteKind.GREETING())
        return
    state.pool = yield from look_first(state)
    if not state.tuning.route:
        return
    glimpse = evidence.preview_pool(state.pool)
    (reply,) = yield [Ask("classifier.route", {"question": question, "glimpse": glimpse})]
    state.plan = read_plan(reply, state.program.sources)
    planned = NoteKind.DIRECT if state.plan.route == "direct" else NoteKind.PLANNED
    state.path.append(planned(route=state.plan.route, bases=state.plan.bases))


def _fall_back(state: State) -> Flow[Answer]:
    """Answer as plain RAG does with what is there: at most one search, one text, nothing judged."""
    if not state.ranked:
        if state.pool is None:
            state.pool = yield from look_first(state)
        evidence.rank_searches(state, {(state.strategy.name, state.question): state.pool or ()})
    state.kept = state.kept or state.found[: state.tuning.k]
    state.conflicts = []
    state.draft = state.reply = None
    state.path.append(NoteKind.FALLBACK())
    state.tuning = replace(state.tuning, ground=0, check=0, answer_above=0.0)
    answer = (yield from engine_of(state).write(state, StoppedBy.FALLBACK)) if state.kept else None
    return Answer(answer, confidence=0.0) if answer else (yield from abstain(state, "", 0.0, StoppedBy.FALLBACK))


def find_unread_language(view: View, question: str) -> str:
    """Return the ISO 639 code of a question that no model here reads, or "".

    A question most of whose words stand in the documents is read, whatever its language.
    """
    if not view.quotes or not (language := find_foreign_language(question)):
        return ""
    known = view.runtime.library.find_known_words(question).values()
    return "" if sum(known) > len(known) / 2 else language


def is_greeting(view: View, message: str) -> bool:
    """Tell whether a message greets, thanks or takes leave, and asks nothing."""
    if not find_reply(message):
        return False
    examples = " ".join(example for of_reply in GREETINGS.values() for example in of_reply)
    known = view.runtime.library.find_known_words
    return not any(stands for word, stands in known(message).items() if word not in known(examples))


def look_first(state: State) -> Flow[Sequence[Passage]]:
    """Return what all sources hold on the question, and on a follow-up's own words."""
    asked = [state.asked] if state.asked and state.tuning.asked_weight else []
    pools = yield [Find(query, state.program.sources) for query in (state.question, *asked)]
    return evidence.blend_pools(pools, state.tuning.asked_weight)


def search_plan(state: State) -> Flow[None]:
    """Search the question, or each look-up of its plan, a dependent one afterwards."""
    if not state.look_ups:
        yield from search_queries(state, [state.question])
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
            state.path.append(NoteKind.FOLLOWED(n=len(dependent)))
            for n, reply in zip(dependent, replies, strict=True):
                written = reply["query"].strip() or state.queries[n]
                state.followed |= {written} - set(state.queries)
                state.queries[n] = written
        yield from search_queries(state, [state.queries[n] for n in ready], count=not done)
        done.update(ready)
        waiting = [n for n in waiting if n not in done]
    state.queries = list(dict.fromkeys(state.queries))


def search_queries(state: State, queries: Sequence[str], count: bool = True) -> Flow[None]:
    """Search by the strategy in use, with those queries that it was not given before."""
    scope, name = state.scope, state.strategy.name
    finds = [Find(query, scope) for query in dict.fromkeys(queries) if (name, query) not in state.ranked]
    yield from _rank_found(state, name, finds)
    state.searched += count
    state.path.append(NoteKind.SEARCHED(strategy=f" {name}" if state.order else "", n=len(finds)))


def _rank_found(state: State, name: str, finds: Sequence[Find]) -> Flow[None]:
    """Rank what each search finds: one made before is not made again, nor is the question's own first look."""
    first = [find for find in finds if find.query == state.question]
    state.pools.update({find: evidence.filter_by_source(state.pool or (), find.sources) for find in first})
    new = [find for find in dict.fromkeys(finds) if find not in state.pools]
    if new:
        state.pools.update(zip(new, (yield [*new]), strict=True))
    evidence.rank_searches(state, {(name, find.query): state.pools[find] for find in finds})


def query_tables(state: State) -> Flow[bool]:
    """Return whether a SELECT that a language model writes finds rows.

    It is asked for once for each look-up and source of tables that the classifier wants. Its rows take the place of
    what the source found by itself; where it has none, that stays.
    """
    tables = state.program.tables if state.tuning.route and state.tuning.sql else {}
    finds = [find for find in state.pools if find.sources == state.scope]
    wanted = [(find, name) for find in finds for name in find.sources if name in tables and name in state.plan.bases]
    wanted = [one for one in wanted if one not in state.queried]
    if not wanted:
        return False
    state.queried.update(wanted)
    try:
        asks = [Ask("retriever.sql", {"question": find.query, "tables": tables[name]}) for find, name in wanted]
        written = [reply["sql"].strip() for reply in (yield [*asks])]
        given = [(find, name, sql) for (find, name), sql in zip(wanted, written, strict=True) if sql]
        state.path.append(NoteKind.SQL(n=len(given)))
        found = (yield [replace(find, sources=(name,), sql=sql) for find, name, sql in given]) if given else []
    except StepFailed as failure:
        state.path.append(NoteKind.NO_SQL(why=failure))
        return False
    answered = set[Find]()
    for (find, name, _), rows in zip(given, found, strict=True):
        if any(passage.method == SQL for passage in rows):
            state.pools[find] = evidence.Pool([*(p for p in state.pools[find] if p.source != name), *rows])
            answered.add(find)
        else:
            state.path.append(NoteKind.SQL_EMPTY(source=name))
    evidence.rank_searches(state, {(state.strategy.name, find.query): state.pools[find] for find in answered})
    return bool(answered)


def _ask_follow_up(state: State, n: int) -> Ask:
    parents = [state.ranked[state.strategy.name, state.queries[parent]] for parent in state.look_ups[n].after]
    inputs = {"question": state.question, "draft": state.look_ups[n].query, "passages": evidence.interleave(parents)}
    return Ask("decomposer.follow", inputs)
