"""What the loop may ask for, and the types of its generators: a search, or a predictor's reply."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any

from program.answer import Answer

DEPTH = 30


@dataclass(frozen=True, slots=True)
class Find:
    """A search: the query, the sources to look into, and how many candidates of each to bring.

    `not_before` leaves out whatever is undated or older.
    """

    query: str
    sources: tuple[str, ...]
    depth: int = DEPTH
    not_before: date | None = None


@dataclass(frozen=True, slots=True)
class Ask:
    """A predictor to call, by its name in the program, with its inputs; passages are given as `Passage`.

    `ahead` are requests that are likely to follow: a driver that can have them answered in the same call may do so,
    and keep the replies. `foreseen` is the one of those whose reply, if it was kept, is as good as a new one.
    """

    predictor: str
    inputs: Mapping[str, Any]
    ahead: tuple[Ask, ...] = ()
    foreseen: Ask | None = None


Request = Find | Ask
Reply = Any
Steps = Generator[list[Request], list[Reply], Answer]
Part = Generator[list[Request], list[Reply], None]


class StepFailed(Exception):
    """Thrown into the loop by a driver when a request could not be performed."""
