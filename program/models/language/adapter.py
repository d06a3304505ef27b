"""How DSPy speaks to language models here: inputs fenced as data, replies mended before they are asked for again."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from copy import copy
from functools import partial
from typing import Any

import dspy
from dspy.dsp.utils.settings import main_thread_config
from dspy.utils.exceptions import AdapterParseError, LMError
from pydantic import create_model

from ragc.models.language import layout as layouts
from ragc.models.language import parsing
from ragc.models.language.fence import find_addresses, remove_links
from ragc.models.language.gateway import shared_gateway
from ragc.models.language.layout import PromptLayout, is_text
from ragc.models.language.parsing import UnreadableReply, is_record, record_of
from ragc.models.language.provider import LOGPROBS
from ragc.models.language.spending import current_spending
from ragc.notes import NoteKind
from ragc.signatures import Excerpt

LONGEST_ANSWER = 8_000  # characters; the rest is cut at the end of a sentence
ANSWER = "answer"  # the output whose tokens' log-probabilities are asked for, and which may hold passages' links
LOGPROB = "logprob"  # the field of a reply that has its log-probability, the sum of its tokens'
REMINDER = "Your last reply was not in this form. Keep to it exactly."


class FencedAdapter(dspy.ChatAdapter):
    """DSPy's format of a generative signature for a language model, and the reading of its reply.

    One text is asked for as plain text, so that it can be streamed as it comes; several fields as JSON, by schema
    where the model is `structured`. A list of records may be left out, and a record out of form is dropped. A reply
    that cannot be mended is asked for once more; then the fields get their safe defaults and the trace says so. When
    the model cannot be reached, the `fallback` model writes, if any.
    """

    def __init__(self, fallback: dspy.LM | None = None, structured: bool = False) -> None:
        super().__init__(use_json_adapter_fallback=False)
        self.layout = PromptLayout.FULL
        self.fallback = fallback
        self.structured = structured

    def __call__(
        self, lm: Any, lm_kwargs: dict[str, Any], signature: Any, demos: list[Any], inputs: dict[str, Any]
    ) -> list[dict[str, Any]]:
        """Return the fields of the reply."""
        return shared_gateway().run(self.acall(lm, lm_kwargs, signature, demos, inputs))

    async def acall(
        self, lm: Any, lm_kwargs: dict[str, Any], signature: Any, demos: list[Any], inputs: dict[str, Any]
    ) -> list[dict[str, Any]]:
        """Return the same fields, awaited. Raises `LMError` when nobody answers."""
        for wanted in _with_reminder(signature):
            try:
                replies = await super().acall(lm, self._settings(signature, lm_kwargs), wanted, demos, inputs)
                replies = [_weigh_tokens(reply) for reply in replies]
            except AdapterParseError:
                continue
            except LMError as error:
                other = self._stand_in(lm, error)
                with dspy.context(send_stream=None):  # words of the first may have been shown, and some have marks
                    replies = await other.adapter.acall(other, {}, signature, demos, inputs)
            return _strip_links(replies, inputs)
        return _safe_defaults(lm.model, signature, inputs)

    def lay_out(self, layout: PromptLayout) -> FencedAdapter:
        """Return the adapter with another layout of its prompts."""
        other = copy(self)
        other.layout = layout
        return other

    def format_system_message(self, signature: Any) -> str:
        """Return the static part of a prompt."""
        return layouts.format_instruction(signature, self.layout, _reply_form(signature))

    def format(self, signature: Any, demos: list[Any], inputs: dict[str, Any]) -> list[dict[str, Any]]:
        """Return the messages, as they are laid out."""
        reply_of = partial(self.format_assistant_message_content, signature)
        return layouts.format_messages(signature, demos, inputs, self.layout, _reply_form(signature), reply_of)

    def format_assistant_message_content(
        self, signature: Any, outputs: dict[str, Any], missing_field_message: Any = None
    ) -> str:
        """Return the reply of a demonstration in the form asked for."""
        values = {name: outputs.get(name, missing_field_message) for name in signature.output_fields}
        if is_text(signature):
            return str(next(iter(values.values())))
        return json.dumps(values, ensure_ascii=False, default=lambda one: one.model_dump(mode="json"))

    def parse(self, signature: Any, completion: str) -> dict[str, Any]:
        """Return the fields of a reply. Raises `AdapterParseError` for a doubtful one."""
        try:
            reply, outputs = _whole_reply(layouts.read_reply(completion, self.layout), signature), _outputs(signature)
            if is_text(signature):
                return {name: parsing.read_text(reply, name) for name in outputs}
            return parsing.read_outputs(reply, outputs)
        except UnreadableReply as error:
            cut = completion[:LONGEST_ANSWER]
            raise AdapterParseError("FencedAdapter", signature, lm_response=cut, message=str(error)) from None

    def _settings(self, signature: Any, lm_kwargs: Mapping[str, Any]) -> dict[str, Any]:
        settings = {"temperature": 0.0, **lm_kwargs}
        if ANSWER in signature.output_fields:
            settings[LOGPROBS] = True
        if self.structured and not is_text(signature):
            settings["response_format"] = _response_format(signature)
        return settings

    def _stand_in(self, lm: Any, error: LMError) -> Any:
        if self.fallback is None:
            raise error
        current_spending().hand_over(error.message, lm.model, self.fallback, "wrote")
        return self.fallback


class PlainListener(dspy.streaming.StreamListener):
    """A listener that passes a plain text on as it comes; DSPy's own waits for markers."""

    def receive(self, chunk: Any) -> Any:
        """Return a piece as DSPy's response, or None for an empty one."""
        if not (text := chunk.choices[0].delta.content):
            return None
        return dspy.streaming.StreamResponse(self.predict_name, self.signature_field_name, text, is_last_chunk=False)

    def finalize(self) -> Any:
        """Return nothing: no piece is held back."""
        return None


def is_traced() -> bool:
    """Tell whether an optimizer, or who else, collects DSPy's trace in a context."""
    return dspy.settings.trace is not main_thread_config["trace"]


@contextmanager
def use_adapter(lm: Any, layout: PromptLayout = PromptLayout.FULL) -> Iterator[None]:
    """Have predictors inside speak to `lm` as it wants, in a layout, without history."""
    adapter = getattr(lm, "adapter", None)
    adapter = adapter.lay_out(layout) if isinstance(adapter, FencedAdapter) else adapter
    kept = {} if is_traced() else {"trace": None}
    with dspy.context(adapter=adapter, disable_history=True, **kept) if adapter is not None else nullcontext():
        yield


def _weigh_tokens(reply: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a reply, with its log-probability in place of that of each token, if any is given."""
    tokens = reply.pop(LOGPROBS, {}).get("content")
    return {**reply, LOGPROB: sum(one["logprob"] for one in tokens)} if tokens else reply


def _strip_links(replies: Sequence[Mapping[str, Any]], inputs: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the fields of replies without links; an answer keeps its passages' own."""
    values = [item for value in inputs.values() for item in (value if isinstance(value, list) else [value])]
    texts = [item.text for item in values if isinstance(item, Excerpt)]
    known = {ANSWER: find_addresses(texts)}
    return [{n: _without_links(value, known.get(n, set()), texts) for n, value in one.items()} for one in replies]


def _without_links(value: Any, known: set[str], stated: Sequence[str]) -> Any:
    if isinstance(value, list):
        return [_without_links(item, known, stated) for item in value]
    if not isinstance(value, str):
        return value
    text = remove_links(value[: 4 * LONGEST_ANSWER], known, stated)
    return text if len(text) <= LONGEST_ANSWER else text[:LONGEST_ANSWER].rpartition(". ")[0] + "."


def _with_reminder(signature: Any) -> Iterator[Any]:
    """Yield the signature as it is, then with a word on the form, which is made only when it is wanted."""
    yield signature
    yield signature.with_instructions(f"{signature.instructions}\n\n{REMINDER}")


def _safe_defaults(model: str, signature: Any, inputs: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return nothing for each field; for a list of look-ups the question as it is."""
    current_spending().note(NoteKind.UNREAD(model=model))
    looked_up = [str(inputs.get("question", ""))]
    kinds = _outputs(signature).items()
    return [{n: "" if k is str else None if is_record(k) else [] if record_of(k) else looked_up for n, k in kinds}]


def _whole_reply(completion: str, signature: Any) -> str:
    if not current_spending().cut:
        return completion
    if not is_text(signature):
        raise UnreadableReply("it was cut off")
    current_spending().note(NoteKind.CUT())
    return parsing.whole_sentences(completion)


def _outputs(signature: Any) -> dict[str, Any]:
    """Return the annotation of each output by its name: texts first, then records."""
    outputs = {name: field.annotation for name, field in signature.output_fields.items()}
    return dict(sorted(outputs.items(), key=lambda item: _holds_records(item[1])))


def _reply_form(signature: Any) -> str:
    outputs = _outputs(signature)
    if is_text(signature):
        (name,) = outputs
        return f"Reply with the {name.replace('_', ' ')} alone: no heading, no fence, no remark about it."
    meanings = {name: _description(field, name) for name, field in signature.output_fields.items()}
    form = json.dumps({name: _example(kind, meanings[name]) for name, kind in outputs.items()}, ensure_ascii=False)
    lines = [f"`{name}`: {meanings[name]}" for name, kind in outputs.items() if _holds_records(kind)]
    return "\n".join([f"Reply with one JSON object and nothing else. Form: {form}", *lines])


def _holds_records(annotation: Any) -> bool:
    return is_record(annotation) or record_of(annotation) is not None


def _description(field: Any, name: str) -> str:
    description = str((field.json_schema_extra or {}).get("desc", ""))
    return "..." if description in ("", f"${{{name}}}") else description


def _example(annotation: Any, description: str) -> Any:
    """Return a value as the form shows it; of a record each field's own example, else one of its type."""
    if annotation is str:
        return description
    if record := record_of(annotation):
        return [_example(record, description)]
    if not is_record(annotation):
        return ["..."]
    values: dict[str, Any] = {"integer": 1, "number": 0.5, "array": [1]}
    fields = annotation.model_json_schema()["properties"]
    return {name: field.get("examples", [values.get(field["type"], "")])[0] for name, field in fields.items()}


def _response_format(signature: Any) -> dict[str, Any]:
    """Return the reply's JSON schema in OpenAI's strict form: all required, no other, bounds left to the reading."""
    fields: dict[str, Any] = {name: (kind, ...) for name, kind in _outputs(signature).items()}
    whole = create_model("reply", **fields).model_json_schema()

    def strict(part: Mapping[str, Any]) -> dict[str, Any]:
        part = whole["$defs"][part["$ref"].rpartition("/")[2]] if "$ref" in part else part
        bare = {key: part[key] for key in ("type", "enum") if key in part}
        if "items" in part:
            bare["items"] = strict(part["items"])
        if "properties" in part:
            bare["properties"] = {name: strict(value) for name, value in part["properties"].items()}
            bare |= {"required": list(part["properties"]), "additionalProperties": False}
        return bare

    return {"type": "json_schema", "json_schema": {"name": "reply", "strict": True, "schema": strict(whole)}}
