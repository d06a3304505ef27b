"""The searches of a question: its own first look, its look-ups, its tables; each made once and ranked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ragc.loop import evidence
from ragc.loop.state import SQL, Ask, Find, Flow, State, StepFailed
from ragc.notes import NoteKind


def look_first(state: State) -> list[Find]:
    """Return the searches for the question, and for a follow-up's own words."""
    asked = [state.asked] if state.asked and state.tuning.asked_weight else []
    return [Find(query, state.program.sources) for query in (state.question, *asked)]


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
