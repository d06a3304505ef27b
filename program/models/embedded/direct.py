"""What needs no look-up: the reply to a greeting, and the result of a sum that stands in a question."""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
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

_OPERATIONS: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Pow: math.pow,  # of floats: one too large raises at once
}
LONGEST = 400  # characters of a question that is read as a sum
MOST_WORDS = 5  # beside the sum: in a longer text the numbers are part of a story
MOST_WORDS_TIGHT = 2  # beside one like 24/7, 9-5 or 4x4, which is a name as often as a sum
LARGEST = 10**15  # of a result: a float holds no more digits
_NUMBER = r"\d+(?:\.\d+)?"
_SYMBOLS = (
    (r"(?<=\d),(?=\d{3}(?!\d))", ""),
    (rf"({_NUMBER}) ?(?:%|per ?cent) of (?:the )?({_NUMBER})(?![\d.])", r"(\1*\2/100)"),
    (r"(?<=[\d)]) ?(?:times|multiplied by) ?(?=[-\d(])|(?<=[\d)]) ?[x×·] ?(?=[-\d(])", "*"),
    (r"(?<=[\d)]) ?(?:divided by|÷) ?(?=[-\d(])", "/"),
    (r"(?<=[\d)]) ?plus ?(?=[-\d(])", " + "),
    (r"(?<=[\d)]) ?(?:minus|[−–]) ?(?=[-\d(])", " - "),
    (r"(?<=[\d)]) ?(?:squared|²)(?!\w)", "**2"),
    (r"\^", "**"),
)
_GROUPED = re.compile(r"\d,\d{3}(?!\d)")
_TIGHT = re.compile(r"\d+(?:[-/x]\d+)+", re.IGNORECASE)
_SUM = re.compile(r"[-(\d.][-+*/().\d ]*")
_BINARY = re.compile(r"[\d.)] ?[-+*/]+ ?[-(\d.]")


@lru_cache(maxsize=4096)
def find_reply(message: str) -> str:
    """Return the reply to a message that is like an example of `GREETINGS`, or ""."""
    near = _embed_examples() @ shared_embedder(MINILM).encode([message])[0]
    replies = [reply for reply, examples in GREETINGS.items() for _ in examples]
    return replies[int(near.argmax())] if near.max() >= GREETS else ""


@lru_cache(maxsize=1)
def _embed_examples() -> Any:
    return shared_embedder(MINILM).encode([one for examples in GREETINGS.values() for one in examples])


def solve_arithmetic(question: str) -> str:
    """Return the result of the one sum in a question, or an empty string.

    A sum holds numbers, parentheses, `+ - * / ^ x × ÷`, "plus", "minus", "times", "divided by", "squared", "15 % of".
    The result has commas at its thousands when the sum has.
    """
    text = written = " ".join(question.split())
    if len(text) > LONGEST:
        return ""
    for pattern, symbol in _SYMBOLS:
        written = re.sub(pattern, symbol, written, flags=re.IGNORECASE)
    sums = [found for found in _SUM.findall(written) if re.search(r"\d", found)]
    words = len(re.findall(r"\w+", _SUM.sub(" ", written)))
    most = MOST_WORDS_TIGHT if _TIGHT.search(text) else MOST_WORDS
    if len(sums) != 1 or not _BINARY.search(sums[0]) or words > most:
        return ""
    try:
        result = _compute(ast.parse(sums[0].rstrip(" ."), mode="eval").body)
        exact = Decimal(f"{result:.15g}") + 0  # no negative zero
        return f"{exact.normalize():{',' * bool(_GROUPED.search(text))}f}" if abs(exact) < LARGEST else ""
    except (SyntaxError, ArithmeticError, ValueError, TypeError, RecursionError, MemoryError):
        return ""


def _compute(node: ast.expr) -> float:
    match node:
        case ast.Constant(value=int() | float() as number):
            return number
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_compute(operand)
        case ast.BinOp(left=left, op=operation, right=right):
            return _OPERATIONS[type(operation)](_compute(left), _compute(right))
    raise ValueError("no sum")
