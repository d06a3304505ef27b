"""What keeps the reading of a strange file within bounds: of the tags that it leaves open, and of time."""

from __future__ import annotations

import contextvars
import ctypes
import re
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextlib import suppress
from typing import TypeVar

from bs4.dammit import EncodingDetector
from selectolax.lexbor import LexborHTMLParser

from ragc.passage import Flaw

Result = TypeVar("Result")
LOOK = 0.2  # seconds between two looks at the clock
ASKS = 10  # times that a thread is asked to end
DEEPEST = 512  # elements that lie in each other, as in a browser
MOST_COPIES = 10  # formatting elements that a browser opens anew for each tag, where they were not closed
HEAD = 2000  # characters in which a page says that it is XHTML
_TAG = re.compile(r"<(/?)([a-zA-Z][\w-]*)")
_FORMATTING = frozenset("a b big code em font i nobr s small strike strong tt u".split())
_ENDED = frozenset(
    """area base body br col colgroup dd dt embed head hr html img input li link meta optgroup option p rp rt source
    tbody td tfoot th thead tr track wbr""".split()
)
"""Elements that the next of their kind ends, or that hold nothing."""
_CLOSED = re.compile(
    r"<(?!(?:area|base|br|col|embed|hr|img|input|link|meta|source|track|wbr)\b)([a-zA-Z][\w:-]*)(\s[^<>]*)?/>"
)
"""An element of XHTML that is closed where it begins, which HTML takes for open."""
_LATIN = ("iso-8859-1", "latin-1", "us-ascii", "ascii")  # which a browser takes for Windows-1252


def close_tags(content: bytes | str) -> tuple[str, list[Flaw]]:
    """Return a page with the tags that a browser adds, and flaws.

    It is left as it is, with a flaw, where that would take any time and memory.
    """
    text = content if isinstance(content, str) else _decode_page(content)
    if text.lstrip().startswith("<?xml") or "http://www.w3.org/1999/xhtml" in text[:HEAD]:
        text = _CLOSED.sub(r"<\1\2></\1>", text)
    depth = deepest = styled = copies = 0
    tags = _TAG.findall(text)
    for end, tag in tags:
        step, name = -1 if end else 1, tag.lower()
        if name in _FORMATTING:
            styled = max(styled + step, 0)
        elif name not in _ENDED:
            depth = max(depth + step, 0)
            deepest = max(depth, deepest)
        copies += styled
    if deepest > DEEPEST or copies > MOST_COPIES * (len(tags) + DEEPEST):
        what = "leaves so many tags open, or so deep in each other, that it was read without closing them"
        return text, [Flaw(what, "Save the page anew, if its parts are not told apart.", lost=False)]
    return LexborHTMLParser(text.encode("utf-8", "replace")).html or "", []


def _decode_page(content: bytes) -> str:
    """Return the text of a page, which most often does not say what it is written in."""
    with suppress(UnicodeDecodeError):
        return content.decode("utf-8-sig")
    content, mark = EncodingDetector.strip_byte_order_mark(content)
    named = mark or EncodingDetector.find_declared_encoding(content, is_html=True) or ""
    with suppress(LookupError):
        return content.decode("cp1252" if named in ("", *_LATIN) else named, "replace")
    return content.decode("cp1252", "replace")


class TimeUp(BaseException):
    """Raised where work takes too long; no `except Exception` of a parser holds it."""


def run_within(seconds: float, work: Callable[[], Result]) -> Result:
    """Return what work comes to in a thread of its own.

    Raises `TimeUp` once it has worked so long. The processor's time counts, where the system tells a thread's, so that
    nothing more is given up on a busy machine. The thread ends between two steps of Python; one that is in foreign code
    is not waited for.
    """
    done: Future[Result] = Future()
    context, ending, clocks = contextvars.copy_context(), threading.Lock(), list[int]()

    def body() -> None:
        if hasattr(time, "pthread_getcpuclockid"):
            clocks.append(time.pthread_getcpuclockid(threading.get_ident()))
        try:
            result = context.run(work)
            with ending:
                done.set_result(result)
        except BaseException as error:
            with ending:
                done.set_exception(error)

    thread, began = threading.Thread(target=body, daemon=True), time.monotonic()
    thread.start()
    while not wait([done], LOOK).done:
        try:
            worked = time.clock_gettime(clocks[0])
        except (IndexError, OSError):  # it has not begun, or has ended, or the system does not tell
            worked = 0.0 if clocks else time.monotonic() - began
        if worked >= seconds:
            break
    for _ in range(ASKS):
        with ending:
            if done.done():
                return done.result()
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(TimeUp))
        wait([done], LOOK)
    raise TimeUp
