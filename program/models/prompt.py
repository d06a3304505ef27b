"""What a DSPy prompt asks for, read back into fields, and a reply in the format that it wants."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dspy.lm15 import Request, TextPart

from program.errors import ModelError
from program.signatures import Excerpt

_OUTPUTS_START = "Your output fields are:\n"
_STRUCTURE_START = "All interactions will be structured"
_OBJECTIVE_START = "In adhering to this structure"
_FIELD = re.compile(r"^\d+\. `(\w+)`", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Prompt:
    """The last turn of a conversation: input texts by field name, and the outputs wanted, in order."""

    inputs: Mapping[str, str]
    outputs: tuple[str, ...]
    as_json: bool

    def texts(self, name: str) -> list[str]:
        """A list-valued input; empty when the field is absent."""
        return [str(item) for item in self._list(name)]

    def excerpts(self, name: str = "passages") -> list[Excerpt]:
        """The numbered passages; empty when the field is absent."""
        return [Excerpt.model_validate(item) for item in self._list(name)]

    def _list(self, name: str) -> list[object]:
        found = json.loads(self.inputs.get(name) or "[]")
        return found if isinstance(found, list) else [found]


def read(request: Request) -> Prompt:
    """The fields of a request made by DSPy's ChatAdapter or JSONAdapter.

    List-valued inputs are one line of JSON, so a marker inside a passage never begins a line of the
    message. A question may hold anything, but it comes first: reading from the last field backwards, each
    field's own marker is met before any that a question forges.

    Raises `ModelError` when the request was made by another adapter.
    """
    system = _system(request)
    shape = system.partition(_OBJECTIVE_START)[0]
    inputs_part, found, rest = shape.partition(_OUTPUTS_START)
    if not found:
        raise ModelError(
            "The local writer was asked in a format it does not read.",
            "Use dspy.ChatAdapter or dspy.JSONAdapter with it, or name a language model in [models] write.",
        )
    outputs = tuple(_FIELD.findall(rest.partition(_STRUCTURE_START)[0]))
    names = _FIELD.findall(inputs_part)
    return Prompt(fields(_last_turn(request), names), outputs, "Outputs will be a JSON object" in rest)


def reply(prompt: Prompt, values: Mapping[str, str | Sequence[Any]]) -> str:
    """The values as text that the adapter behind the prompt parses back to exactly these values."""
    if prompt.as_json:
        return json.dumps({name: values[name] for name in prompt.outputs}, ensure_ascii=False)
    parts = [f"[[ ## {name} ## ]]\n{_plain(values[name])}" for name in prompt.outputs]
    return "\n\n".join([*parts, "[[ ## completed ## ]]\n"])


def _plain(value: str | Sequence[Any]) -> str:
    return value if isinstance(value, str) else json.dumps(list(value), ensure_ascii=False)


def _system(request: Request) -> str:
    if request.system is None:
        return ""
    if isinstance(request.system, str):
        return request.system
    return "\n".join(part.text for part in request.system if isinstance(part, TextPart))


def _last_turn(request: Request) -> str:
    users = [message for message in request.messages if message.role == "user"]
    return "\n".join(part.text for part in users[-1].parts if isinstance(part, TextPart)) if users else ""


def fields(turn: str, names: Sequence[str]) -> dict[str, str]:
    """The input texts of a conversation's last turn by field name; `names` in the order in which they stand."""
    text = turn.rpartition("\n\nRespond with ")[0] or turn
    found: dict[str, str] = {}
    for name in reversed(names):
        marker = f"[[ ## {name} ## ]]\n"
        # The first field opens the message: what looks like its marker further on is its own text.
        at = 0 if name == names[0] and text.startswith(marker) else text.rfind(marker)
        if at >= 0:
            found[name] = text[at + len(marker) :].strip()
            text = text[:at]
    return found
