"""The local writer: a `dspy.LM` that fills texts from what the reader finds, and what it says without a look-up."""

from __future__ import annotations

import asyncio
import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Context, Decimal
from functools import lru_cache
from typing import Any

import dspy

from ragc.errors import ModelError
from ragc.models.embedded.decider import LocalDecider
from ragc.models.embedded.encoder import MINILM, shared_embedder
from ragc.models.embedded.reader import READER, Reader, Reading
from ragc.passage import TITLE_STEP
from ragc.signatures import Excerpt
from ragc.text.history import join_questions, read_history
from ragc.text.words import split_words

QUOTE = "QUOTE:"  # the reply in place of which the loop quotes what the passages say
MOST_PARTS = 4  # of a question; the last holds all that follows
FEWEST_WORDS = 3  # of a part
_BE_OR_DO = "(?:is|are|was|were|do|does|did|has|have|had|can|could|will|would|shall|should|may|might|must)(?:n['’]t)?"
_BEFORE = "(?:(?:to|in|on|at|by|for|from|of|with|under|about|since|until) )?"
# "When does" asks; "when it rains" is a condition.
_INVERTED = rf"{_BEFORE}(?:when|where|why) {_BE_OR_DO}"
_ASKING = rf"{_BEFORE}(?:who|whom|whose|what|which|how)"
_CLAUSE = re.compile(rf"\b(?:{_INVERTED}|{_ASKING})\b|(?:^|[.!?;,] ){_BE_OR_DO}\b", re.IGNORECASE)
# ", which was ..." tells more of what stands before it; ", and which" asks.
_CUT = re.compile(
    rf"(?<=\?) |(?:,? and|;(?: and)?) (?=(?:{_INVERTED}|{_ASKING})\b)|, (?=(?:{_INVERTED}|{_BEFORE}(?:what|how))\b)"
    rf"|,? and (?={_BE_OR_DO} (?:I|we|you|it|they|he|she|there|this|that|the|an?|my|our|your)\b)",
    re.IGNORECASE,
)
GREETINGS: Mapping[str, tuple[str, ...]] = {
    "Hello! How can I help?": (
        *("hello", "hi there", "hey", "yo", "good morning", "good evening to you all", "hello, is anybody there?"),
        *("hi, how are you?", "hey, how is it going?", "how have you been?"),
    ),
    "You are welcome!": (
        *("thanks", "thank you very much", "thanks, that was all", "great, that helped, thank you"),
        *("cheers, that is perfect", "thank you so much, it works now, I only wanted to say so"),
    ),
    "Goodbye!": ("goodbye", "bye", "see you later", "bye for now", "have a nice day", "it was nice talking to you"),
}
"""The replies to greetings, thanks and farewells, each with examples of what it replies to."""
GREETS = 0.6
"""The cosine of MiniLM from which a message is what an example is: none of the 4,016 other lines of CLINC150."""

_OPERATIONS: Mapping[str, Callable[[Decimal, Decimal], Decimal]] = {
    **dict.fromkeys(("+", "plus"), operator.add),
    **dict.fromkeys((" - ", "minus"), operator.sub),
    **dict.fromkeys(("*", " x ", "times", "multiplied by"), operator.mul),
    **dict.fromkeys((" / ", "divided by"), operator.truediv),
    **dict.fromkeys(("% of", "percent of"), lambda share, of: share * of / 100),
}
_NUMBER = r"(-?\d{1,15}(?:,\d{3})*(?:\.\d{1,15})?)"
_SUM = re.compile(rf"(?<![\w.,]){_NUMBER} ?({'|'.join(map(re.escape, _OPERATIONS))}) ?{_NUMBER}(?![\w%])")
MOST_WORDS = 5  # beside a sum: in a longer text the numbers are part of a story
DIGITS = 15  # of a result


def local_writer(embedded: LocalDecider) -> dspy.LM:
    """Return a language model that fills signatures from what the reader finds.

    It answers Standalone, Decompose, FollowUp and Missing. It joins, splits and selects, so the same request
    always gives the same reply. Its text from passages (Generate) is QUOTE: the loop quotes in its place. English only.
    It takes a signature's fields and no prompt: its `adapter` has to be in use (`use_adapter`).
    """
    adapter = QuotingAdapter(embedded)
    lm = dspy.LM(READER, engine=adapter, cache=False)
    lm.adapter = adapter
    return lm


class QuotingAdapter(dspy.Adapter):
    """What fills a signature's outputs without a prompt; safe from many threads. Usage is counted in words."""

    def __init__(self, embedded: LocalDecider) -> None:
        super().__init__()
        self._embedded = embedded

    def __call__(
        self, lm: Any, lm_kwargs: Mapping[str, Any], signature: Any, demos: Sequence[Any], inputs: Mapping[str, Any]
    ) -> list[dict[str, Any]]:
        """Return the outputs. Raises `ModelError` for outputs it cannot fill."""
        outputs = fill_outputs(signature, inputs, self._embedded)
        if (tracker := dspy.settings.usage_tracker) is not None:
            tracker.add_usage(lm.model, {"prompt_tokens": _words(inputs), "completion_tokens": _words(outputs)})
        return [outputs]

    async def acall(
        self, lm: Any, lm_kwargs: Mapping[str, Any], signature: Any, demos: Sequence[Any], inputs: Mapping[str, Any]
    ) -> list[dict[str, Any]]:
        """Return the outputs, computed in a thread."""
        return await asyncio.to_thread(self, lm, lm_kwargs, signature, demos, inputs)

    def complete(self, request: Any) -> Any:
        """Refuse a prompt, as the engine of the language model."""
        raise ModelError(
            "The local writer was asked by a prompt, which it does not read.",
            "Call it inside use_adapter(lm), or name a language model in [models] write.",
        )


def fill_outputs(signature: Any, inputs: Mapping[str, Any], embedded: LocalDecider) -> dict[str, Any]:
    """Return a signature's outputs by name. Raises `ModelError` for unknown ones."""
    question, reader = str(inputs.get("question", "")).strip(), embedded.reader
    passages = [Excerpt.model_validate(passage) for passage in inputs.get("passages") or ()]
    match wanted := tuple(signature.output_fields):
        case ("sub_queries", "details"):
            return {"sub_queries": list(split_question(question)), "details": []}
        case ("standalone",):
            return {"standalone": join_questions(read_history(inputs.get("history")), question)}
        case ("query",):
            return {"query": _follow_up(reader, question, str(inputs.get("draft", question)).strip(), passages)}
        case ("missing", "next_query"):
            missing, query = _find_missing(reader, question, passages)
            return {"missing": missing, "next_query": query}
        case ("answer",):
            return {"answer": QUOTE}
    raise ModelError(
        f"The local writer cannot fill {', '.join(wanted) or 'a signature without outputs'}.",
        "Name a language model in [models] write for this signature.",
    )


def _read(reader: Reader, question: str, passages: Sequence[Excerpt]) -> list[tuple[Reading, Excerpt]]:
    readings = reader.read(question, [(one.title, one.text) for one in passages])
    return list(zip(readings, passages, strict=True))


def _follow_up(reader: Reader, question: str, draft: str, passages: Sequence[Excerpt]) -> str:
    """Return the draft with the question's best span behind it, unless the draft has it."""
    if not passages:
        return draft
    reading, passage = max(_read(reader, question, passages), key=lambda pair: pair[0].margin)
    span = " ".join(passage.text[slice(*reading.span)].split())
    return draft if span.casefold() in draft.casefold() else f"{draft} {span}"


def _find_missing(reader: Reader, question: str, passages: Sequence[Excerpt]) -> tuple[str, str]:
    """Return the part that the passages answer least, and a query for it; both empty when they answer all."""
    lowest, missing, title = 0.0, "", ""
    for part in split_question(question):
        read = [(reading.answers, passage.title) for reading, passage in _read(reader, part, passages)]
        answers, nearest = max(read, key=lambda pair: pair[0], default=(-math.inf, ""))
        if answers < lowest:
            lowest, missing, title = answers, part, nearest.replace(TITLE_STEP, " ")
    adds = set(title.casefold().split()) - set(missing.casefold().split())
    return missing, f"{missing} {title}" if adds else missing


def _words(fields: Mapping[str, Any]) -> int:
    return sum(len(str(value).split()) for value in fields.values())


def split_question(question: str) -> tuple[str, ...]:
    """Return the parts of a compound question, word for word, or the question alone.

    The question is cut at a sentence's end with a question mark, and where a question word begins a clause after "and",
    a semicolon or a comma. It stays whole when a part that no question mark ends would have no such clause, or fewer
    than `FEWEST_WORDS` words, or one says nothing.
    """
    parts = tuple(_CUT.split(" ".join(question.split()), maxsplit=MOST_PARTS - 1))
    long = (len(part.split()) >= FEWEST_WORDS and _CLAUSE.search(part) for part in parts)
    whole = not all(part[-1:] == "?" or is_long for part, is_long in zip(parts, long, strict=True))
    return (question,) if whole or len(parts) == 1 or not all(map(split_words, parts)) else parts


@lru_cache(maxsize=4096)
def find_reply(message: str) -> str:
    """Return the reply to a message that is like an example of `GREETINGS`, or ""."""
    near = _embed_examples() @ shared_embedder(MINILM).encode([message])[0]
    replies = [reply for reply, examples in GREETINGS.items() for _ in examples]
    return replies[int(near.argmax())] if near.max() >= GREETS else ""


@lru_cache(maxsize=1)
def _embed_examples() -> Any:
    return shared_embedder(MINILM).encode([one for examples in GREETINGS.values() for one in examples])


def solve_sum(question: str) -> str:
    """Return the result of the sum of two numbers in a question, or an empty text."""
    first, *parts = _SUM.split(question.lower(), maxsplit=1)
    if not parts or any(one.isdigit() for one in first + parts[3]) or len((first + parts[3]).split()) > MOST_WORDS:
        return ""
    a, operation, b = Decimal(parts[0].replace(",", "")), _OPERATIONS[parts[1]], Decimal(parts[2].replace(",", ""))
    try:
        return f"{operation(a, b).normalize(Context(prec=DIGITS)) + 0:f}"
    except ArithmeticError:
        return ""
