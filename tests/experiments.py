"""What the tests of experiments share: two versions on disk, programs that answer at once, and a design."""

import json

from ragc.answer import Answer, Outcome, Trace, Usage, new_trace_id
from ragc.optimize.abtest.online import start_experiment
from ragc.optimize.registry import versions as registry

KEY = "a secret of the tests, long enough"
NAME = "exp-2026-11-refunds"


class Echo:
    """A program that answers at once, or does what it is told."""

    def __init__(self, name, seconds=0.1, then=None):
        self.name, self.seconds, self.then = name, seconds, then

    def __call__(self, question, history=None, readers=()):
        if self.then is not None:
            self.then()
        usage = Usage(calls=1, tokens_in=100, seconds=self.seconds)
        text = f"{self.name}: {question}"
        return Answer(text=text, outcome=Outcome.ANSWERED, trace=Trace(new_trace_id()), usage=usage)

    async def aask(self, question, history=None, readers=()):
        return self(question)

    async def stream(self, question, history=None, readers=()):
        yield "a token"
        yield self(question)


def publish(root, versions=2):
    for number in range(versions):
        registry.publish_version("support", {}, {"program.json": json.dumps({"number": number}).encode()}, root)


def begin(root, *, arms=2, **changes):
    """An experiment on `support@v1` against the versions after it."""
    publish(root, arms)
    refs = {"ABCDEFG"[n]: f"support@v{n + 1}" for n in range(arms)}
    settings = {"max_units": 100_000, "primary": "resolved", **changes}
    return start_experiment(NAME, refs, artifacts=root, **settings)
