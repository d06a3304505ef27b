"""How long the reading of a PDF takes, beside the plain text of pypdf (the extra `bench`).

    python benchmarks/pdf.py [--quick] [--json]

Ten and a hundred generated pages of headings, prose and tables; both readers take turns, the best of several runs each.
"""

from __future__ import annotations

import io
import random
import time
from collections.abc import Callable, Iterator
from typing import Any

from figures import Figure, figure, run_benchmark
from pypdf import PdfReader

from ragc.knowledge.ingest.sections import parse_file
from tests.support.sheets import WORDS, Grid, Heading, Sheet, Text, draw_sheet


def draw_pages(wanted: int) -> bytes:
    """Return a file of about so many pages."""
    chance = random.Random(wanted)

    def write(most: int) -> str:
        return " ".join(chance.choices(WORDS, k=most)).capitalize()

    def draw(parts: int) -> bytes:
        pieces: list[Any] = []
        for n in range(parts):
            rows = [tuple(write(1) for _ in range(4)), *((write(2), str(n), "4.50", "yes") for n in range(6))]
            pieces += [Heading(write(3), 2), *(Text(f"{write(40)}. {write(60)}.") for _ in range(4))]
            pieces.append(Grid(tuple(rows), ("grid", "plain", "underlined")[n % 3]))
        return draw_sheet(Sheet(tuple(pieces), head="Harbour guide", foot="Page # of it"))

    return draw(round(wanted / len(PdfReader(io.BytesIO(draw(10))).pages) * 10))


def read_plain(content: bytes) -> None:
    for page in PdfReader(io.BytesIO(content)).pages:
        page.extract_text()


def read_whole(content: bytes) -> None:
    parse_file("docs/guide.pdf", content)


def time_in_turn(readers: list[Callable[[bytes], None]], content: bytes, times: int) -> list[float]:
    """Return the seconds of each reader's quickest run."""
    found: list[list[float]] = [[] for _ in readers]
    for _ in range(times):
        for reader, seconds in zip(readers, found, strict=True):
            began = time.process_time()
            reader(content)
            seconds.append(time.process_time() - began)
    return list(map(min, found))


def measure(quick: bool) -> Iterator[Figure]:
    for wanted in (10, 100):
        content = draw_pages(wanted)
        pages = len(PdfReader(io.BytesIO(content)).pages)
        whole, plain = time_in_turn([read_whole, read_plain], content, 2 if quick else 5)
        per, bar = wanted / pages, "<= 5" if wanted == 100 else ""
        yield figure(f"seconds of the processor for {wanted} pages", whole * per, bar, pages)
        yield figure(f"the same, of pypdf's plain text alone, {wanted} pages", plain * per, "", pages)
        yield figure(f"times as long as pypdf, {wanted} pages", whole / plain, "<= 4" if wanted == 10 else "", pages)


if __name__ == "__main__":
    run_benchmark(__doc__, measure)
