"""What keeps the reading of a strange file within bounds: of the tags that it leaves open, and of time."""

from __future__ import annotations

import contextvars
import ctypes
import threading
import time
import warnings
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from ragc.passage import Flaw

if TYPE_CHECKING:
    from bs4 import BeautifulSoup

Result = TypeVar("Result")
LOOK = 0.2  # seconds between two looks at the clock
ASKS = 10  # times that a thread is asked to end
DEEPEST = 128  # open elements; what would lie deeper lies beside, as in a browser from 512 on
REOPENED = 4  # formatting elements that are opened anew in each paragraph, where they were not closed
_CELLS = ("body", "td", "th")
_STRUCTURE = frozenset("html head frameset select table caption colgroup tbody thead tfoot tr".split()) | {*_CELLS}


def parse_html(content: bytes | str, raw: bool = True) -> BeautifulSoup:
    """Return the tree that a browser makes.

    What is not `raw`, written by hand, needs no slow parser for it.
    """
    from bs4 import BeautifulSoup, XMLParsedAsHTMLWarning

    warnings.filterwarnings("ignore", category=XMLParsedAsHTMLWarning)  # XHTML is read as a browser reads it
    with suppress(UnicodeDecodeError, AttributeError):  # a page that does not say what it is written in, most often
        content = content.decode("utf-8-sig")  # type: ignore[union-attr]
    return BeautifulSoup(content, builder=_make_builder()() if raw else None, features=None if raw else "html.parser")


def list_open_tags(tree: BeautifulSoup) -> list[Flaw]:
    """Return a flaw where tags are closed in a tree that the page leaves open."""
    what = f"leaves so many tags open, or so deep in each other, that {DEEPEST} were kept open at most"
    cut = getattr(getattr(tree.builder, "underlying_builder", None), "cut", False)
    return [Flaw(what, "Save the page anew, if its parts are not told apart.", lost=False)] if cut else []


@cache
def _make_builder() -> Any:
    """Return what builds trees for BeautifulSoup, by html5lib."""
    import html5lib  # noqa: F401 - of which the builder is made
    from bs4.builder._html5lib import HTML5TreeBuilder, TreeBuilderForHtml5lib

    class BoundedTree(TreeBuilderForHtml5lib):
        cut = False

        def insertElementNormal(self, token: Any) -> Any:
            self._make_room(DEEPEST, token["name"] == "table")
            return super().insertElementNormal(token)

        def reconstructActiveFormattingElements(self) -> None:
            self._make_room(DEEPEST - REOPENED)
            self.cut |= any(one and one not in self.openElements for one in self.activeFormattingElements[:-REOPENED])
            del self.activeFormattingElements[:-REOPENED]
            super().reconstructActiveFormattingElements()

        def _make_room(self, most: int, for_table: bool = False) -> None:
            """End open elements until there are fewer; parts of tables are ended with their table alone."""
            self.cut |= len(self.openElements) >= most
            while len(self.openElements) >= most and self.openElements[-1].name not in _STRUCTURE:
                last = self.openElements.pop()
                if last in self.activeFormattingElements:
                    self.activeFormattingElements.remove(last)
            if for_table and len(self.openElements) >= most:
                while len(self.openElements) > most // 2 or self.openElements[-1].name not in _CELLS:
                    self.openElements.pop()

    class BoundedBuilder(HTML5TreeBuilder):
        def create_treebuilder(self, namespaceHTMLElements: bool) -> TreeBuilderForHtml5lib:
            self.underlying_builder = BoundedTree(namespaceHTMLElements, self.soup, self.store_line_numbers)
            return self.underlying_builder

    return BoundedBuilder


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
