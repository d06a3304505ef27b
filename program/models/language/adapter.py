"""How DSPy speaks to language models here: inputs fenced as data, replies mended before they are asked for again."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from copy import copy
from functools import partial
from typing import Any, get_args

import dspy
from dspy.utils.exceptions import AdapterParseError, LMError
from pydantic import BaseModel

from program.models.language.decision_format import strict_object
from program.models.language.fence import find_addresses, remove_links
from program.models.language.layout import AS_IT_IS, PromptLayout, format_instruction, format_messages, read_reply
from program.models.language.parsing import UnreadableReply, read_records, read_texts, whole_sentences
from program.models.language.spending import current_spending
from program.models.language.transport import CallFailed
from program.signatures import Excerpt

LONGEST_ANSWER = 8_000  # characters; the rest is cut at the end of a sentence
REMINDER = "Your last reply was not in this form. Keep to it exactly."
_DEFAULT_TRACE = dspy.settings.trace


class FencedAdapter(dspy.ChatAdapter):
    """DSPy's format of a generative signature for a language model, and the reading of its reply.

    One text is asked for as plain text, so that it can be streamed as it comes; several fields as JSON, by schema
    where the model is `structured`. A list of records may be left out, and a record out of form is dropped. A reply
    that cannot be mended is asked for once more; then the fields get their safe defaults and the trace says so. When
    the model cannot be reached, the `fallback` model writes, if any.
    """

    def __init__(self, fallback: dspy.LM | None = None, structured: bool = False) -> None:
        super().__init__(use_json_adapter_fallback=False)
        self.layout = AS_IT_IS
        self.fallback = fallback
        self.structured = structured

    def __call__(
        self, lm: Any, lm_kwargs: dict[str, Any], signature: Any, demos: list[Any], inputs: dict[str, Any]
    ) -> list[dict[str, Any]]:
        """Return the fields of the reply. Raises `LMError` when nobody answers."""
        settings = self._settings(signature, lm_kwargs)
        for wanted in _with_reminder(signature):
            try:
                replies = super().__call__(lm, dict(settings), wanted, demos, inputs)
            except AdapterParseError:
                continue
            except LMError as error:
                other = self._stand_in(lm, error)
                replies = _adapter_of(other)(other, {}, signature, demos, inputs)
            return [strip_links(reply, inputs) for reply in replies]
        return [_safe_defaults(lm.model, signature, inputs)]

    async def acall(
        self, lm: Any, lm_kwargs: dict[str, Any], signature: Any, demos: list[Any], inputs: dict[str, Any]
    ) -> list[dict[str, Any]]:
        """Return the fields of the reply, awaited. Raises `LMError` when nobody answers."""
        settings = self._settings(signature, lm_kwargs)
        for wanted in _with_reminder(signature):
            try:
                replies = await super().acall(lm, dict(settings), wanted, demos, inputs)
            except AdapterParseError:
                continue
            except LMError as error:
                other = self._stand_in(lm, error)
                with dspy.context(send_stream=None):  # words of the first may be told, and some replies have markers
                    replies = await _adapter_of(other).acall(other, {}, signature, demos, inputs)
            return [strip_links(reply, inputs) for reply in replies]
        return [_safe_defaults(lm.model, signature, inputs)]

    def lay_out(self, layout: PromptLayout) -> FencedAdapter:
        """Return the adapter with another layout of its prompts."""
        other = copy(self)
        other.layout = layout
        return other

    def format_system_message(self, signature: Any) -> str:
        """Return the static part of a prompt."""
        return format_instruction(signature, self.layout, _reply_form(signature))

    def format(self, signature: Any, demos: list[Any], inputs: dict[str, Any]) -> list[dict[str, Any]]:
        """Return the messages, as they are laid out."""
        reply_of = partial(self.format_assistant_message_content, signature)
        return format_messages(signature, demos, inputs, self.layout, _reply_form(signature), reply_of)

    def format_assistant_message_content(
        self, signature: Any, outputs: dict[str, Any], missing_field_message: Any = None
    ) -> str:
        """Return the reply of a demonstration in the form asked for."""
        values = {name: outputs.get(name, missing_field_message) for name in signature.output_fields}
        if _is_one_text(signature):
            return str(next(iter(values.values())))
        return json.dumps(values, ensure_ascii=False, default=lambda one: one.model_dump(mode="json"))

    def parse(self, signature: Any, completion: str) -> dict[str, Any]:
        """Return the fields of a reply. Raises `AdapterParseError` for a doubtful one."""
        try:
            told = _whole_reply(read_reply(completion, self.layout), signature)
            texts = read_texts(told, _text_outputs(signature))
            records = _record_outputs(signature).items()
            return {**texts, **{name: read_records(completion, name, record) for name, record in records}}
        except UnreadableReply as error:
            told = completion[:LONGEST_ANSWER]
            raise AdapterParseError("FencedAdapter", signature, lm_response=told, message=str(error)) from None

    def _settings(self, signature: Any, lm_kwargs: Mapping[str, Any]) -> dict[str, Any]:
        settings = {"temperature": 0.0, **lm_kwargs}
        if self.structured and not _is_one_text(signature):
            settings["response_format"] = _reply_schema(signature)
        return settings

    def _stand_in(self, lm: Any, error: LMError) -> dspy.LM:
        failure = error.__cause__
        if self.fallback is None or not isinstance(failure, CallFailed):
            raise error
        current_spending().hand_over(failure.what, lm.model, self.fallback, "wrote")
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


@contextmanager
def use_adapter(lm: Any, layout: PromptLayout = AS_IT_IS) -> Iterator[None]:
    """Have predictors inside speak to `lm` as it wants, in a layout, without history."""
    adapter = getattr(lm, "adapter", None)
    adapter = adapter.lay_out(layout) if isinstance(adapter, FencedAdapter) else adapter
    kept = {"trace": None} if dspy.settings.trace is _DEFAULT_TRACE else {}
    with dspy.context(adapter=adapter, disable_history=True, **kept) if adapter is not None else nullcontext():
        yield


def strip_links(reply: Mapping[str, Any], inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return a reply's fields without links; an answer keeps its passages' own."""
    values = [item for value in inputs.values() for item in (value if isinstance(value, list) else [value])]
    stated = find_addresses(item.text for item in values if isinstance(item, Excerpt))
    return {name: _without_links(value, stated if name == "answer" else set()) for name, value in reply.items()}


def _without_links(value: Any, known: set[str]) -> Any:
    if isinstance(value, list):
        return [_without_links(item, known) for item in value]
    if not isinstance(value, str):
        return value
    text = remove_links(value[: 4 * LONGEST_ANSWER], known)
    return text if len(text) <= LONGEST_ANSWER else text[:LONGEST_ANSWER].rpartition(". ")[0] + "."


def _adapter_of(lm: Any) -> dspy.Adapter:
    return getattr(lm, "adapter", None) or dspy.ChatAdapter()


def _with_reminder(signature: Any) -> Iterator[Any]:
    """Yield the signature as it is, then with a word on the form, which is made only when it is wanted."""
    yield signature
    yield signature.with_instructions(f"{signature.instructions}\n\n{REMINDER}")


def _safe_defaults(model: str, signature: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return nothing for each field; for a list of look-ups the question as it is."""
    current_spending().note(f"no readable reply from {model}: took the safe default")
    outputs = _text_outputs(signature).items()
    texts = {name: [str(inputs.get("question", ""))] if is_list else "" for name, is_list in outputs}
    return {**texts, **{name: [] for name in _record_outputs(signature)}}


def _whole_reply(completion: str, signature: Any) -> str:
    if not current_spending().cut:
        return completion
    if not _is_one_text(signature):
        raise UnreadableReply("it was cut off")
    current_spending().note("a text was cut off: its last sentence was left out")
    return whole_sentences(completion)


def _text_outputs(signature: Any) -> dict[str, bool]:
    """Return by name of an output of text whether it is a list."""
    records = _record_outputs(signature)
    fields = signature.output_fields.items()
    return {name: field.annotation is not str for name, field in fields if name not in records}


def _record_outputs(signature: Any) -> dict[str, type[BaseModel]]:
    """Return by name of an output that is a list of records what a record is."""
    items = {name: get_args(field.annotation) for name, field in signature.output_fields.items()}
    return {
        name: of[0] for name, of in items.items() if of and isinstance(of[0], type) and issubclass(of[0], BaseModel)
    }


def _is_one_text(signature: Any) -> bool:
    return [field.annotation for field in signature.output_fields.values()] == [str]


def _reply_form(signature: Any) -> str:
    texts, records = _text_outputs(signature), _record_outputs(signature)
    if _is_one_text(signature):
        return f"Reply with the {next(iter(texts)).replace('_', ' ')} alone: no heading, no fence, no remark about it."
    told = {name: _description(field, name) for name, field in signature.output_fields.items()}
    form: dict[str, Any] = {name: ["..."] if is_list else told[name] for name, is_list in texts.items()}
    form |= {name: [_example_record(record)] for name, record in records.items()}
    lines = [f"Reply with one JSON object and nothing else. Form: {json.dumps(form, ensure_ascii=False)}"]
    return "\n".join(lines + [f"`{name}`: {told[name]}" for name in records])


def _description(field: Any, name: str) -> str:
    description = str((field.json_schema_extra or {}).get("desc", ""))
    return "..." if description in ("", f"${{{name}}}") else description


def _example_record(record: type[BaseModel]) -> dict[str, Any]:
    values: dict[str, Any] = {"integer": 1, "number": 0.5, "array": [1]}
    fields = record.model_json_schema()["properties"]
    return {name: values.get(field["type"], "") for name, field in fields.items()}


def _reply_schema(signature: Any) -> dict[str, Any]:
    text: dict[str, Any] = {"type": "string"}
    texts = _text_outputs(signature).items()
    properties = {name: {"type": "array", "items": text} if is_list else text for name, is_list in texts}
    for name, record in _record_outputs(signature).items():
        fields = record.model_json_schema()["properties"]
        bare = {key: {k: v for k, v in field.items() if k in ("type", "items")} for key, field in fields.items()}
        properties[name] = {"type": "array", "items": strict_object(bare)}
    schema = strict_object(properties)
    return {"type": "json_schema", "json_schema": {"name": "reply", "strict": True, "schema": schema}}
