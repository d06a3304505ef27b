"""What the router decides on labelled questions, and the thresholds and weights that fit its labels best."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from optimize.compiler.abreast import unseen
from optimize.compiler.scoring import Arm
from optimize.compiler.thresholds import best_threshold, best_weights
from program.knowledge.index.build import Advance
from program.loop.decisions import is_undecided
from program.loop.evidence import preview_pool
from program.loop.policy import Setting
from program.loop.state import Ask, Find
from program.signatures import BASE_PREFIX

ROUTE = "classifier.route"


@dataclass(slots=True)
class Routing:
    """What the router's decisions said of labelled questions, out of fold, and what they should have said.

    By output the probabilities and labels of the yes-or-no decisions; `tables` and `routes` for the route.
    """

    chances: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    truths: dict[str, list[bool]] = field(default_factory=lambda: defaultdict(list))
    tables: list[dict[str, float]] = field(default_factory=list)
    routes: list[str] = field(default_factory=list)

    def fitted(self, start: Setting) -> Setting:
        """Thresholds and weights, each fitted alone to its labels."""
        found = {f"{ROUTE}:{output}": best_threshold(p, self.truths[output]) for output, p in self.chances.items()}
        found |= {f"{ROUTE}:route={label}": w for label, w in best_weights(self.tables, self.routes).items()}
        return {name: value for name, value in found.items() if name in start}


def routed(arms: Sequence[Arm], progress: Advance = unseen) -> Routing:
    """The router's decisions on the labelled questions of the arms."""
    found = Routing()
    for done, arm in enumerate(arms):
        progress(done, len(arms))
        sources = arm.replay.program.sources
        pools = arm.replay.replies([Find(question.question, sources) for question in arm.questions])
        asks = [
            Ask(ROUTE, {"question": question.question, "glimpse": preview_pool(pool or [])})
            for question, pool in zip(arm.questions, pools, strict=True)
        ]
        for question, evidence in zip(arm.questions, arm.replay.replies(asks), strict=True):
            if evidence is None:
                continue
            labels = {"vague": question.outcome == "clarify"} if question.outcome is not None else {}
            if question.sources:
                labels |= {BASE_PREFIX + name: name in question.sources for name in sources}
            for output, label in labels.items():
                if is_undecided(evidence[output]):
                    continue
                found.chances[output].append(evidence[output].probability)
                found.truths[output].append(label)
            if question.route is not None:
                found.tables.append(dict(evidence["route"].probabilities))
                found.routes.append(question.route)
    return found
