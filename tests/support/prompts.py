"""What a scripted language model reads in the prompts of DSPy's adapters, and the replies that they parse."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dspy.lm15 import Message, Request, Response, TextPart, Usage

from ragc.signatures import Excerpt

_OUTPUTS_START = "Your output fields are:\n"
_STRUCTURE_START = "All interactions will be structured"
_OBJECTIVE_START = "In adhering to this structure"
_MARK = re.compile(r"\[\[ ## \w+ ## \]\]")
_FIELD = re.compile(r"^\d+\. `(\w+)`", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class WriterPrompt:
    """The last turn of a conversation: input texts by field name, and the outputs wanted, in order."""

    inputs: Mapping[str, str]
    outputs: tuple[str, ...]
    as_json: bool

    def read_list(self, name: str) -> list[Any]:
        """Return a list-valued input; empty when the field is absent."""
        found = json.loads(self.inputs.get(name) or "[]")
        return found if isinstance(found, list) else [found]

    def read_passages(self) -> list[Excerpt]:
        """Return the numbered passages."""
        return [Excerpt.model_validate(item) for item in self.read_list("passages")]


def read_prompt(request: Request) -> WriterPrompt:
    """Return the fields of a request made by DSPy's ChatAdapter or JSONAdapter.

    List-valued inputs are one line of JSON, so a marker inside a passage never begins a line. Fields are read from the
    last backwards.
    """
    shape = _text_of(request.system).partition(_OBJECTIVE_START)[0]
    inputs_part, found, rest = shape.partition(_OUTPUTS_START)
    assert found, "no prompt of ChatAdapter"
    outputs = tuple(_FIELD.findall(rest.partition(_STRUCTURE_START)[0]))
    turn = [_text_of(message.parts) for message in request.messages if message.role == "user"][-1]
    inputs = _split_fields(turn, _FIELD.findall(inputs_part))
    return WriterPrompt(inputs, outputs, "Outputs will be a JSON object" in rest)


def format_reply(prompt: WriterPrompt, values: Mapping[str, str | Sequence[Any]]) -> str:
    """Return the values as text that the prompt's adapter parses back to them."""
    if prompt.as_json:
        return json.dumps({name: values[name] for name in prompt.outputs}, ensure_ascii=False)
    told = {
        # A value that holds a field's mark would end its own field.
        name: _MARK.sub("…", value) if isinstance(value, str) else json.dumps(list(value), ensure_ascii=False)
        for name, value in values.items()
    }
    parts = [f"[[ ## {name} ## ]]\n{told[name]}" for name in prompt.outputs]
    return "\n\n".join([*parts, "[[ ## completed ## ]]\n"])


def _text_of(parts: Any) -> str:
    if parts is None or isinstance(parts, str):
        return parts or ""
    return "\n".join(part.text for part in parts if isinstance(part, TextPart))


def _split_fields(turn: str, names: Sequence[str]) -> dict[str, str]:
    """Return the input texts of a conversation's last turn by field name; `names` in the order in which they stand."""
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


def reply_with(request: Request, text: str) -> Response:
    """Return a response of one text, said to have cost 10 tokens in and 5 out."""
    usage = Usage(input_tokens=10, output_tokens=5, total_tokens=15)
    message = Message.assistant([TextPart(text)])
    return Response(id=None, model=request.model, message=message, finish_reason="stop", usage=usage)


class TextDecider:
    """A decision client that decides each question by its first input, as `read` says."""

    supports_decision_requests = True

    def __init__(self, read: Callable[[str], Any]) -> None:
        self.read, self.model, self.cache, self.callbacks, self.kwargs = read, "local/text", False, [], {}

    def __deepcopy__(self, memo: Any) -> TextDecider:
        return self

    def __call__(self, state: Mapping[str, Any], questions: Mapping[str, Any]) -> dict[str, Any]:
        return {name: self.read(next(iter(state["inputs"].values()))) for name in questions}
