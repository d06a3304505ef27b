"""Several decisions put to a language model in one call: composed of their prompts, and the reply split again.

What the parts share (a question, the passages) stands in the prompt once, numbered; each part says which of it it is
about. A part's values have its number at the end of their names: `relevant_3`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from program.models.language.decision_format import (
    TEXT,
    DecisionState,
    Questions,
    _read_decision,
    choose_examples,
    closing_line,
    describe_form,
    describe_task,
)
from program.models.language.fence import DATA_RULE, fence_passage, is_excerpt
from program.models.language.fence import fence_input as shown
from program.models.language.parsing import (
    UnreadableReply,
    _as_text,
    _json_objects,
    _strip_wrapping,
    get_value,
    read_objects,
)

Reading = dict[str, Any]
"""By output an answer as `read_decisions` gives it, or a text."""

TOGETHER = (
    "Several tasks are wanted at once. Do each by itself, as if it were the only one, on the material that is named "
    "with it. A task about several passages is about those of them that help: of a passage that an earlier task "
    "found beside the point, take no notice in a later one."
)


@dataclass(frozen=True, slots=True)
class Part:
    """One request of several: what DSPy sends for it alone, and whether it may stay unanswered."""

    state: DecisionState
    questions: Questions
    optional: bool = False


def composed(parts: Sequence[Part]) -> tuple[list[dict[str, str]], Questions]:
    """The messages that put all parts, and every value that is wanted of the reply, by its numbered name."""
    material = _Material()
    tasks: dict[tuple[str, tuple[str, ...]], tuple[int, Part]] = {}
    lines: list[str] = []
    wanted: dict[str, Mapping[str, Any]] = {}
    for n, part in enumerate(parts, 1):
        kind = (str(part.state.get("instructions", "")), tuple(part.questions))
        number, _ = tasks.setdefault(kind, (len(tasks) + 1, part))
        keys = {_key(name, n): question for name, question in part.questions.items()}
        about = [material.named(name, value) for name, value in part.state["inputs"].items()]
        lines.append(f"- {', '.join(keys)}: task {number}, {', '.join(about)}")
        wanted |= keys
    told = [TOGETHER]
    for number, part in tasks.values():
        told.append(f"Task {number}: {describe_task(part.state, part.questions)}")
        if found := choose_examples(part.state.get("demos") or (), part.questions):
            told.append(f"Examples of task {number} that people labelled:\n" + "\n".join(found))
    told += [DATA_RULE, describe_form(wanted)]
    asked = "\n\n".join([*material.shown, "Wanted:\n" + "\n".join(lines), closing_line(wanted)])
    return [{"role": "system", "content": "\n\n".join(told)}, {"role": "user", "content": asked}], wanted


def read_parts(text: str, parts: Sequence[Part]) -> list[Reading | None]:
    """Each part's values; None for a part that cannot be told with certainty from the reply.

    Texts are read of an unbroken reply only: nobody knows where a mended one was cut.
    """
    names = [_key(name, n) for n, part in enumerate(parts, 1) for name in part.questions]
    try:
        found = read_objects(text, names)
    except UnreadableReply:
        return [None] * len(parts)
    if len(found) != 1:  # nothing, or several objects of which nobody knows which counts
        return [None] * len(parts)
    whole = bool([*_json_objects(_strip_wrapping(text))])
    return [_read(found[0], n, part, whole) for n, part in enumerate(parts, 1)]


def _read(found: Mapping[str, Any], n: int, part: Part, whole: bool) -> Reading | None:
    reading: Reading = {}
    with suppress(UnreadableReply):
        for name, question in part.questions.items():
            value = get_value(found, _key(name, n))
            if question["type"] != TEXT:
                reading[name] = _read_decision(name, value, question)
            elif whole and value is not None:
                reading[name] = _as_text(value).strip()
    return reading if len(reading) == len(part.questions) else None


def _key(name: str, n: int) -> str:
    return f"{name}_{n}"


@dataclass(slots=True)
class _Material:
    """The inputs of all parts, each once, as they are shown and under the name by which a part points at them."""

    shown: list[str] = field(default_factory=list)
    _names: dict[tuple[str, str], str] = field(default_factory=dict)
    _counts: dict[str, int] = field(default_factory=dict)

    def named(self, name: str, value: Any) -> str:
        """`question 1`, `passages 2, 3`: where a part's input is to be found."""
        if is_excerpt(value):
            return f"passage {self._passage(value)}"
        if isinstance(value, Sequence) and not isinstance(value, str) and (not value or is_excerpt(value[0])):
            return f"passages {', '.join(map(self._passage, value))}" if value else f"no {name}"
        return f"{name} {self._number(name, shown(name, value), shown(name, value, n=self._next(name)))}"

    def _passage(self, excerpt: Any) -> str:
        found = excerpt if isinstance(excerpt, Mapping) else excerpt.model_dump(mode="json")
        numbered = {**found, "n": self._next("passage")}
        return self._number("passage", fence_passage({**found, "n": None}), fence_passage(numbered))

    def _next(self, kind: str) -> int:
        return self._counts.get(kind, 0) + 1

    def _number(self, kind: str, identity: str, text: str) -> str:
        """The number of that content, which is shown if it is new."""
        if (kind, identity) not in self._names:
            self._counts[kind] = self._next(kind)
            self._names[kind, identity] = str(self._counts[kind])
            self.shown.append(text)
        return self._names[kind, identity]
