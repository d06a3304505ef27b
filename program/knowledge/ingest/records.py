"""Rows of a .csv or .jsonl file as passages' contents, one a row."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from program.knowledge.ingest.metadata import Metadata, read
from program.passage import Flaw

TEXT_KEYS = ("text", "contents", "content", "body")
ID_KEYS = ("_id", "id")
FIELD_LIMIT = 16 * 1024 * 1024  # characters in one cell; csv's own 131,072 is below a long page


@dataclass(frozen=True, slots=True)
class Record:
    """One row: `key` is its own id or `row-<n>`, lines count from 1, `title` may be empty."""

    key: str
    title: str
    text: str
    first: int
    last: int
    metadata: Metadata


@dataclass(slots=True)
class Rows:
    """The records of a file, and what is wrong with it."""

    records: list[Record] = field(default_factory=list)
    flaws: list[Flaw] = field(default_factory=list)


def read_jsonl(text: str) -> Rows:
    """One record a JSON object; other lines are counted in one warning."""
    rows = Rows()
    bad: list[int] = []
    for line, raw in enumerate(text.split("\n"), 1):
        if not raw.strip():
            continue
        try:
            fields = json.loads(raw)
        except (ValueError, RecursionError):
            fields = None
        if isinstance(fields, dict):
            _add(rows, fields, line, line)
        else:
            bad.append(line)
    if bad:
        what = "1 line is no JSON object" if len(bad) == 1 else f"{len(bad)} lines are no JSON objects"
        rows.flaws.append(Flaw(f"{what}; left out", "Write one object a line.", bad[0]))
    return rows


def read_csv(text: str) -> Rows:
    """One record a row under the header, which tells the separator: comma, semicolon or tab."""
    rows = Rows()
    separator = max(",;\t", key=text.partition("\n")[0].count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator)
    csv.field_size_limit(FIELD_LIMIT)
    try:
        header = [name.strip() for name in next(reader, [])]
        start = reader.line_num + 1
        for cells in reader:
            fields = dict(zip(header, cells, strict=False))
            if len(cells) > len(header):
                fields[""] = separator.join(cells[len(header) :])
            if any(cell.strip() for cell in cells):
                _add(rows, fields, start, reader.line_num)
            start = reader.line_num + 1
    except csv.Error as error:
        rows.flaws.append(Flaw(f"reading stopped here: {error}", "Mend the row.", reader.line_num))
    return rows


def _add(rows: Rows, fields: Mapping[str, object], first: int, last: int) -> None:
    values = {str(k): v for k, v in fields.items()}
    metadata = read(values)
    rows.flaws.extend(replace(flaw, line=first) for flaw in metadata.flaws)
    text = next((str(values[k]) for k in TEXT_KEYS if str(values.get(k) or "").strip()), "")
    if text:
        shown = [text.strip()]
    else:
        shown = [f"{k}: {v}" if k else v for k, v in _shown(values) if k not in ("as_of", "authority")]
    if not any(shown):
        return
    key = next((" ".join(str(values[k]).split()) for k in ID_KEYS if str(values.get(k, "")).strip()), "")
    rows.records.append(
        Record(key or f"row-{len(rows.records) + 1}", metadata.title, "\n".join(shown), first, last, metadata)
    )


def _shown(values: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    for key, value in values.items():
        shown = value.strip() if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        if shown and value is not None:
            yield key, shown
