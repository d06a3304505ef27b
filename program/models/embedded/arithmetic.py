"""A sum that stands in a question, computed."""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable
from decimal import Decimal

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
