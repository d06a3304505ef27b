"""Rows of a table, and records of JSON or YAML, each the content of one passage."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from types import MappingProxyType

import yaml

from ragc.knowledge.ingest.amounts import read_amount
from ragc.knowledge.ingest.blocks import Section
from ragc.knowledge.ingest.convert import UnreadableFile, read_markup
from ragc.knowledge.ingest.csv_rows import SUFFIXES, CsvTable, make_tables, read_tables
from ragc.knowledge.ingest.lines import unwrap_text
from ragc.knowledge.ingest.metadata import READERS, normalise_key, read_fields
from ragc.knowledge.ingest.table_rows import format_row, is_label
from ragc.passage import Flaw, ReaderSets

TEXT_KEYS = ("text", "contents", "content", "body")
ID_KEYS = ("_id", "id")
DATED = ("as_of", "authority", READERS)
NAMED = (*ID_KEYS, *DATED, "title")
_SAFE = yaml.SafeLoader.yaml_implicit_resolvers.items()
_KINDS = {first: [one for one in kinds if one[0].endswith((":null", ":merge"))] for first, kinds in _SAFE}
_AsWritten = type("_AsWritten", (yaml.SafeLoader,), {"yaml_implicit_resolvers": _KINDS})
"""What reads the values of YAML as they are written: 4.50, 007, 9:30 and no."""
Record = tuple[list[tuple[str, object]], int, int]  # names and values, first line and last


def read_rows(text: str, suffix: str) -> tuple[str, list[Section], list[Flaw]]:
    """Return the title, the rows and the flaws of a table, of JSON or YAML.

    Raises `UnreadableFile`.
    """
    rows = list[Section]()
    if suffix in SUFFIXES:
        return _read_tables([("", table) for table in read_tables(text)], [])
    if suffix == ".jsonl":
        flaws, records = _read_jsonl(text)
        lists = {"": records}
    else:
        flaws, lists = _read_tree(text, suffix)
    for name, records in lists.items():
        found, doubts = make_rows(records)
        rows += _name_rows(found, name, name) if len(lists) > 1 and name else found
        flaws = [*flaws, *doubts]
    return "", rows, flaws


def make_rows(records: Sequence[Record], keys: Sequence[str] = ()) -> tuple[list[Section], list[Flaw]]:
    """Return records as rows, and their flaws.

    A number under `id` stands last, for nobody asks by it. Rows without `keys` are named by their id, or counted among
    those of the same readers. Where a field says who they are, no line is told: it would count what others read.
    """
    rows: list[Section] = []
    flaws: list[Flaw] = []
    written = [[(READERS if normalise_key(k) == READERS else k, v) for k, v in pairs] for pairs, _, _ in records]
    guarded, counts = any(name == READERS for pairs in written for name, _ in pairs), Counter[ReaderSets]()
    for n, (pairs, (_, first, last)) in enumerate(zip(written, records, strict=True)):
        fields = dict(reversed(pairs))  # of two with one name the first
        metadata = read_fields({k: read_markup(v) if isinstance(v, str) else v for k, v in fields.items()})
        flaws += [replace(flaw, line=first) for flaw in metadata.flaws]
        ordered = sorted(pairs, key=lambda pair: pair[0] in ID_KEYS and str(pair[1]).strip().isdecimal())
        if shown := _text_of(ordered, metadata.attributes):
            named = (" ".join(str(fields[k]).split()) for k in ID_KEYS if str(fields.get(k, "")).strip())
            key = keys[n] if keys else next(named, "")
            counts[metadata.readers] += 1
            groups = [name for one in metadata.readers for name in one]
            key = key or "-".join(["row", *groups, str(counts[metadata.readers])])
            rows.append(Section(key, shown, *((0, 0) if guarded else (first, last)), about=metadata))
    return rows, flaws


def _read_jsonl(text: str) -> tuple[list[Flaw], list[Record]]:
    bad: list[int] = []
    records: list[Record] = []
    for line, raw in enumerate(text.split("\n"), 1):
        if not raw.strip():
            continue
        try:
            fields = json.loads(raw, parse_float=str)
        except (ValueError, RecursionError):
            fields = None
        if isinstance(fields, dict):
            records.append((list(fields.items()), line, line))
        else:
            bad.append(line)
    what = "1 line is no JSON object" if len(bad) == 1 else f"{len(bad)} lines are no JSON objects"
    return [Flaw(f"{what}; left out", "Write one object a line.", bad[0])] if bad else [], records


def read_sheet_rows(sheets: Mapping[str, list[list[str]]], flaws: list[Flaw]) -> tuple[str, list[Section], list[Flaw]]:
    """Return the title, the rows and the flaws of the sheets of an Excel file."""
    tables = [(name, n, one) for name, rows in sheets.items() for n, one in enumerate(make_tables(rows), 1)]
    return _read_tables([(f"{name} {n}" if n > 1 else name, one) for name, n, one in tables], flaws)


def _read_tables(tables: Sequence[tuple[str, CsvTable]], flaws: list[Flaw]) -> tuple[str, list[Section], list[Flaw]]:
    """Return the title of the one table, the rows, under names where there are several, and the flaws."""
    alone, found = len(tables) == 1, list[Section]()
    for n, (name, table) in enumerate(tables, 1):
        rows, doubts = make_rows(_pair_cells(table))
        of = f"of the sheet {name!r}: " if name and not alone else ""
        flaws = [*flaws, *(replace(one, what=f"{of}{one.what}") for one in (*table.flaws, *doubts))]
        found += rows if alone else _name_rows(rows, name or f"table {n}", table.title or name)
    return tables[0][1].title if alone else "", found, flaws


def _name_rows(rows: Iterable[Section], name: str, title: str) -> Iterator[Section]:
    """Yield the rows of one of several tables under its title."""
    key = "-".join(name.lower().split())
    for row in rows:
        about = replace(row.about, title=row.about.title or title) if row.about else None
        yield replace(row, slug=f"{key}-{row.slug}", about=about)


def _pair_cells(table: CsvTable) -> list[Record]:
    """Return the rows by the names of their columns; of two columns without any the first names the second."""
    keyed = table.header == ["", ""] and all(all(row.cells) and is_label(row.cells[0]) for row in table.rows)
    rows = [([cells[0]], cells[1:]) if keyed else (table.header, cells) for cells in (row.cells for row in table.rows)]
    pairs = (list[tuple[str, object]](zip_longest(*row, fillvalue="")) for row in rows)
    return [(one, row.first, row.last) for one, row in zip(pairs, table.rows, strict=True)]


def _read_tree(text: str, suffix: str) -> tuple[list[Flaw], dict[str, list[Record]]]:
    """Return the objects of JSON, or YAML, each a record: of several lists by their names, beside what is in none."""
    try:
        trees = [json.loads(text, parse_float=str)] if suffix == ".json" else [*yaml.load_all(text, _AsWritten)]
    except (ValueError, yaml.YAMLError, RecursionError) as error:
        flaws, records = _read_jsonl(text)
        if records:
            return flaws, {"": records}
        why = " ".join(str(error).split())[:80]
        raise UnreadableFile(
            f"no {suffix[1:].upper()}: {why}", "Mend it, or write one object a line, as .jsonl."
        ) from error
    lists = defaultdict[str, list[Record]](list)
    for name, one in _list_records(trees[0] if len(trees) == 1 else trees):
        lists[name].append((list((one if isinstance(one, dict) else {"": one}).items()), 0, 0))
    return [], lists if len(lists.keys() - {""}) > 1 else {"": [one for records in lists.values() for one in records]}


def _list_records(
    tree: object, name: str = "", field: str = "", above: Mapping[str, object] = MappingProxyType({})
) -> Iterator[tuple[str, object]]:
    """Yield the objects of a tree, each with the name of its list, in front what `above` has of those around it.

    Of an item of a list, under `field`, it is what names it; of each object who may read it, and since when it holds.
    """
    if not isinstance(tree, dict):
        for one in tree if isinstance(tree, list) else [tree]:
            scalar = [(name, {**above, "": one} if above else one)]
            yield from _list_records(one, name, field or " ", above) if isinstance(one, dict) else scalar
        return
    lists = [key for key, value in tree.items() if _holds_objects(value, 2 if field else 1)]
    nested = not all(normalise_key(key) in DATED for key in above)
    rest = {f"{field} {key}" if nested and key in ID_KEYS else key: tree[key] for key in tree if key not in lists}
    if rest:
        yield name, {**above, **rest}
    below = {**above, **{key: value for key, value in rest.items() if normalise_key(key) in DATED}}
    plain = {key: value for key, value in rest.items() if key not in below and isinstance(value, str | int | float)}
    texts = {key: value.strip() for key, value in plain.items() if isinstance(value, str)}
    words = (key for key, text in texts.items() if text and is_label(text) and not read_amount(text))
    if field and (key := next(words, next(iter(plain), ""))):
        below[field.strip() or key] = plain[key]
    for key in lists:
        of_item = key if isinstance(tree[key], list) else ""
        yield from _list_records(tree[key], f"{name} {_spell_name(str(key))}".strip(), of_item, below)


def _holds_objects(value: object, least: int) -> bool:
    """Tell whether a value holds a list of objects, one of which has so many fields."""
    if isinstance(value, dict):
        return any(_holds_objects(one, least) for one in value.values())
    return isinstance(value, list) and any(isinstance(one, dict) and len(one) >= least for one in value)


def flatten_fields(pairs: Iterable[tuple[str, object]]) -> Iterator[tuple[str, str]]:
    """Yield names and texts; fields of inner objects stand behind their name."""
    for name, value in pairs:
        if isinstance(value, Mapping):
            yield from flatten_fields((f"{name} {key}".strip(), one) for key, one in value.items())
        elif isinstance(value, list) and any(isinstance(one, Mapping | list) for one in value):
            yield from flatten_fields((f"{name} {n}".strip(), one) for n, one in enumerate(value, 1))
        elif isinstance(value, list):
            yield name, ", ".join(map(_spell_value, value))
        elif value is not None:
            yield name, _spell_value(value)


def _spell_value(value: object) -> str:
    if isinstance(value, str):
        return read_markup(value)
    return json.dumps(value) if isinstance(value, bool | int | float | None) else str(value)  # a day of YAML


def _spell_name(name: str) -> str:
    """Return a field's name in words: `unit_price` is unit price."""
    return name.replace("_", " ") if any(map(str.isalnum, name)) else name


def _text_of(pairs: Iterable[tuple[str, object]], attributes: Mapping[str, str]) -> str:
    """Return a record's text, and behind it the fields that are not kept elsewhere; else every field."""
    told = list(flatten_fields(pairs))
    text = next((v.strip() for name in TEXT_KEYS for k, v in told if k == name and v.strip()), "")
    if not text:
        return format_row((_spell_name(k), v) for k, v in told if k not in DATED)
    kept = {(k, v) for k, v in attributes.items()} | {(k, text) for k in TEXT_KEYS}
    rest = [(k, v) for k, v in told if k not in NAMED and not k.startswith("metadata ")]
    beside = format_row((_spell_name(k), v) for k, v in rest if (k, v.strip()) not in kept)
    return "\n".join(filter(None, [unwrap_text(text), beside]))
