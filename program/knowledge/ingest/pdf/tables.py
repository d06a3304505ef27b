"""Tables between ruled lines: what stands in which of their cells."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterable, Sequence
from itertools import pairwise

from ragc.knowledge.ingest.pdf.layout import (
    Bands,
    Cell,
    Table,
    are_columns,
    find_column,
    group_rows,
    make_lines,
    part_cells,
    stack_lines,
)
from ragc.knowledge.ingest.pdf.pages import View, Word

NEAR = 2.5  # points within which two ruled lines meet
Reach = tuple[float, float, float]  # of a ruled line: its place, and its ends


def find_tables(view: View) -> tuple[list[Table], list[Word]]:
    """Return the ruled tables of a view, and the words outside of them."""
    levels = _merge_rules((y0, x0, x1) for x0, y0, x1, y1 in view.rules if x1 - x0 >= y1 - y0)
    uprights = _merge_rules((x0, y0, y1) for x0, y0, x1, y1 in view.rules if x1 - x0 < y1 - y0)
    tables, words = [], view.words
    while levels:
        across, down, grown = [levels.pop()], list[Reach](), True
        while grown:  # every ruled line that meets one of the table's is the table's
            met = [u for u in uprights if u not in down and any(_meet(level, u) for level in across)]
            crossed = [level for level in levels if any(_meet(level, u) for u in met)]
            levels = [level for level in levels if level not in crossed]
            down, across, grown = [*down, *met], [*across, *crossed], bool(met)
        xs = _gather([*(u[0] for u in down), *(end for level in across for end in level[1:])])
        ys = _gather([*(level[0] for level in across), *(end for u in down for end in u[1:])])
        inside = {w for w in words if xs[0] < (w.x0 + w.x1) / 2 < xs[-1] and ys[0] < w.y - w.size / 4 < ys[-1]}
        fields = [one for one in view.fields if xs[0] < one.box[2] <= xs[-1] and ys[0] < one.box[1] < ys[-1]]
        filled = [(f.value, *f.box) for f in fields if f.value]
        held = [*inside, *(Word(value, x0, x1, (y0 + y1) / 2 + 3, 10.0) for value, x0, y0, x1, y1 in filled)]
        several = len({bisect(xs, (w.x0 + w.x1) / 2) for w in held}) > 1
        if several and (table := _rule_table(held, xs, ys, across, down)):
            tables.append(table)
            words = [w for w in words if w not in inside]
            view.fields = [one for one in view.fields if one not in fields]
    return tables, words


def _rule_table(
    words: Sequence[Word], xs: Sequence[float], ys: Sequence[float], levels: Sequence[Reach], uprights: Sequence[Reach]
) -> Table | None:
    """Return the table that ruled lines make of the words between them; None for columns of text."""
    free = [(x, x) for x in xs[1:-1]]
    columns = [make_lines(w for w in words if bisect(xs, (w.x0 + w.x1) / 2) == x) for x in range(1, len(xs))]
    rows: list[list[Cell]] = []
    for top, bottom in pairwise(ys):
        bands = stack_lines([one for column in columns for one in column if top < one.y - one.size / 4 <= bottom])
        whole = sum(len({find_column(line, free) for line in band}) > len(free) for band in bands)
        keys = [band[0] for band in bands]
        unwrapped = all(xs[1] - a.x1 > b.x1 - b.x0 + b.size for a, b in pairwise(keys))
        many = whole > 2 or (whole == len(bands) > 1 and unwrapped)
        if len(ys) == 2 and are_columns(bands, free):
            return None
        groups: list[Bands] = [*group_rows(bands, free)] if many or len(ys) == 2 else [bands]
        for n, group in enumerate(groups):
            cells = part_cells(group, free)
            for x in range(1, len(cells)):
                if not _crosses(uprights, xs[x], (top + bottom) / 2):
                    _merge_cells(cells, x, cells[x - 1])
            for x in range(len(cells) if rows and n == 0 else 0):
                if not _crosses(levels, top, (xs[x] + xs[x + 1]) / 2):
                    _merge_cells(cells, x, rows[-1][x])
            rows.append(cells)
    rows = [row[:1] if all(cell is row[0] for cell in row) else row for row in rows]
    return Table(rows, xs[0], ys[0], xs[-1], ys[-1])


def _merge_cells(cells: list[Cell], at: int, other: Cell) -> None:
    """Put what a cell holds into another one, which stands in its place."""
    cell = cells[at]
    if cell is not other:
        other += cell
        cells[:] = [other if one is cell else one for one in cells]


def _crosses(rules: Sequence[Reach], at: float, along: float) -> bool:
    return any(abs(rule[0] - at) <= NEAR and rule[1] <= along <= rule[2] for rule in rules)


def _merge_rules(rules: Iterable[Reach]) -> list[Reach]:
    """Return ruled lines, those that go on with each other as one."""
    merged: list[Reach] = []
    for at, start, end in sorted(rules, key=lambda rule: (round(rule[0] / NEAR), rule[1])):
        if merged and abs(merged[-1][0] - at) <= NEAR and start <= merged[-1][2] + NEAR:
            merged[-1] = merged[-1][0], merged[-1][1], max(end, merged[-1][2])
        else:
            merged.append((at, start, end))
    return merged


def _meet(level: Reach, upright: Reach) -> bool:
    return level[1] - NEAR <= upright[0] <= level[2] + NEAR and upright[1] - NEAR <= level[0] <= upright[2] + NEAR


def _gather(places: Iterable[float]) -> list[float]:
    """Return places in order, one for those that lie together."""
    found: list[float] = []
    for place in sorted(places):
        if not found or place - found[-1] > NEAR:
            found.append(place)
    return found
