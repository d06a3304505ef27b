"""The searching stage: one round of look-ups, those that depend on others after them."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from datetime import timedelta

from program.loop.evidence import interleave, rank, within
from program.loop.freshness import is_stale, newest_of
from program.loop.requests import Ask, Find, Part, Reply, Request
from program.loop.state import Key, State
from program.passage import Passage

NEWER = "newer"
CLAIM = "claim"


def search_plan(state: State) -> Part:
    """Searches the question, or each look-up of its plan: independent ones together, a dependent one afterwards."""
    if not state.look_ups:
        yield from search(state, [state.question])
        return
    state.queries = [look_up.query for look_up in state.look_ups]
    bases = {look_up.query: look_up.base for look_up in state.look_ups}
    after = [look_up.after if look_up.after and state.tuning.follow else () for look_up in state.look_ups]
    waiting = list(range(len(after)))
    done: set[int] = set()
    while waiting and (not done or state.tripped() is None):
        ready = [n for n in waiting if done.issuperset(after[n])]
        dependent = [n for n in ready if after[n]]
        if dependent:
            replies = yield [_follow(state, n) for n in dependent]
            state.path.append(f"follow({len(dependent)})")
            for n, reply in zip(dependent, replies, strict=True):
                written = reply["query"].strip() or state.queries[n]
                bases.setdefault(written, state.look_ups[n].base)
                state.followed |= {written} - set(state.queries)
                state.queries[n] = written
        yield from search(state, [state.queries[n] for n in ready], bases, count=not done)
        done.update(ready)
        waiting = [n for n in waiting if n not in done]
    state.queries = list(dict.fromkeys(state.queries))


def search(state: State, queries: Sequence[str], bases: Mapping[str, str] | None = None, count: bool = True) -> Part:
    """One round of searching by the strategy in use, with those queries that it was not given before."""
    tuning, scope, name = state.tuning, state.scope, state.strategy.name
    new: list[Key] = [(name, query) for query in dict.fromkeys(queries) if (name, query) not in state.ranked]
    pools = yield from _pools(state, [Find(query, scope) for _, query in new])
    likely = dict(state.plan.likely)
    for key, pool in zip(new, pools, strict=True):
        base = (bases or {}).get(key[1], "")
        prior = {**likely, base: 1.0} if base else likely
        state.ranked[key] = rank(pool, tuning, prior, state.need.timely, state.strategy.part)
    state.new += new
    state.searched += count
    state.path.append(f"search{f' {name}' if state.order else ''}({len(new)})")


def search_newer(state: State) -> Part:
    """Looks for evidence newer, or at least as new, as what is in dispute or out of date."""
    state.settled = True
    since = newest_of([conflict.followed for conflict in state.conflicts])
    if since is None:
        newest = newest_of(state.found)
        stale = newest_of([p for p in state.kept if is_stale(p, state.need, newest)])
        since = stale + timedelta(days=1) if stale else None
    yield from _aside(state, NEWER, [Find(state.question, state.program.sources, not_before=since)])


def search_claims(state: State, claims: Sequence[str]) -> Part:
    """Looks for support of claims that have none."""
    yield from _aside(state, CLAIM, [Find(claim, state.scope) for claim in claims])


def _aside(state: State, name: str, finds: Sequence[Find]) -> Part:
    """A round of searching outside the strategies."""
    pools = yield from _pools(state, finds)
    for find, pool in zip(finds, pools, strict=True):
        key = (name, find.query)
        state.new.append(key)
        state.ranked[key] = rank(pool, state.tuning, dict(state.plan.likely), state.need.timely)
    state.searched += 1
    state.path.append(f"search {name}({len(finds)})")


def _pools(state: State, finds: Sequence[Find]) -> Generator[list[Request], list[Reply], list[Sequence[Passage]]]:
    """What each search found: one made before is not made again, nor is the question's own first look."""
    first = {find for find in finds if find.query == state.question and find.not_before is None}
    state.pools.update({find: within(state.pool or (), find.sources) for find in first})
    new = [find for find in dict.fromkeys(finds) if find not in state.pools]
    if new:
        state.pools.update(zip(new, (yield [*new]), strict=True))
    return [state.pools[find] for find in finds]


def _follow(state: State, n: int) -> Ask:
    """The request that writes a dependent look-up from what its parents found."""
    parents = [state.ranked[state.strategy.name, state.queries[parent]] for parent in state.look_ups[n].after]
    inputs = {"question": state.question, "draft": state.look_ups[n].query, "passages": interleave(parents)}
    return Ask("decomposer.follow", inputs)
