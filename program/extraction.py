"""What passages state, read by a language model while indexing: bounded in calls and money, never fatal."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any

import dspy

from program.errors import BudgetStop
from program.kindsettings import GraphSettings
from program.knowledge.relations import Triple
from program.knowledge.source import Passage
from program.models.adapter import FencedAdapter, speaking
from program.models.catalog import open_lane
from program.models.engine import ProviderLM
from program.models.spending import Spending, current, spending
from program.settings import ProviderSettings
from program.signatures import Relate, excerpts

AT_ONCE = 8  # passages asked of the model at the same time
PATIENCE = 2 * AT_ONCE  # failures in a row after which the model is taken to be away


class TripleExtractor:
    """A language model that reads triples out of passages, under a base's caps on calls and US dollars.

    No more is asked once a cap is reached; requests under way then, and their repeats, are still paid for. A passage
    that the model did not answer for is left out. Whoever indexes under a hard cap of its own is stopped by that.
    """

    def __init__(self, settings: GraphSettings, provider: ProviderSettings) -> None:
        lane = open_lane(settings.relations, provider, "relations")
        self._lm = ProviderLM(lane, FencedAdapter())
        self._settings = settings
        self._spent = Spending()

    @property
    def digest(self) -> str:
        """Identifies the model and the prompt."""
        return hashlib.sha256(f"{self._settings.relations}\n{Relate.instructions}".encode()).hexdigest()

    @property
    def calls(self) -> int:
        return self._spent.calls

    @property
    def usd(self) -> float:
        return self._spent.usd

    def extract(self, passages: Sequence[Passage]) -> Iterator[tuple[int, Sequence[Triple]]]:
        """The position and the triples of each passage that the model answered for."""
        failed = at = 0
        with spending(cap=current().cap) as self._spent, ThreadPoolExecutor(AT_ONCE) as pool:
            while at < len(passages) and failed < PATIENCE and self.usd < self._settings.max_usd:
                room = min(AT_ONCE, self._settings.max_calls - self.calls)
                if room <= 0:
                    return
                batch = passages[at : at + room]
                asked = [pool.submit(copy_context().run, self._read, passage) for passage in batch]
                stop: BudgetStop | None = None
                for n, reply in enumerate(asked, at):
                    try:
                        triples = reply.result()
                    except BudgetStop as tripped:  # of the others more may be had
                        stop = tripped
                        continue
                    failed = 0 if triples is not None else failed + 1
                    if triples is not None:
                        yield n, triples
                if stop is not None:
                    raise stop
                at += len(batch)

    def _read(self, passage: Passage) -> Sequence[Triple] | None:
        from dspy.utils.exceptions import LMError

        predict: Any = dspy.Predict(Relate)
        try:
            with speaking(self._lm):
                found = predict(passage=excerpts([passage])[0], lm=self._lm).relations
        except LMError:
            return None
        return [(r.subject, r.relation, r.object) for r in found]
