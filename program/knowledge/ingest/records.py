"""Rows of a table or .jsonl file, each the content of one passage."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest

from program.knowledge.ingest.csv_rows import read_csv
from program.knowledge.ingest.lines import unwrap_text
from program.knowledge.ingest.metadata import READERS, Metadata, normalise_key, read_fields
from program.knowledge.ingest.table_rows import format_row
from program.passage import Flaw, ReaderSets

TEXT_KEYS = ("text", "contents", "content", "body")
ID_KEYS = ("_id", "id")
DATED = ("as_of", "authority", READERS)
NAMED = (*ID_KEYS, *DATED, "title")


@dataclass(frozen=True, slots=True)
class Row:
    """One record: `key` is its own id or `row-<n>`, lines count from 1; 0 where they are not told."""

    key: str
    text: str
    first: int
    last: int
    metadata: Metadata


Record = tuple[list[tuple[str, object]], int, int]  # names and values, first line and last


def read_rows(text: str, suffix: str) -> tuple[str, list[Row], list[Flaw]]:
    """Return the title, the rows and the flaws of a .jsonl file or a table."""
    title, flaws, found = ("", *_read_jsonl(text)) if suffix == ".jsonl" else _read_table(text)
    rows, doubts = make_rows(found)
    return title, rows, [*flaws, *doubts]


def make_rows(records: Sequence[Record], keys: Sequence[str] = ()) -> tuple[list[Row], list[Flaw]]:
    """Return records as rows, and their flaws.

    A number under `id` stands last, for nobody asks by it. Rows without `keys` are named by their id, or counted among
    those of the same readers. Where a field says who they are, no line is told: it would count what others read.
    """
    rows: list[Row] = []
    flaws: list[Flaw] = []
    written = [[(READERS if normalise_key(k) == READERS else k, v) for k, v in pairs] for pairs, _, _ in records]
    guarded, counts = any(name == READERS for pairs in written for name, _ in pairs), Counter[ReaderSets]()
    for n, (pairs, (_, first, last)) in enumerate(zip(written, records, strict=True)):
        fields = dict(reversed(pairs))  # of two with one name the first
        metadata = read_fields(fields)
        flaws += [replace(flaw, line=first) for flaw in metadata.flaws]
        ordered = sorted(pairs, key=lambda pair: pair[0] in ID_KEYS and str(pair[1]).strip().isdecimal())
        if shown := _text_of(ordered, metadata.attributes):
            named = (" ".join(str(fields[k]).split()) for k in ID_KEYS if str(fields.get(k, "")).strip())
            key = keys[n] if keys else next(named, "")
            counts[metadata.readers] += 1
            groups = [name for one in metadata.readers for name in one]
            key = key or "-".join(["row", *groups, str(counts[metadata.readers])])
            rows.append(Row(key, shown, *((0, 0) if guarded else (first, last)), metadata))
    return rows, flaws


def _read_jsonl(text: str) -> tuple[list[Flaw], list[Record]]:
    bad: list[int] = []
    records: list[Record] = []
    for line, raw in enumerate(text.split("\n"), 1):
        if not raw.strip():
            continue
        try:
            fields = json.loads(raw)
        except (ValueError, RecursionError):
            fields = None
        if isinstance(fields, dict):
            records.append((list(fields.items()), line, line))
        else:
            bad.append(line)
    what = "1 line is no JSON object" if len(bad) == 1 else f"{len(bad)} lines are no JSON objects"
    return [Flaw(f"{what}; left out", "Write one object a line.", bad[0])] if bad else [], records


def _read_table(text: str) -> tuple[str, list[Flaw], list[Record]]:
    table = read_csv(text)
    pairs = (list[tuple[str, object]](zip_longest(table.header, row.cells, fillvalue="")) for row in table.rows)
    return table.title, table.flaws, [(one, row.first, row.last) for one, row in zip(pairs, table.rows, strict=True)]


def _spell_name(name: str) -> str:
    """Return a field's name in words: `unit_price` is unit price."""
    return name.replace("_", " ") if any(map(str.isalnum, name)) else name


def _text_of(pairs: Iterable[tuple[str, object]], attributes: Mapping[str, str]) -> str:
    """Return a record's text, and behind it the fields that are not kept elsewhere; else every field."""
    told = [(k, v if isinstance(v, str) else json.dumps(v, ensure_ascii=False), v) for k, v in pairs if v is not None]
    text = next((v.strip() for name in TEXT_KEYS for k, v, _ in told if k == name and v.strip()), "")
    if not text:
        return format_row((_spell_name(k), v) for k, v, _ in told if k not in DATED)
    kept = {(k, v) for k, v in attributes.items()} | {(k, text) for k in TEXT_KEYS}
    rest = [(k, v) for k, v, raw in told if k not in NAMED and not isinstance(raw, dict | list)]
    beside = format_row((_spell_name(k), v) for k, v in rest if (k, v.strip()) not in kept)
    return "\n".join(filter(None, [unwrap_text(text), beside]))
