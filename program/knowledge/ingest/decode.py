"""The bytes of a text file as text: UTF-8, UTF-16 with its mark, or Windows-1252."""

from __future__ import annotations

import codecs
import re

from ragc.knowledge.ingest.convert import UnreadableFile
from ragc.passage import Flaw

MOST_ACCENTED = 0.3  # share of letters beyond ASCII up to which bytes that are no UTF-8 can be a Western language's
_MEND = "Save it as UTF-8."
_MARKS = (  # that of UTF-32 begins with that of UTF-16
    *((mark, "utf-32") for mark in (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)),
    *((mark, "utf-16") for mark in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)),
)
_FOREIGN = re.compile(r"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f\ufffd]")  # what is in no Windows-1252 text


def decode_text(content: bytes) -> tuple[str, list[Flaw]]:
    """Return a text with plain line ends, and a doubt where its encoding was guessed.

    Raises `UnreadableFile` for what is no text in an encoding that can be told for sure.
    """
    flaws: list[Flaw] = []
    encoding = next((name for mark, name in _MARKS if content.startswith(mark)), "utf-8-sig")
    try:
        text = content.decode(encoding)
    except UnicodeDecodeError as error:
        if encoding != "utf-8-sig":
            raise UnreadableFile(f"broken {encoding.upper()} text", _MEND) from error
        text = content.decode("cp1252", "replace")
        letters = [c for c in text if c.isalpha()]
        if _FOREIGN.search(text) or sum(c > "\x7f" for c in letters) > max(MOST_ACCENTED * len(letters), 1):
            raise UnreadableFile(f"neither UTF-8 (byte {error.start}) nor Windows-1252 text", _MEND) from error
        line = content.count(b"\n", 0, error.start) + 1
        what = "is not UTF-8, and was read as Windows-1252"
        flaws.append(Flaw(what, f"{_MEND[:-1]} if letters look wrong.", line, lost=False))
    if "\0" in text:
        raise UnreadableFile("binary, or UTF-16 without its mark", _MEND)
    return text.replace("\r\n", "\n").replace("\r", "\n"), flaws
