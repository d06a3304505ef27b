"""How DSPy speaks to language models here: inputs fenced as data, replies mended before they are asked for again."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any, get_args

import dspy
from dspy.utils.exceptions import AdapterParseError, LMError
from pydantic import BaseModel

from program.models.fence import DATA_RULE, addresses, shown, unlinked
from program.models.repair import Unreadable
from program.models.spending import current
from program.models.transport import CallFailed
from program.models.typed import read_records, read_texts, whole_sentences
from program.signatures import Excerpt

LONGEST = 8_000  # characters of an answer; the rest is cut at the end of a sentence
_DEFAULT_TRACE = dspy.settings.trace
Values = list[dict[str, Any]]


class FencedAdapter(dspy.ChatAdapter):
    """Formats a generative signature for a language model, and reads its reply.

    One text is asked for as plain text, so that it can be streamed as it comes; several fields as JSON, by schema
    where the model is `structured`. A list of records may be left out, and a record out of form is dropped. A reply
    that cannot be mended is asked for once more; then the fields get their safe defaults and the trace says so. When
    the model cannot be reached, the `fallback` model writes, if any.
    """

    def __init__(self, fallback: dspy.LM | None = None, structured: bool = False) -> None:
        super().__init__(use_json_adapter_fallback=False)
        self.fallback = fallback
        self.structured = structured

    def __call__(
        self, lm: Any, lm_kwargs: dict[str, Any], signature: Any, demos: list[Any], inputs: dict[str, Any]
    ) -> Values:
        settings = self._settings(signature, lm_kwargs)
        for put in _twice(signature):
            try:
                replies = super().__call__(lm, dict(settings), put, demos, inputs)
                return [without_traps(reply, inputs) for reply in replies]
            except AdapterParseError:
                continue
            except LMError as error:
                other = self._instead(lm, error)
                replies = _adapter(other)(other, {}, signature, demos, inputs)
                return [without_traps(reply, inputs) for reply in replies]
        return [_safe_defaults(lm.model, signature, inputs)]

    async def acall(
        self, lm: Any, lm_kwargs: dict[str, Any], signature: Any, demos: list[Any], inputs: dict[str, Any]
    ) -> Values:
        settings = self._settings(signature, lm_kwargs)
        for put in _twice(signature):
            try:
                replies = await super().acall(lm, dict(settings), put, demos, inputs)
                return [without_traps(reply, inputs) for reply in replies]
            except AdapterParseError:
                continue
            except LMError as error:
                other = self._instead(lm, error)
                with dspy.context(send_stream=None):  # words of the first may be told, and some replies have markers
                    replies = await _adapter(other).acall(other, {}, signature, demos, inputs)
                return [without_traps(reply, inputs) for reply in replies]
        return [_safe_defaults(lm.model, signature, inputs)]

    def format_system_message(self, signature: Any) -> str:
        """The task, the rule about data, the form of the reply."""
        return "\n\n".join([signature.instructions.strip(), DATA_RULE, _form(signature)])

    def format_user_message_content(
        self, signature: Any, inputs: dict[str, Any], prefix: str = "", suffix: str = "", main_request: bool = False
    ) -> str:
        """The inputs, fenced."""
        parts = [prefix, *(shown(name, inputs[name]) for name in signature.input_fields if name in inputs), suffix]
        return "\n\n".join(part for part in parts if part)

    def format_assistant_message_content(
        self, signature: Any, outputs: dict[str, Any], missing_field_message: Any = None
    ) -> str:
        """The reply of a demonstration, in the form asked for."""
        values = {name: outputs.get(name, missing_field_message) for name in signature.output_fields}
        if _is_plain(signature):
            return str(next(iter(values.values())))
        return json.dumps(values, ensure_ascii=False, default=_jsonable)

    def parse(self, signature: Any, completion: str) -> dict[str, Any]:
        """The fields. Raises `AdapterParseError` when they cannot be told with certainty."""
        try:
            found: dict[str, Any] = dict(read_texts(_whole(completion, signature), _wanted(signature)))
            for name, record in _records(signature).items():
                found[name] = read_records(completion, name, record)
            return found
        except Unreadable as error:
            raise AdapterParseError(
                adapter_name="FencedAdapter", signature=signature, lm_response=completion[:LONGEST], message=str(error)
            ) from None

    def _settings(self, signature: Any, lm_kwargs: Mapping[str, Any]) -> dict[str, Any]:
        settings = {"temperature": 0.0, **lm_kwargs}
        if self.structured and not _is_plain(signature):
            settings["response_format"] = _schema(signature)
        return settings

    def _instead(self, lm: Any, error: LMError) -> dspy.LM:
        failure = error.__cause__
        if self.fallback is None or not isinstance(failure, CallFailed):
            raise error
        current().hand_over(failure.what, lm.model, self.fallback, "wrote")
        return self.fallback


class PlainListener(dspy.streaming.StreamListener):
    """Passes a plain text on as it comes; DSPy's own waits for markers."""

    def receive(self, chunk: Any) -> Any:
        text = chunk.choices[0].delta.content
        if not text:
            return None
        return dspy.streaming.StreamResponse(self.predict_name, self.signature_field_name, text, is_last_chunk=False)

    def finalize(self) -> Any:
        return None


@contextmanager
def speaking(lm: Any) -> Iterator[None]:
    """Inside, predictors speak to `lm` as it wants, and DSPy keeps no history (nor a trace that nobody asked for)."""
    adapter = getattr(lm, "adapter", None)
    kept = {"trace": None} if dspy.settings.trace is _DEFAULT_TRACE else {}
    with dspy.context(adapter=adapter, disable_history=True, **kept) if adapter is not None else nullcontext():
        yield


def _adapter(lm: Any) -> dspy.Adapter:
    """What a model is spoken to with: its own adapter, or DSPy's."""
    return getattr(lm, "adapter", None) or dspy.ChatAdapter()


def _whole(completion: str, signature: Any) -> str:
    """The reply, or the whole sentences of a text that was cut off. Raises `Unreadable` when there are none."""
    if not current().cut:
        return completion
    if not _is_plain(signature):
        raise Unreadable("it was cut off")
    current().note("a text was cut off: its last sentence was left out")
    return whole_sentences(completion)


def _wanted(signature: Any) -> dict[str, bool]:
    """By output of text: is it a list?"""
    records = _records(signature)
    fields = signature.output_fields.items()
    return {name: field.annotation is not str for name, field in fields if name not in records}


def _records(signature: Any) -> dict[str, type[BaseModel]]:
    """By output that is a list of records: what a record is."""
    items = {name: get_args(field.annotation) for name, field in signature.output_fields.items()}
    return {
        name: of[0] for name, of in items.items() if of and isinstance(of[0], type) and issubclass(of[0], BaseModel)
    }


def _is_plain(signature: Any) -> bool:
    return [field.annotation for field in signature.output_fields.values()] == [str]


def _form(signature: Any) -> str:
    wanted, records = _wanted(signature), _records(signature)
    descriptions = {
        name: str((field.json_schema_extra or {}).get("desc", "")) for name, field in signature.output_fields.items()
    }
    if _is_plain(signature):
        return f"Reply with the {next(iter(wanted)).replace('_', ' ')} alone: no heading, no fence, no remark about it."
    form: dict[str, Any] = {
        name: ["..."] if is_list else _told(descriptions[name], name) for name, is_list in wanted.items()
    }
    form |= {name: [_shape(record)] for name, record in records.items()}
    told = [f"Reply with one JSON object and nothing else. Form: {json.dumps(form, ensure_ascii=False)}"]
    return "\n".join(told + [f"`{name}`: {_told(descriptions[name], name)}" for name in records])


def _told(description: str, name: str) -> str:
    return "..." if description in ("", f"${{{name}}}") else description


def _shape(record: type[BaseModel]) -> dict[str, Any]:
    """A record as an example of its form."""
    empty = {"integer": 1, "array": [1]}
    fields = record.model_json_schema()["properties"]
    return {name: empty.get(field["type"], "") for name, field in fields.items()}


def _schema(signature: Any) -> dict[str, Any]:
    text: dict[str, Any] = {"type": "string"}
    wanted = _wanted(signature)
    properties = {name: {"type": "array", "items": text} if is_list else text for name, is_list in wanted.items()}
    for name, record in _records(signature).items():
        fields = record.model_json_schema()["properties"]
        bare = {key: {k: v for k, v in field.items() if k in ("type", "items")} for key, field in fields.items()}
        properties[name] = {"type": "array", "items": _object(bare)}
    return {"type": "json_schema", "json_schema": {"name": "reply", "strict": True, "schema": _object(properties)}}


def _object(properties: Mapping[str, Any]) -> dict[str, Any]:
    """OpenAI's strict form: every property is required, none other allowed."""
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def _jsonable(value: Any) -> Any:
    return value.model_dump(mode="json") if isinstance(value, BaseModel) else str(value)


def _twice(signature: Any) -> Iterator[Any]:
    """The signature as it is, then with a word on the form: made only when it is wanted, for making one is dear."""
    yield signature
    told = "Your last reply was not in this form. Keep to it exactly."
    yield signature.with_instructions(f"{signature.instructions}\n\n{told}")


def _safe_defaults(model: str, signature: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Nothing said; a list of look-ups is the question as it is."""
    current().note(f"no readable reply from {model}: took the safe default")
    texts = {name: [str(inputs.get("question", ""))] if many else "" for name, many in _wanted(signature).items()}
    return {**texts, **{name: [] for name in _records(signature)}}


def without_traps(reply: Mapping[str, Any], inputs: Mapping[str, Any]) -> dict[str, Any]:
    """A reply's fields without links, images and tags.

    An answer keeps, for its claims to be checked, the addresses that a passage states; which of them it may end with
    is for `program.state` to say.
    """
    stated = addresses(excerpt.text for excerpt in _excerpts(inputs))
    return {name: _safe(value, stated if name == "answer" else set()) for name, value in reply.items()}


def _safe(value: Any, known: set[str]) -> Any:
    if isinstance(value, list):
        return [_safe(item, known) for item in value]
    if not isinstance(value, str):
        return value
    text = unlinked(value[: 4 * LONGEST], known)
    return text if len(text) <= LONGEST else text[:LONGEST].rpartition(". ")[0] + "."


def _excerpts(inputs: Mapping[str, Any]) -> Iterable[Excerpt]:
    for value in inputs.values():
        yield from (item for item in (value if isinstance(value, list) else [value]) if isinstance(item, Excerpt))
