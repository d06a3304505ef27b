"""What a document says of itself in its front matter: title, date, authority, what it replaces."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date

import yaml
from frontmatter.default_handlers import YAMLHandler

from program.knowledge.source import AUTHORITY

KNOWN = frozenset("title as_of authority supersedes text contents content body _id id".split())
"""Fields that are read as what they are; any other is an attribute."""
LONGEST = 80  # characters of an attribute's value; a longer one is prose

FENCE = YAMLHandler.FM_BOUNDARY or re.compile(r"^-{3,}\s*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Metadata:
    """`supersedes` holds paths `<base>/<file>`; `warnings` are clauses without the file's name.

    `attributes` holds every other short field by its name, those of a nested `metadata` as its own.
    """

    title: str = ""
    as_of: date | None = None
    authority: int = AUTHORITY["reviewed"]
    supersedes: tuple[str, ...] = ()
    attributes: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


def split(text: str) -> tuple[Metadata, str, int]:
    """The front matter, the text under it, and the line (from 1) on which that text starts.

    Front matter that is not YAML costs its fields, never the text: it comes back as a warning.
    """
    lines = text.split("\n")
    last = next((n for n, line in enumerate(lines[1:], 1) if FENCE.match(line)), 0)
    if not last or not FENCE.match(lines[0]):
        return Metadata(), text, 1
    head, body, first_line = "\n".join(lines[1:last]), "\n".join(lines[last + 1 :]), last + 2
    try:
        # BaseLoader keeps each value as it is written: `title: 2024` is a title, 2026-02-30 is ours to name.
        fields = YAMLHandler().load(head, Loader=yaml.BaseLoader)
    except (yaml.YAMLError, RecursionError) as error:
        reason = getattr(error, "problem", None) or "it is nested too deep"
        warning = f"the front matter is not YAML ({reason}) and was left out"
        return Metadata(warnings=(warning,)), body, first_line
    if not fields:
        return Metadata(), body, first_line
    if not isinstance(fields, dict):
        return Metadata(warnings=("the front matter holds no `key: value` and was read as text",)), text, 1
    return read(fields), body, first_line


def read(fields: Mapping[str, object]) -> Metadata:
    """The known fields of a mapping of strings; a bad value is a warning, an unknown field is nothing."""
    warnings: list[str] = []
    return Metadata(
        title=_text(fields.get("title")),
        as_of=_date(fields.get("as_of"), warnings),
        authority=_authority(fields.get("authority"), warnings),
        supersedes=_paths(fields.get("supersedes"), warnings),
        attributes=_attributes(fields),
        warnings=tuple(warnings),
    )


def _attributes(fields: Mapping[str, object]) -> dict[str, str]:
    nested = fields.get("metadata")
    every = {**fields, **nested} if isinstance(nested, Mapping) else fields
    found = {str(name): _text(value) for name, value in every.items() if name not in KNOWN}
    return {name: value for name, value in found.items() if name and value and len(value) <= LONGEST}


def day(text: str) -> date | None:
    """The date that a text starts with (2026-03-01, also with a time after it), or None."""
    try:
        return date.fromisoformat(text.strip()[:10])
    except ValueError:
        return None


def _text(value: object) -> str:
    return " ".join(str(value).split()) if isinstance(value, str | int | float) else ""


def _date(value: object, warnings: list[str]) -> date | None:
    written = _text(value)
    found = day(written)
    if written and found is None:
        warnings.append(f"as_of {written!r} is not a date like 2026-03-01 and was left out")
    return found


def _authority(value: object, warnings: list[str]) -> int:
    written = _text(value).lower()
    if written and written not in AUTHORITY:
        warnings.append(f"authority {written!r} is none of {', '.join(AUTHORITY)}; reviewed is assumed")
    return AUTHORITY.get(written, AUTHORITY["reviewed"])


def _paths(value: object, warnings: list[str]) -> tuple[str, ...]:
    if value is None or value == "":
        return ()
    listed = value if isinstance(value, list) else [value]
    paths = tuple(_text(path).removeprefix("./") for path in listed)
    if not all(paths):
        warnings.append("supersedes must be a path <base>/<file> or a list of them; the rest was left out")
    return tuple(path for path in paths if path)
