"""Rows of a .csv or .jsonl file, each the content of one passage."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from program.knowledge.ingest.metadata import Metadata, read_fields
from program.passage import Flaw

TEXT_KEYS = ("text", "contents", "content", "body")
ID_KEYS = ("_id", "id")
MAX_CELL = 16 * 1024 * 1024  # characters; csv's own 131,072 is below a long page


@dataclass(frozen=True, slots=True)
class Row:
    """One record: `key` is its own id or `row-<n>`, lines count from 1."""

    key: str
    text: str
    first: int
    last: int
    metadata: Metadata


def read_rows(text: str, suffix: str) -> tuple[list[Row], list[Flaw]]:
    """Return the rows of a .jsonl or .csv file, and what is wrong with it."""
    rows: list[Row] = []
    flaws: list[Flaw] = []
    found = _read_jsonl(text, flaws) if suffix == ".jsonl" else _read_csv(text, flaws)
    for fields, first, last in found:
        metadata = read_fields(fields)
        flaws.extend(replace(flaw, line=first) for flaw in metadata.flaws)
        if shown := _text_of(fields):
            key = next((" ".join(str(fields[k]).split()) for k in ID_KEYS if str(fields.get(k, "")).strip()), "")
            rows.append(Row(key or f"row-{len(rows) + 1}", shown, first, last, metadata))
    return rows, flaws


Fields = tuple[dict[str, object], int, int]


def _read_jsonl(text: str, flaws: list[Flaw]) -> Iterator[Fields]:
    bad: list[int] = []
    for line, raw in enumerate(text.split("\n"), 1):
        if not raw.strip():
            continue
        try:
            fields = json.loads(raw)
        except (ValueError, RecursionError):
            fields = None
        if isinstance(fields, dict):
            yield fields, line, line
        else:
            bad.append(line)
    if bad:
        what = "1 line is no JSON object" if len(bad) == 1 else f"{len(bad)} lines are no JSON objects"
        flaws.append(Flaw(f"{what}; left out", "Write one object a line.", bad[0]))


def _read_csv(text: str, flaws: list[Flaw]) -> Iterator[Fields]:
    """Yield rows under the header, which tells the separator (, or ; or tab)."""
    separator = max(",;\t", key=text.partition("\n")[0].count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator)
    csv.field_size_limit(MAX_CELL)
    try:
        header = [name.strip() for name in next(reader, [])]
        start = reader.line_num + 1
        for cells in reader:
            fields: dict[str, object] = dict(zip(header, cells, strict=False))
            if len(cells) > len(header):
                fields[""] = separator.join(cells[len(header) :])
            if any(cell.strip() for cell in cells):
                yield fields, start, reader.line_num
            start = reader.line_num + 1
    except csv.Error as error:
        flaws.append(Flaw(f"reading stopped here: {error}", "Mend the row.", reader.line_num))


def _text_of(fields: Mapping[str, object]) -> str:
    """Return a record's text, else its fields a line each."""
    if text := next((str(fields[k]) for k in TEXT_KEYS if str(fields.get(k) or "").strip()), ""):
        return text.strip()
    told = {key: value for key, value in fields.items() if value is not None and key not in ("as_of", "authority")}
    shown = {k: v.strip() if isinstance(v, str) else json.dumps(v, ensure_ascii=False) for k, v in told.items()}
    return "\n".join(f"{key}: {text}" if key else text for key, text in shown.items() if text)
