"""Scanned pages read by OCR, where the extra `ocr` is installed."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any

import numpy as np
import pypdfium2 as pdfium

from ragc.knowledge.ingest.pdf.pages import Word

SCALE, PIXELS = 200 / 72, 4000.0  # of a point, and of the longer side at most, of the picture that is read
SIZE, DESCENT, MARGIN = 0.75, 0.2, 0.1  # of the height of a line: its letters, what is below and what is beside them
SAME = 0.25  # of the usual height of a line by which that of another may differ, as heights are not exact


def read_scan(page: pdfium.PdfPage) -> list[Word]:
    """Return the lines that OCR reads on a page; none without the extra."""
    if (engine := open_ocr()) is None:
        return []
    scale = min(SCALE, PIXELS / max(page.get_size()))
    picture = np.asarray(page.render(scale=scale).to_numpy())
    with ThreadPoolExecutor(1) as worker:  # its work, bound by the picture, is no part of what a file may take
        found = worker.submit(engine, picture).result()
    corners = np.array([] if found.boxes is None else found.boxes, dtype=float).reshape(-1, 4, 2) / scale
    tops, bottoms = corners[:, :2, 1].mean(axis=1), corners[:, 2:, 1].mean(axis=1)
    lefts, rights = corners[:, ::3, 0].mean(axis=1), corners[:, 1:3, 0].mean(axis=1)
    heights = bottoms - tops
    usual = float(np.median(heights)) if len(heights) else 0.0
    words: list[Word] = []
    for at in np.argsort(bottoms):
        height = usual if abs(heights[at] - usual) < SAME * usual else heights[at]
        base = bottoms[at] - DESCENT * height
        base = words[-1].y if words and base - words[-1].y < 0.5 * height else base
        left, right = lefts[at] + MARGIN * height, rights[at] - MARGIN * height
        words += [Word(found.txts[at], left, right, base, SIZE * height)] if found.txts[at].strip() else []
    return words


@lru_cache(maxsize=1)
def open_ocr() -> Any:
    """Return what reads a picture; None without the extra."""
    try:
        from rapidocr import RapidOCR
    except ImportError:
        return None
    logging.getLogger("RapidOCR").setLevel(logging.CRITICAL)
    return RapidOCR(params={"Global.log_level": "critical"})
