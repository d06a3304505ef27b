"""What needs no look-up: the reply to a greeting, and the result of a sum of two numbers."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from decimal import Context, Decimal
from functools import lru_cache
from typing import Any

from ragc.models.embedded.encoder import MINILM, shared_embedder

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
