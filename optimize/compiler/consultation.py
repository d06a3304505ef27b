"""What the requests of a step are put as: to whom each goes, and which go in one call, as they do when it is served."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from optimize.compiler.record import Entry
from program.loop.decisions import clients_of
from program.loop.rag import AgenticRAG
from program.loop.state import Ask, Find, Request
from program.models.catalog import is_settled

Known = Mapping[int, Any]
"""By the identity of a request that was asked ahead: what was replied."""


@dataclass(frozen=True, slots=True)
class Put:
    """A search, or what one call asks of a model: the first `wanted` of `asks` must be answered, the others may be."""

    request: Request
    asks: tuple[Ask, ...] = ()
    model: Any = None
    wanted: int = 1

    @property
    def together(self) -> bool:
        """True when several requests go in one call, which is then answered with one value for each."""
        return len(self.asks) > 1


@dataclass(slots=True)
class Consulted:
    """What a step came to: for each request what every tier asked said of it, of which the last counts; what was
    answered ahead; every call and search it took. `dear` are the calls of cascades' second models, `spared` those that
    they would have been asked besides if they always were."""

    said: list[list[Any]]
    ahead: list[tuple[Ask, Any]] = field(default_factory=list)
    took: list[tuple[Put, Entry]] = field(default_factory=list)
    dear: int = 0
    spared: int = 0


Consulting = Generator[list[Put], list[Entry], Consulted]


def one_by_one(program: AgenticRAG, request: Request) -> Consulting:
    """A request by itself, whatever is asked with it when it is served."""
    return (yield from consultation(program, [request], {}))


def consultation(program: AgenticRAG, requests: Sequence[Request], known: Known) -> Consulting:
    """Yields what is to be put, and returns what it came to.

    The second model of a cascade is put what the first is in doubt of; what was asked ahead is not put again.
    """
    done = Consulted([[] for _ in requests])
    puts: list[tuple[list[int], Put]] = []
    doubted: list[list[int]] = []
    for group in [[at] for at in range(len(requests))]:
        new = list(group)
        if not new:
            continue
        models = _models(program, requests[new[0]])
        if len(models) > 1:
            doubted.append(new)
        puts += _puts(program, requests, new, models[0], ahead=len(models) == 1)
    yield from _answered(done, puts)
    puts = []
    for new in doubted:
        second = _models(program, requests[new[0]])[1]
        open_ = [at for at in new if not _settled(program, requests[at], done.said[at][-1])]
        asked = _puts(program, requests, open_, second, ahead=False) if open_ else []
        done.dear += len(asked)
        done.spared += len(new) - len(asked)
        puts += asked
    yield from _answered(done, puts)
    return done


def _answered(done: Consulted, puts: Sequence[tuple[list[int], Put]]) -> Generator[list[Put], list[Entry], None]:
    if not puts:
        return
    entries = yield [put for _, put in puts]
    for (places, put), entry in zip(puts, entries, strict=True):
        done.took.append((put, entry))
        values = entry.value if put.together else [entry.value]
        for at, value in zip(places, values, strict=False):
            done.said[at].append(value)
        ahead = zip(put.asks[put.wanted :], values[put.wanted :], strict=True) if put.together else ()
        done.ahead += [(ask, value) for ask, value in ahead if value is not None]


def _puts(
    program: AgenticRAG, requests: Sequence[Request], places: Sequence[int], model: Any, ahead: bool
) -> list[tuple[list[int], Put]]:
    """The requests at those places as they go to a model: in one call where it takes several, else each by itself."""
    first = requests[places[0]]
    if isinstance(first, Find):
        return [([places[0]], Put(first))]
    asks = [request for at in places if isinstance(request := requests[at], Ask)]
    return [([at], Put(ask, (ask,), model)) for at, ask in zip(places, asks, strict=True)]


def _models(program: AgenticRAG, request: Request) -> Sequence[Any]:
    if isinstance(request, Find):
        return (None,)
    return clients_of(program, program.predictor(request.predictor), request.inputs)


def _settled(program: AgenticRAG, request: Request, said: Any) -> bool:
    return isinstance(request, Find) or is_settled(said, program.doubt.of(request.predictor))
