"""A conversation before a question, read from whatever form a caller keeps it in, and joined to one text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from typing import Any, Literal, NamedTuple, TypeAlias

from pydantic import BaseModel

from ragc.errors import QuestionError
from ragc.text.pieces import MARK, split_sentences
from ragc.text.words import split_words

MOST_TURNS = 8  # of a conversation, the last ones
MOST_CHARACTERS = 2_000  # of a turn
SAID = ("user", "assistant")  # the roles of turns
LEFT_OUT = ("system", "developer", "tool", "function")  # the other roles of messages
FOUND_NOTHING = "I could not find {} in the knowledge I have."
REFUSES = re.compile(re.escape(FOUND_NOTHING).replace(r"\{\}", ".+?"))
"""What is said of a question, or of a part of one, that nothing answers."""
MEND = 'Give messages such as {"role": "user", "content": "..."}, or a dspy.History.'


class Turn(BaseModel, frozen=True):
    """One message of a conversation."""

    role: Literal["user", "assistant"]
    content: str

    def __str__(self) -> str:
        return f"{self.role}: {self.content}"


Turns = tuple[Turn, ...]
History: TypeAlias = Sequence[Mapping[str, Any] | BaseModel | str] | BaseModel | None
"""The conversation before a question: DSPy's, OpenAI's messages, or the asker's earlier questions; oldest first."""


class Asked(NamedTuple):
    """A question, the conversation before it, the groups of whoever asks, and the day of asking; None is today."""

    question: str
    history: Turns = ()
    readers: frozenset[str] = frozenset()
    today: date | None = None


def read_history(history: History) -> Turns:
    """Return the last turns of asker and assistant, MOST_TURNS at most.

    Of a `dspy.History` a message's `question` is the asker's and its `text` or `answer` the assistant's. Instructions,
    replies of tools and turns without a text are left out, a long text is cut to MOST_CHARACTERS. Raises
    `QuestionError` for another form.
    """
    messages: Any = getattr(history, "messages", history) or ()
    if isinstance(messages, str) or not isinstance(messages, Sequence):
        raise QuestionError(f"A history is a list of messages, not {type(messages).__name__}.", MEND)
    turns = [turn for n, message in enumerate(messages, 1) for turn in _read_message(n, message)]
    return tuple(turn for turn in turns if turn.content)[-MOST_TURNS:]


def answers_back(history: Sequence[Turn], reply: str) -> bool:
    """Tell whether a reply chooses among what the assistant asked back about.

    Half of its words, or more, stand in the last turn, which asks.
    """
    back = history[-1].content if history and history[-1].role == "assistant" else ""
    asked, words = set(split_words(back if "?" in back else "")), set(split_words(reply))
    return 2 * len(words & asked) >= len(words) > 0


def join_questions(history: Sequence[Turn], question: str) -> str:
    """Return a question with what tells what is meant before it.

    That is an option that was chosen, before the question it was asked back about; else what the last answer began
    with, for a statement asks nothing more; else the asker's last question.
    """
    last = max((n for n, turn in enumerate(history) if turn.role == "user"), default=None)
    if last is None:
        return question
    before = history[last].content
    if answers_back(history[:last], before):
        before = join_questions(history[:last], before)
    if answers_back(history, question):
        told, asked = question, before
    else:
        told, asked = _find_statement(history[-1]) or before, question
    return f"{told.rstrip('?!. ')}: {asked}"


def is_answer(turn: Turn) -> bool:
    """Tell whether a turn is the assistant's, and no refusal."""
    return turn.role == "assistant" and not REFUSES.match(turn.content)


def _find_statement(turn: Turn) -> str:
    """Return the first sentence of an answer, without its marks; "" of a turn that asks, or that finds nothing."""
    if "?" in turn.content or not is_answer(turn):
        return ""
    return next(iter(split_sentences(MARK.sub("", turn.content))), "")


def _read_message(n: int, message: Any) -> Iterator[Turn]:
    if isinstance(message, str):
        message = {"role": "user", "content": message}
    elif isinstance(message, Turn):
        message = message.model_dump()
    role = message.get("role") if isinstance(message, Mapping) else None
    pairs = [(role, message.get("content"))] if role in SAID else []
    if isinstance(message, Mapping) and "role" not in message and isinstance(message.get("question"), str):
        pairs = [("user", message["question"]), ("assistant", message.get("text") or message.get("answer"))]
    elif not pairs and role not in LEFT_OUT:
        raise QuestionError(f"Message {n} of the history is none of a conversation.", MEND)
    for said, content in pairs:
        parts = content if isinstance(content, list) else [{"text": content or ""}]
        texts = [part.get("text", "") for part in parts if isinstance(part, Mapping)]
        if len(texts) < len(parts) or not all(isinstance(text, str) for text in texts):
            raise QuestionError(f"Message {n} of the history has a content that is no text.", MEND)
        text = " ".join(" ".join(texts).split()).encode(errors="replace").decode()
        yield Turn(role=said, content=text[:MOST_CHARACTERS])
