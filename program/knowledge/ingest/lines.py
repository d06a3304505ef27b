"""Lines of plain text as paragraphs and rows: joined where they read on, a table where blanks set columns."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby, pairwise

from ragc.knowledge.ingest.blocks import Block, join_blocks
from ragc.knowledge.ingest.table_rows import format_table, has_header, is_caption, is_label, read_values
from ragc.text.pieces import BULLET, NUMBER, SENTENCE_ENDS

NARROW = 40  # characters of a line that no column was too narrow for
LETTERS, SHORT_LINE = 3, 60  # of a heading in capitals: letters at least, characters at most
_GAP = re.compile(r"(?<![.!?:\s])\s{2,}(?=\S)|(?<=[.!?:])\s{3,}(?=\S)|\S\s*\t\s*(?=\S)|[|│║].+[|│║]")
_RULE = re.compile(r"[\s|+=_─-╿-]*[=_─━═-]{3}[\s|+=_─-╿-]*")  # a line that is drawn under a header
_STAMP = re.compile(r"\s*(?P<open>[\[(<]?)\d{1,4}(?::\d\d|[./-]\d{1,2}[./-](?:\d{1,4})?)\S*\s*")
_NUMBER = re.compile(r"\s*(?:[$£€¥]? ?\d|[(\[“‘„«\"'])")  # or what stands before one
_ENDS_WITHIN = re.compile(r"\w{2}[.!?…] +[^\W\d_a-z]")
_NAME = re.compile(r"\s*(?:\S*[^\s.!?] ){0,3}[^\s:]+:(?:\s|$)")


def read_plain_text(text: str, titled: bool = True) -> list[Block]:
    """Return the headings, the paragraphs and the rows of a text, whose first line may be its title."""
    lines, blocks, start = text.split("\n"), list[Block](), 0
    for at, (last, level) in [*_find_headings(lines, titled).items(), (len(lines), (0, 0))]:
        of_section = _read_section(lines[start:at])
        blocks += (replace(block, first=block.first + start, last=block.last + start) for block in of_section)
        if last > at:
            blocks.append(Block("heading", lines[at].strip(), at, last, level))
        start = last
    return blocks


def _find_headings(lines: Sequence[str], titled: bool) -> dict[int, tuple[int, int]]:
    """Return by line where each heading ends, and its level: those underlined, and those in capitals where several are.

    Each begins a paragraph, and is one cell. One in capitals has a line that is not behind it. The first line is the
    title where it is marked or stands apart, unless text follows it and another heading is marked alike. A label that
    stands apart above text is a heading where such a one is first.
    """
    alone = [at for at, line in enumerate(lines) if line.strip() and not (at and lines[at - 1].strip())]
    top = alone[0] if titled and len(alone) > 1 else -1
    alone = [at for at in alone if not _GAP.search(lines[at]) and not _RULE.fullmatch(lines[at])]
    found, capitals, apart = (dict[int, tuple[int, int]]() for _ in range(3))
    for at in alone:
        line, under = lines[at].strip(), "".join(lines[at + 1 : at + 2]).strip()
        if len({*under}) == 1 and under[0] in "=-~_" and len(under) > 2 and abs(len(under) - len(line)) <= 2:
            found[at] = at + 2, 2 if under[0] == "=" else 3
            continue
        if not under and is_label(line) and line[0].isupper() and not _NAME.match(line):
            apart[at] = at + 1, 3 if _is_capital(line) else 1
        if at == top and at in apart:
            found[at] = apart[at]
        elif _is_capital(line) and not _is_capital(next(filter(str.strip, lines[at + 1 :]), line)):
            capitals[at] = at + 1, 3
    if found.get(top) == (top + 1, 1):
        found |= {at: one for at, one in apart.items() if _find_text(lines, at + 1) not in (*apart, *capitals, None)}
    found |= capitals if len(capitals) + len(found) > 1 else {}
    if top in found:
        end, level = found.pop(top)
        below = _find_text(lines, end)
        marks = [(of, "".join(lines[last : last + 1]).strip() == "") for last, of in ((end, level), *found.values())]
        found[top] = end, level if below not in found and marks[0] in marks[1:] else 0
    return dict(sorted(found.items()))


def _find_text(lines: Sequence[str], start: int) -> int | None:
    return next((at for at in range(start, len(lines)) if lines[at].strip()), None)


def _is_capital(line: str) -> bool:
    """Tell whether a line is a few words in capitals, and no sentence."""
    letters = [letter for letter in line if letter.isalpha()]
    short = len(letters) >= LETTERS and len(line) <= SHORT_LINE and line.rstrip()[-1] not in ".,;!"
    return short and all(map(str.isupper, letters)) and 2 * len(letters) > len(line)


def _read_section(lines: Sequence[str]) -> list[Block]:
    rows = dict[int, Block | None]()  # by line: that of a row, of a header none
    full = [bool(line.strip()) for line in lines]
    for part in _list_runs(full):
        captioned = is_caption(lines[part[0]].strip()) and not read_values([lines[at] for at in part])
        places = part[captioned:]
        for n, (at, value) in enumerate(zip(places, read_values([lines[at] for at in places]), strict=False)):
            rows[at] = Block("row", value, at, at + 1, joined=n > 0)
    parted = [bool(_GAP.search(line) or _RULE.fullmatch(line)) for line in lines]
    # An empty line may part a header from its rows.
    parted = [one or (not full[n] and parted[n - 1 : n + 2 : 2] == [True, True]) for n, one in enumerate(parted)]
    for cells in _list_runs(parted):
        paragraphs = [list(part) for is_full, part in groupby(cells, full.__getitem__) if is_full]
        for places in (*_join_tables(lines, paragraphs), *paragraphs):
            if places[0] not in rows and (found := _read_columns(lines, places)):
                rows |= {**dict.fromkeys(places), **{row.first: row for row in found}}
    blocks: list[Block] = []
    for (row, text, mark), run in groupby(range(len(lines)), lambda n: (n in rows, full[n], lines[n][:2] == "> ")):
        places = list(run)
        if row:
            blocks += filter(None, map(rows.get, places))
        elif text:
            shown = ("> " * mark).join(["", *unwrap_lines([lines[n][2 * mark :] for n in places]).splitlines(True)])
            blocks.append(Block("paragraph", shown, places[0], places[-1] + 1))
    return blocks


def _list_runs(marked: Sequence[bool]) -> list[list[int]]:
    """Return the places of each run of marked ones."""
    return [list(run) for is_marked, run in groupby(range(len(marked)), marked.__getitem__) if is_marked]


def unwrap_text(text: str) -> str:
    """Return a text whose paragraphs are unwrapped and whose columns are rows."""
    return join_blocks(read_plain_text(text)).strip()


def unwrap_lines(lines: Sequence[str]) -> str:
    """Return a paragraph without the line ends that its width made.

    Three signs say that a line was wrapped: the next word had no room, and does not begin anew, and no sentence ended.
    """
    width = max(NARROW, *(len(line.rstrip()) for line in lines))
    breaks = [(before.rstrip(), line.rstrip()) for before, line in pairwise(lines)]
    no_room = [len(before) + 1 + len(line.split()[0]) > width for before, line in breaks]
    ended = [line.rstrip()[-1] in SENTENCE_ENDS for line in lines]
    small = [line.lstrip()[0].islower() for line in lines]
    # Lines about as long as each other, of which the last alone ends a sentence, are one where they do not begin alike.
    is_even = ended[-1] and not any(ended[:-1]) and not _NUMBER.match(lines[0])
    is_even &= all(5 * len(before) >= 4 * width for before, _ in breaks)
    # Of a text each line goes on, or had to; sentences end within most lines, or none is short.
    ends_within = sum(map(bool, map(_ENDS_WITHIN.search, lines))) >= (1 if is_even else len(lines) / 2)
    goes_on = [a or b for a, b in zip(small, _find_numbers(lines, ends_within), strict=True)]
    is_text = ended[-1] and not goes_on[0] and (ends_within or all(2 * len(before) >= width for before, _ in breaks))
    is_text &= all(a or (b and not c) for a, b, c in zip(goes_on[1:], no_room, ended, strict=False))
    is_even &= any(goes_on)
    # Of a list each line begins with a capital, or none does.
    is_list = not any(goes_on[1:]) and len(breaks) > 1 if ended[-1] else small[0] or not any(small[1:])
    least = 2 if is_text else 4 if is_list else 2 if 2 * sum(no_room) >= len(breaks) else 3
    stamped, of_names = (sum(map(bool, map(sign.match, lines))) > 1 for sign in (_STAMP, _NAME))
    named, hang, text = bool(_NAME.match(lines[0])), 0, lines[0].rstrip()
    for (before, line), *signs, is_ended in zip(breaks, no_room, goes_on[1:], ended, strict=False):
        entry = BULLET.match(before) or NUMBER.match(before)
        full, hang = 2 * len(before) >= width, entry.end() if entry else hang
        signs += [not is_ended, full and hang > 0 and line.startswith(" " * hang)]  # below the text of an item
        enough = min(least, 2) if of_names and full and not entry and not line[0].isupper() else least
        joins = (is_even or sum(signs) >= enough) and not _begins_entry(line, stamped, named, is_text or is_even)
        text += f" {line.lstrip()}" if joins else f"\n{line}"
    return text


def _find_numbers(lines: Sequence[str], ends_within: bool) -> list[bool]:
    """Tell which lines go on with a number, a bracket or a quotation.

    A line beside one that begins so too is of a list unless sentences end within most, as is one below a name with a
    colon.
    """
    marks = [False, *(bool(_NUMBER.match(line)) for line in lines), False]
    names = [line.rstrip()[-1] == ":" or bool(_NAME.match(line) and line.lstrip()[0].isupper()) for line in lines]
    alone = (ends_within or not (marks[at] or marks[at + 2] or names[at - 1]) for at in range(len(lines)))
    return [a and b for a, b in zip(marks[1:-1], alone, strict=True)]


def _begins_entry(line: str, stamped: bool, named: bool, is_text: bool) -> bool:
    """Tell whether a line begins an entry, in a paragraph where several have a stamp, or the first one a name."""
    if (stamp := _STAMP.match(line)) and (stamped or not is_text):
        return stamped or bool(stamp["open"]) or not line[stamp.end() :][:1].islower()
    name = _NAME.match(line) and (named or line.lstrip()[0].isupper())
    return bool(name or BULLET.match(line) or NUMBER.match(line))


def _join_tables(lines: Sequence[str], paragraphs: Sequence[list[int]]) -> list[list[int]]:
    """Return paragraphs of columns as tables: each goes on with the one before, unless it has a header of its own."""
    tables: list[list[int]] = []
    for places in paragraphs:
        _, cells = _split_columns(lines, places)
        tables += [[]] if not tables or has_header(cells, default=False) else []
        tables[-1] += places
    return tables


def _read_columns(lines: Sequence[str], places: Sequence[int]) -> list[Block]:
    """Return lines as rows of a table, none where no columns run through them."""
    shown, cells = _split_columns(lines, places)
    rows = format_table(cells)
    of_rows = zip(rows, shown[len(shown) - len(rows) :], strict=True)
    return [Block("row", row, at if n else places[0], at + 1, joined=n > 0) for n, (row, at) in enumerate(of_rows)]


def _split_columns(lines: Sequence[str], places: Sequence[int]) -> tuple[list[int], list[list[str]]]:
    """Return which lines are rows, and their cells, between places that are blank in all; none of no table."""
    shown = [at for at in places if lines[at].strip() and not _RULE.fullmatch(lines[at])]
    wide = [re.sub("[|│║]", " ", lines[at]).expandtabs().rstrip() for at in shown]
    blank = [not any(line[at : at + 1].strip() for line in wide) for at in range(max(map(len, wide), default=0))]
    runs = _list_runs(blank)
    bounds = [0, *(run[-1] + 1 for run in runs if len(run) > 1 and run[0] > 0), len(blank)]
    columns = [[line[a:b].strip() for line in wide] for a, b in pairwise(bounds)]
    held = [column for column in columns if not {*"".join(column)} <= {*"=:-–>"}]  # not one of colons
    cells = [len(re.findall(r"\S(?:.*?\S)?(?=\s{2}|$)", line)) for line in wide]
    alike = len(held) == 2 and len({*held[0]}) == 1  # the month of a log
    if len(wide) < 2 or len(held) < 2 or len(columns) < max(cells) or (len(wide) == 2 and len({*cells}) > 1) or alike:
        return [], []
    table = [[*row] for row in zip(*held, strict=True)]
    for above, row in reversed([*pairwise(table)]):
        if not row[0] and all(a.count(" ") > 1 and b[0].islower() for a, b in zip(above, row, strict=True) if b):
            above[:], row[:] = [f"{a} {b}".rstrip() for a, b in zip(above, row, strict=True)], []  # of a wrapped cell
    return [at for at, row in zip(shown, table, strict=True) if row], [*filter(None, table)]
