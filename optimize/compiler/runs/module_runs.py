"""A DSPy program run on examples from a record of its calls, so that another threshold is arithmetic.

1. A language model is asked once for each content, a decision client once for each input of a predictor as it is.
2. Of each run the decisions on the way are kept, in whatever order they came: a setting under which all of them fall as
   before needs no run.
3. A program that does not do the same twice under the same replies is run anew for every setting.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any

import dspy
import orjson
from dspy.adapters.decision import record_evidence
from dspy.utils.callback import ACTIVE_CALL_ID, BaseCallback

from ragc.answer import Usage
from ragc.loop.policy import Knob
from ragc.models.catalog import traits_of
from ragc.models.language.provider import listed_price
from ragc.models.language.spending import MAX_REPLY_TOKENS, estimate_prompt_tokens
from ragc.models.requests import DecisionClient, RequestCache, decode_output, order_levels, to_jsonable
from ragc.optimize.compiler.record import Record, RecordedLM, paid
from ragc.optimize.compiler.runs.runner import Decided
from ragc.optimize.compiler.spending import Spending
from ragc.threads import share_in_threads

PARALLEL_RUNS = 8  # examples under way at once where a language model is asked
CHECKED = 3  # examples that are run twice to see whether a program can be replayed
LONGEST_TRACE = 10_000  # calls of a run that are kept
ADDRESS = re.compile(r" at 0x[0-9a-f]+")  # in what an object without a text of its own is shown as


@dataclass(frozen=True, slots=True, eq=False)
class Answered:
    """A prediction, or why there is none, with its cost when it was made and the decisions on the way."""

    prediction: Any
    usage: Usage
    path: Sequence[Decided] = ()
    trace: Sequence[tuple[str, Mapping[str, Any], Mapping[str, Any]]] = ()  # predictor, inputs, outputs
    error: str = ""

    @property
    def content(self) -> tuple[list[str], str, str]:
        """What a run that did the same has, too: the order of what was at once, and where objects lie, aside."""
        return sorted(map(repr, self.path)), ADDRESS.sub("", str(self.prediction)), self.error


class ModuleRuns:
    """Answers examples as `program` would, from a record where it can; use within a `CallMeter`.

    Reads thresholds, knobs and demonstrations anew for each batch. `replays` is False once the program was seen to do
    something else under the same replies.
    """

    def __init__(
        self, program: dspy.Module, by_inputs: Mapping[str, dspy.Example], record: Record | None = None
    ) -> None:
        self.program = program
        self.replays = True
        self._examples = by_inputs
        self._record = record or Record()
        self._predictors = dict(program.named_predictors())
        self._requests = RequestCache()
        self._runs: dict[Any, list[tuple[Sequence[tuple[Decided, Any]], Answered]]] = {}
        self._decided: dict[Any, Any] = {}  # answers of decision clients
        self._held: list[Any] = []  # signatures and demonstrations, so that no others take their ids
        self._unchecked = CHECKED
        for name, predictor in self._predictors.items():
            predictor.forward = partial(self._forward, name, predictor)

    def __deepcopy__(self, memo: dict[int, Any]) -> ModuleRuns:
        return self  # what a module such as `BestOfN` copies of its parts is recorded with them

    def answer_all(self, texts: Sequence[str]) -> list[Answered]:
        """Return the answers to examples, each named by its inputs, in order.

        Raises `BudgetStop` at a cap.
        """
        state = self._read_state()
        known = {text: self._look_up(state, text) for text in texts}
        lacking = [text for text, found in known.items() if found is None]
        made = self._run_all(lacking)
        self._record.require_models()
        for text, answer in zip(lacking, made, strict=True):
            if self._unchecked and not answer.error:
                self._unchecked -= 1
                again = self._run(text)
                self.replays &= again.content == answer.content
            self._keep(state, text, answer)
        known.update(zip(lacking, made, strict=True))
        return [found for text in texts if (found := known[text]) is not None]

    def decide_all(self, texts: Sequence[str]) -> list[list[Decided]]:
        """Return the decisions on the way to each answer."""
        return [list(answer.path) for answer in self.answer_all(texts)]

    def _read_state(self) -> Any:
        """Return what, decisions aside, the program has: knobs, instructions, demonstrations."""
        knobs = tuple(one.value for _, one in self.program.named_parameters() if isinstance(one, Knob))
        parts = [part for one in self._predictors.values() for part in (one.signature, one.demos)]
        self._held += parts
        decided = () if self.replays else orjson.dumps([one.fields for one in self._predictors.values()])
        return knobs, tuple(map(id, parts)), decided

    def _look_up(self, state: Any, text: str) -> Answered | None:
        for path, answer in self._runs.get((state, text), ()):
            if all(self._decode(step) == value for step, value in path):
                return answer
        return None

    def _keep(self, state: Any, text: str, answer: Answered) -> None:
        path = [(step, self._decode(step)) for step in answer.path] if self.replays else []
        runs = self._runs.setdefault((state, text), [])
        # Two runs part at a decision that both met and that fell otherwise; where none did, chance had a hand in it.
        ended = () if answer.error else [other for other, said in runs if not said.error]
        self.replays &= all(any(a == b and x != y for a, x in other for b, y in path) for other in ended)
        runs.append((path, answer))

    def _decode(self, step: Decided) -> Any:
        """Return what a decision comes to under the predictor's thresholds now."""
        found = decode_output(step.chances, self._predictors[step.predictor].fields.get(step.output, {}))
        return found.value if found.level is None else found.level

    def _run_all(self, texts: Sequence[str]) -> list[Answered]:
        clients = [one.lm or dspy.settings.lm for one in self._predictors.values()]
        if all(traits_of(client).embedded for client in clients):
            self._decide_ahead(texts)
            return [self._run(text) for text in texts]
        return share_in_threads(self._run, texts, PARALLEL_RUNS)

    def _decide_ahead(self, texts: Sequence[str]) -> None:
        """Ask for the decisions on the examples' own inputs in one batch."""
        for name, predictor in self._predictors.items():
            wanted = predictor.signature.input_fields
            asked = [self._examples[text].inputs() for text in texts]
            given = [{n: one[n] for n in wanted} for one in asked if all(n in one for n in wanted)]
            if given:
                self._ask(name, predictor, predictor.lm or dspy.settings.lm, given)

    def _run(self, text: str) -> Answered:
        self._record.require_models()
        return run_example(self.program, self._examples[text])

    def _forward(self, name: str, predictor: dspy.Predict, **inputs: Any) -> Any:
        """Answer as the predictor does; what its model is asked is recorded."""
        client = inputs.get("lm") or predictor.lm or dspy.settings.lm
        if traits_of(client).decides:
            asked = {n: value for n, value in inputs.items() if n in predictor.signature.input_fields}
            (answers,) = self._ask(name, predictor, client, [asked])
            inputs |= {"lm": _Recalled(client, answers), "demos": []}
        elif isinstance(client, dspy.BaseLM):
            inputs["lm"] = RecordedLM(client, self._record)
        return type(predictor).forward(predictor, **inputs)

    def _ask(self, name: str, predictor: dspy.Predict, client: Any, inputs: Sequence[Mapping[str, Any]]) -> list[Any]:
        sent = [{n: to_jsonable(value) for n, value in one.items()} for one in inputs]
        known = (name, id(predictor.demos), id(predictor.signature))
        keys = [(*known, orjson.dumps(one, option=orjson.OPT_SORT_KEYS, default=str)) for one in sent]
        if new := {key: one for key, one in zip(keys, inputs, strict=True) if key not in self._decided}:
            self._held += [predictor.demos, predictor.signature]
            answers = self._requests.answer(name, predictor, client, list(new.values()))
            self._decided.update(zip(new, answers, strict=True))
        return [self._decided[key] for key in keys]


def run_example(program: dspy.Module, example: dspy.Example) -> Answered:
    """Return what a program says of an example; an exception of its is noted."""
    names = {id(predictor): name for name, predictor in program.named_predictors()}
    costs: list[float] = []
    trace: list[Any] = []
    token, began, prediction, error = paid.set(costs), time.perf_counter(), None, ""
    try:
        with record_evidence() as log, dspy.context(trace=trace, max_trace_size=LONGEST_TRACE):
            prediction = program(**example.inputs())
    except Exception as raised:
        error = f"{type(raised).__name__}: {raised}"
    finally:
        paid.reset(token)
    usage = Usage(calls=len(costs), usd=sum(costs), decisions=len(log), seconds=time.perf_counter() - began)
    path = [Decided(names[id(one)], output, _read_chances(found)) for one, output, found in log if id(one) in names]
    outputs = [(names[id(one)], given, dict(made)) for one, given, made in trace if id(one) in names]
    return Answered(prediction, usage, path, outputs, error)


def _read_chances(found: Mapping[str, Any]) -> Any:
    """Return evidence as DSPy has it in the form that thresholds are applied to."""
    if "noul" in found:
        return found["noul"]
    p = found["probabilities"]
    return order_levels(p) if isinstance(next(iter(p)), int) else p


class _Recalled(DecisionClient):
    """A decision client that gives the answers recorded."""

    def __init__(self, client: Any, answers: Mapping[str, Any]) -> None:
        super().__init__(client.model)
        self._answers = answers

    def __call__(self, state: Mapping[str, Any], questions: Mapping[str, Any]) -> Any:
        return self._answers


class CallMeter(BaseCallback):
    """Counts every request to a language model, whoever makes it, and stops what would pass a cap.

    Money is by LiteLLM's list prices. As DSPy's `usage_tracker`, too, it hears of what was sent: a reply of DSPy's
    cache is not paid for. Where the program tracks usage by itself, every reply counts as sent.
    """

    def __init__(self, spending: Spending) -> None:
        self._spending = spending
        self._under_way: dict[str, tuple[str, int, float]] = {}
        self._sent: set[str | None] = set()

    def __deepcopy__(self, memo: dict[int, Any]) -> CallMeter:
        return self

    def watch(self) -> AbstractContextManager[None]:
        """Return DSPy's context in which requests are counted."""
        heard = {} if dspy.settings.track_usage else {"usage_tracker": self}
        context: AbstractContextManager[None] = dspy.context(
            callbacks=[*(dspy.settings.callbacks or []), self], **heard
        )
        return context

    def add_usage(self, model: str, usage: Mapping[str, Any]) -> None:
        """Note that the request under way was sent."""
        self._sent.add(ACTIVE_CALL_ID.get())

    def on_lm_start(self, call_id: str, instance: Any, inputs: dict[str, Any]) -> None:
        """Reserve what the request may cost at most. Raises `BudgetStop` past a cap."""
        settings = {**(getattr(instance, "kwargs", None) or {}), **(inputs.get("kwargs") or {}), **inputs}
        longest = settings.get("max_tokens") or settings.get("max_completion_tokens") or MAX_REPLY_TOKENS
        sent = estimate_prompt_tokens([inputs])
        most = listed_price(instance.model, sent, int(longest)) or 0.0
        self._spending.before_call(most)
        self._under_way[call_id] = instance.model, sent, most

    def on_lm_end(self, call_id: str, outputs: Any, exception: BaseException | None = None) -> None:
        """Book what the request did cost."""
        if (known := self._under_way.pop(call_id, None)) is not None:
            model, length, most = known
            sent = exception is not None or call_id in self._sent or dspy.settings.usage_tracker is not self
            self._sent.discard(call_id)
            usd = min(most, listed_price(model, length, estimate_prompt_tokens([outputs], 0)) or 0.0)
            self._spending.after_call(most, usd if sent else 0.0, sent)
            if (costs := paid.get()) is not None:
                costs.append(usd)
