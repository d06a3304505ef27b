"""What a document says of itself in its front matter: title, date, authority, what it replaces."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from itertools import pairwise

import yaml
from frontmatter.default_handlers import YAMLHandler

from program.passage import AUTHORITY, Flaw

KNOWN = frozenset("title as_of authority supersedes text contents content body _id id".split())
"""Fields that are read as what they are; any other is an attribute."""
OWN = ("title", "as_of", "date", "authority", "supersedes")
"""The keys of front matter that mean something to the program."""
DISTINCT = ("as_of", "authority", "supersedes")
"""Of these those that no key of one's own resembles by chance, as `dates` does `date`."""
DATE = "date"
"""In front matter another word for `as_of`; a record's `date` may be the date of anything."""
NEAR = 0.8  # normalised similarity of a misspelt key, 1.0 being the same: one slip in five letters
LONGEST = 80  # characters of an attribute's value; a longer one is prose

_ENTRY = re.compile(r"([^\s#\-\[{][^:]*):(?:\s|$)")
FENCE = YAMLHandler.FM_BOUNDARY or re.compile(r"^-{3,}\s*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Metadata:
    """What front matter says; `supersedes` holds paths `<base>/<file>`.

    `attributes` holds every other short field by its name, those of a nested `metadata` as its own.
    """

    title: str = ""
    as_of: date | None = None
    authority: int = AUTHORITY["reviewed"]
    supersedes: tuple[str, ...] = ()
    attributes: Mapping[str, str] = field(default_factory=dict)
    flaws: tuple[Flaw, ...] = ()


def split(text: str) -> tuple[Metadata, str, int]:
    """Return the front matter, the text under it, and the line (from 1) on which that text starts.

    Of front matter that is not YAML the entries that are by themselves are kept; each other is a flaw.
    """
    lines = text.split("\n")
    last = next((n for n, line in enumerate(lines[1:], 1) if FENCE.match(line)), 0)
    if not last or not FENCE.match(lines[0]):
        return Metadata(), text, 1
    head, body, first_line = lines[1:last], "\n".join(lines[last + 1 :]), last + 2
    flaws: list[Flaw] = []
    try:
        fields = _loaded("\n".join(head))
    except (yaml.YAMLError, RecursionError):
        fields = _readable(head, flaws)
    if not fields:
        return Metadata(flaws=tuple(flaws)), body, first_line
    if not isinstance(fields, dict):
        flaw = Flaw("the front matter holds no `key: value` and was read as text", "Write one `key: value` a line.", 1)
        return Metadata(flaws=(flaw,)), text, 1
    places = {_key(found[1]): n for n, line in enumerate(head, 2) if (found := _ENTRY.match(line))}
    flaws += _misspelt(fields, places)
    written = frozenset(fields)
    if DATE in fields and "as_of" not in fields:
        fields = {"as_of" if name == DATE else name: value for name, value in fields.items()}
        places["as_of"] = places.get(DATE, 0)
    about = read(fields, places, "as_of" if "as_of" in written else DATE)
    return replace(about, flaws=(*flaws, *about.flaws)), body, first_line


def read(fields: Mapping[str, object], lines: Mapping[str, int] | None = None, dated: str = "as_of") -> Metadata:
    """Read the known fields of a mapping of strings; a bad value is a flaw.

    `lines` has the line of each key; `dated` is the key that the date was written under.
    """
    found: dict[str, list[Flaw]] = {"as_of": [], "authority": [], "supersedes": []}
    about = Metadata(
        title=_text(fields.get("title")),
        as_of=_date(fields.get("as_of"), dated, found["as_of"]),
        authority=_authority(fields.get("authority"), found["authority"]),
        supersedes=_paths(fields.get("supersedes"), found["supersedes"]),
        attributes=_attributes(fields),
    )
    known = lines or {}
    flaws = (replace(flaw, line=known.get(key, 0)) for key, some in found.items() for flaw in some)
    return replace(about, flaws=tuple(flaws))


def _loaded(text: str) -> object:
    # BaseLoader keeps each value as it is written: `title: 2024` is a title, 2026-02-30 is ours to name.
    return YAMLHandler().load(text, Loader=yaml.BaseLoader)


def _readable(lines: Sequence[str], flaws: list[Flaw]) -> dict[str, object]:
    """Return the entries that are YAML by themselves; an entry is a line `key: value` and what is indented under it."""
    starts = [n for n, line in enumerate(lines) if _ENTRY.match(line)]
    before = lines[: starts[0]] if starts else lines
    stray = next((n for n, line in enumerate(before) if line.strip() and not line.lstrip().startswith("#")), -1)
    if stray >= 0:
        flaws.append(Flaw(f"`{_shown(lines[stray])}` is no `key: value`", "Write one `key: value` a line.", stray + 2))
    fields: dict[str, object] = {}
    for start, end in pairwise([*starts, len(lines)]):
        entry = lines[start:end]
        try:
            found = _loaded("\n".join(entry))
            if not isinstance(found, dict):
                raise yaml.YAMLError
        except (yaml.YAMLError, RecursionError):
            flaws.append(Flaw(f"`{_shown(entry[0])}` is not YAML and was left out", _mend(entry), start + 2))
        else:
            fields.update(found)
    return fields


def _mend(entry: Sequence[str]) -> str:
    """The remedy for an entry that is no YAML: quotes for a plain value of one line, else where to look."""
    key, _, value = (part.strip() for part in entry[0].partition(":"))
    under = next((n for n, line in enumerate(entry) if n and line.strip() and not line.lstrip().startswith("#")), 0)
    if under:
        return f"Begin `{_shown(entry[under])}` at the margin, if it is an entry of its own; indent lists by spaces."
    if value and value[0] not in "[{\"'|>":
        return f"Put the value in quotes: {key}: {json.dumps(value, ensure_ascii=False)}"
    return "Close every bracket and quote, and put values with a colon in quotes."


def _shown(line: str) -> str:
    line = line.strip()
    return line if len(line) <= LONGEST else f"{line[:LONGEST]}..."


def _misspelt(fields: Mapping[str, object], places: Mapping[str, int]) -> list[Flaw]:
    """Return the unknown keys that are one of OWN but for a slip of the pen."""
    from rapidfuzz.distance import OSA

    flaws = []
    for name in fields:
        key = _key(str(name))
        near = max(OWN, key=lambda own: OSA.normalized_similarity(key, own))
        if str(name) not in KNOWN and name != DATE and OSA.normalized_similarity(key, near) >= NEAR:
            what = f"the key {str(name)!r} is not known and was taken for an attribute"
            flaws.append(Flaw(what, f"Did you mean {near}?", places.get(key, 0), lost=near in DISTINCT))
    return flaws


def _key(written: str) -> str:
    return re.sub(r"[\s-]+", "_", written.strip().strip("\"'").casefold())


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


def _date(value: object, key: str, flaws: list[Flaw]) -> date | None:
    written = _text(value)
    found = day(written)
    if written and found is None:
        flaws.append(Flaw(f"{key} {written!r} is no date and was left out", "Write it like 2026-03-01."))
    return found


def _authority(value: object, flaws: list[Flaw]) -> int:
    written = _text(value).lower()
    if written and written not in AUTHORITY:
        flaws.append(Flaw(f"authority {written!r} is not known; reviewed is assumed", f"Use {' | '.join(AUTHORITY)}."))
    return AUTHORITY.get(written, AUTHORITY["reviewed"])


def _paths(value: object, flaws: list[Flaw]) -> tuple[str, ...]:
    if value is None or value == "":
        return ()
    listed = value if isinstance(value, list) else [value]
    paths = tuple(_text(path).removeprefix("./") for path in listed)
    if not all(paths):
        flaws.append(
            Flaw("supersedes holds what is no path and was left out", "Write <base>/<file>, or a list of them.")
        )
    return tuple(path for path in paths if path)
