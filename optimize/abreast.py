"""Settings scored by two processes: each has every other arm, with all that was found for its questions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import orjson

from optimize.scores import Scores
from optimize.spending import Caps, Spending
from optimize.twin import Twin, TwinLost, can_fork
from program.deciding import runs_here, tiers
from program.parameters import Setting
from program.rag import AgenticRAG
from program.settings import Project

_UNCAPPED = Caps()

Scored = Callable[[Setting, Sequence[int]], Scores]


class Abreast:
    """Scores as `scored` does; the places for which `far` is true are scored by a second process.

    An arm's questions share no record with another's, so who scores them changes nothing. `broken` (questions that
    could not be graded) and what the second process spends are kept up to date here. Should it be lost, all is done
    here.
    """

    def __init__(self, scored: Scored, far: Sequence[bool], broken: dict[str, str], spending: Spending) -> None:
        self._scored = scored
        self._far = far
        self._broken = broken
        self._spending = spending
        self._twin: Twin | None = Twin(self._serve)

    def __call__(self, setting: Setting, places: Sequence[int]) -> Scores:
        theirs = [place for place in places if self._far[place]]
        asked = self._ask(setting, theirs)
        scores = self._scored(setting, [place for place in places if not (asked and self._far[place])])
        if not asked:
            return scores
        return scores.joined(self._told(setting, theirs))

    def close(self) -> None:
        """Ends the second process."""
        if self._twin is not None:
            self._twin.close()
        self._twin = None

    def _ask(self, setting: Setting, places: Sequence[int]) -> bool:
        if self._twin is None or not places:
            return False
        try:
            self._twin.send(orjson.dumps([setting, places]))
        except TwinLost:
            self.close()
            return False
        return True

    def _told(self, setting: Setting, places: Sequence[int]) -> Scores:
        try:
            if self._twin is None:
                raise TwinLost
            columns, broken, calls, usd = orjson.loads(self._twin.receive())
        except TwinLost:
            self.close()
            return self._scored(setting, places)
        scores = Scores.none(len(self._far))
        for column, values in zip((scores.utility, scores.routing, scores.spent), columns, strict=True):
            column[list(places)] = np.array(values, np.float64)
        self._broken |= broken
        self._spending.add(calls, usd)
        return scores

    def _serve(self, message: bytes) -> bytes:
        """In the second process: the scores that the first asks for, and what they cost."""
        setting, places = orjson.loads(message)
        calls, usd = self._spending.calls, self._spending.usd
        scores = self._scored(setting, places)
        columns = [column[places].tolist() for column in (scores.utility, scores.routing, scores.spent)]
        return orjson.dumps([columns, self._broken, self._spending.calls - calls, self._spending.usd - usd])


def can_share(program: AgenticRAG, project: Project, caps: Caps) -> bool:
    """True when a second process can do its part unseen: nothing is paid, capped, asked over a network or changing."""
    library = program.runtime.library
    return (
        can_fork()
        and caps == _UNCAPPED
        and not project.settings.qdrant.url
        and answers_here(program)
        and all(library.content_digest(name) for name in program.sources)
    )


def answers_here(program: AgenticRAG) -> bool:
    """True when every predictor's models run in this process."""
    models = [model for _, predictor in program.named_predictors() for model in tiers(program, predictor, {})]
    return all(runs_here(model) for model in models)
