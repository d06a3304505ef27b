"""What a model that writes replied: an answer, what is missing, a question back, or what needs no document.

A reply is an answer unless it begins with the word of another kind, so that a small model's plain sentence is one too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

MOST_OPTIONS = 6
NOTHING = "none"  # what small models write where the passages do not answer


class ReplyKind(StrEnum):
    """The kinds of reply, by the word with a colon that each begins with; an answer begins with none."""

    ANSWERED = ""
    MISSING = "MISSING"
    WHICH = "WHICH"
    GENERAL = "GENERAL"
    QUOTE = "QUOTE"  # of the embedded writer alone, where it stands in: quote what the passages say


_HEAD = re.compile(rf"[\s*_#]*({'|'.join(kind for kind in ReplyKind if kind)})[*_]*:[*_]*\s*")
_QUERY = re.compile(r"[\s*_#;]*(?<![^\W_])QUERY[*_]*:[*_]*\s*")
_OPTION = re.compile(r"\s*(?:[-*•]|\d{1,2}[.)])\s+(\S.*)")


@dataclass(frozen=True, slots=True)
class TypedReply:
    """A reply by its kind: the text behind the word, the query that would find what is missing, the options.

    `logprob` is the log-probability of its whole text, None where nobody gives it.
    """

    kind: ReplyKind
    text: str
    query: str = ""
    options: tuple[str, ...] = ()
    logprob: float | None = None


def read_reply(written: str) -> TypedReply:
    """Return what a model replied; of an empty text that something is missing."""
    text = written.strip()
    if text.strip(" .\"'*").casefold() in ("", NOTHING):
        return TypedReply(ReplyKind.MISSING, "")
    head = _HEAD.match(text)
    kind, rest = (ReplyKind(head[1]), text[head.end() :].strip()) if head else (ReplyKind.ANSWERED, text)
    if kind is ReplyKind.MISSING:
        missing, *queries = _QUERY.split(rest, maxsplit=1)
        return TypedReply(kind, " ".join(missing.split()), " ".join("".join(queries).split()))
    if kind is ReplyKind.WHICH:
        lines = rest.splitlines()
        options = [found[1].strip() for line in lines if (found := _OPTION.match(line))]
        asked = " ".join(" ".join(line for line in lines if not _OPTION.match(line)).split())
        return TypedReply(kind, asked, options=tuple(dict.fromkeys(options))[:MOST_OPTIONS])
    return TypedReply(kind, rest)


class AnswerFilter:
    """What of a reply may be shown while it comes: the words of an answer, of another kind nothing."""

    def __init__(self) -> None:
        self._held = ""
        self._shows: bool | None = None  # whether it is an answer, once that is known

    def feed(self, piece: str) -> str:
        """Return what can be shown now."""
        if self._shows is not None:
            return piece if self._shows else ""
        self._held += piece
        return "" if _may_be_head(self._held) else self.rest()

    def rest(self) -> str:
        """Return what is still held, at the end."""
        held, self._held = self._held, ""
        if self._shows is None:
            reply = read_reply(held)
            self._shows = reply.kind in (ReplyKind.ANSWERED, ReplyKind.GENERAL)
            head = _HEAD.match(held)
            held = held[head.end() :] if head else held
        return held if self._shows else ""


def _may_be_head(held: str) -> bool:
    """Tell whether a text may still become the word of a kind, or `none`."""
    word = "".join(held.split()).strip("*_#.\"':")
    known = any(kind.startswith(word) for kind in ReplyKind if kind) or NOTHING.startswith(word.casefold())
    return known or _HEAD.fullmatch(held) is not None
