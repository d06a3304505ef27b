"""Front matter: title, date, authority, what the document supersedes, and other attributes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from difflib import get_close_matches
from itertools import takewhile

import yaml

from ragc.passage import AUTHORITY, SEPARATORS, Flaw, ReaderSets, split_groups
from ragc.text.days import parse_day

READERS = "readers"
NO_ATTRIBUTES = frozenset("title as_of authority supersedes readers text contents content body _id id".split())
"""Fields with a meaning of their own; any other is an attribute."""
FRONT_KEYS = ("title", "as_of", "date", "authority", "supersedes")
"""Keys of front matter that mean something; `date` is there another word for `as_of`."""
LOST_IF_MISSPELT = ("as_of", "authority", "supersedes")
"""Keys that no key of an author's own resembles by chance, as `dates` does `date`."""
SIMILARITY = 0.81  # from this share of common letters on a key is taken for a misspelt one; `author` is at 0.8
MAX_ATTRIBUTE = 80  # characters of an attribute's value; a longer one is prose

NEARLY = 0.9  # from this share of common letters on a key is taken to be about readers: `leaders` is at 0.86
_FENCE = re.compile(r"-{3,}\s*$")
_ENTRY = re.compile(r"([^\s#\-\[{][^:]*):(?:\s|$)")
_GENERATED = re.compile(
    r"\W*(?:untitled )?(?:untitled|anonymous|unspecified|unknown|document|slide|powerpoint presentation)\W*\d*"
    r"|microsoft \w+ - .*|(?:https?|file|about):\S*|.*\.[a-z]\w{1,4}"  # the name of a file, as `rates.docx`
    r"|\S*(?-i:[^\W\d_A-Z])\d+",  # a word and its count, as `Book1`
    re.IGNORECASE,
)
NOBODY: ReaderSets = ((),)
VALID_FROM, VALID_TO = "valid_from", "valid_to"
"""The fields of a row that is true for a time: its first day is its `as_of`, its last an attribute."""
_WRITE_ENTRY = "Write one `key: value` a line."


@dataclass(frozen=True, slots=True)
class Metadata:
    """The fields of front matter, or of a record.

    `supersedes` holds paths `<base>/<file>` or ids of passages; `attributes` every other short field, those of a
    nested `metadata` as its own. Nobody is in the groups of `readers` where they cannot be told.
    """

    title: str = ""
    as_of: date | None = None
    authority: int = AUTHORITY["reviewed"]
    supersedes: tuple[str, ...] = ()
    readers: ReaderSets = ()
    attributes: Mapping[str, str] = field(default_factory=dict)
    flaws: tuple[Flaw, ...] = ()


def drop_generated_title(title: str) -> str:
    """Return a document's title; empty where a program gave it, as `untitled`."""
    return "" if _GENERATED.fullmatch(title := " ".join(title.split())) else title


def split_front_matter(text: str) -> tuple[Metadata, str, int]:
    """Return the front matter, the text under it, and that text's first line from 1."""
    lines = text.split("\n")
    last = next((n for n, line in enumerate(lines[1:], 1) if _FENCE.match(line)), 0)
    if not last or not _FENCE.match(lines[0]):
        open_ended = len(lines) > 1 and _FENCE.match(lines[0]) and _ENTRY.match(lines[1])
        flaw = Flaw("the front matter has no end and was read as text", "Write --- on a line of its own under it.", 1)
        readers = _close_unread(text.lstrip().split("\n"), fenced=True)
        return Metadata(flaws=(flaw,) if open_ended or readers else (), readers=readers), text, 1
    head, body, first_line = lines[1:last], "\n".join(lines[last + 1 :]), last + 2
    try:
        fields = yaml.load("\n".join(head), Loader=yaml.BaseLoader) or {}  # values as written, dates included
    except (yaml.YAMLError, RecursionError) as error:
        place = getattr(error, "problem_mark", None)
        mend = f"{_WRITE_ENTRY} Put a value with a colon, a bracket or a quote in quotes."
        flaw = Flaw("the front matter is not YAML and was left out", mend, place.line + 2 if place else 1)
        return Metadata(flaws=(flaw,), readers=_close_unread(head)), body, first_line
    if not isinstance(fields, dict):
        flaw = Flaw("the front matter holds no `key: value` and was read as text", _WRITE_ENTRY, 1)
        return Metadata(flaws=(flaw,), readers=_close_unread(head)), text, 1
    if _are_about_readers(name for name in fields if name != READERS or not fields[name]):
        fields[READERS] = []
    places = {normalise_key(found[1]): n for n, line in enumerate(head, 2) if (found := _ENTRY.match(line))}
    flaws = _find_misspelt(fields, places)
    dated = "as_of" if "as_of" in fields or "date" not in fields else "date"
    if dated == "date":
        fields = {"as_of" if name == "date" else name: value for name, value in fields.items()}
        places["as_of"] = places.get("date", 0)
    about = read_fields(fields, places, dated)
    return replace(about, flaws=(*flaws, *about.flaws)), body, first_line


def read_fields(fields: Mapping[str, object], lines: Mapping[str, int] | None = None, dated: str = "as_of") -> Metadata:
    """Return what fields say, flaws at their `lines`; `dated` is the date's own key."""
    since = (value for name, value in fields.items() if normalise_key(str(name)) == VALID_FROM)
    written = _one_line(fields.get("as_of") or next(since, ""))
    as_of = parse_day(written)
    level = _one_line(fields.get("authority")).lower()
    value = fields.get("supersedes") or []
    readers = read_groups(fields[READERS] if READERS in fields else _nested_of(fields).get(READERS))
    paths = [_one_line(path).removeprefix("./") for path in (value if isinstance(value, list) else [value])]
    no_date = f"{dated} {written!r} is no date and was left out"
    no_level = f"authority {level!r} is not known; reviewed is assumed"
    no_path = "supersedes holds what is no path and was left out"
    checks = (
        ("as_of", written and as_of is None, no_date, "Write it like 2026-03-01."),
        ("authority", level and level not in AUTHORITY, no_level, f"Use {' | '.join(AUTHORITY)}."),
        (
            READERS,
            readers == NOBODY,
            "readers names no group, so nobody reads it",
            "Write readers: [GROUP], or no key.",
        ),
        ("supersedes", not all(paths), no_path, "Write <base>/<file>, or a list of them."),
    )
    return Metadata(
        title=_one_line(fields.get("title")),
        as_of=as_of,
        authority=AUTHORITY.get(level, AUTHORITY["reviewed"]),
        supersedes=tuple(path for path in paths if path),
        readers=readers,
        attributes=_read_attributes(fields),
        flaws=tuple(Flaw(what, mend, (lines or {}).get(key, 0)) for key, bad, what, mend in checks if bad),
    )


def read_groups(value: object) -> ReaderSets:
    """Return the readers in a list of groups, or in a text that , or ; or | parts."""
    if value is None or value == "":
        return ()
    named = value if isinstance(value, list) else split_groups(_one_line(value), *SEPARATORS)
    groups = {_one_line(name).encode("utf-8", "replace").decode() for name in named}
    return (tuple(sorted(groups - {""})),)


def _find_misspelt(fields: Mapping[str, object], places: Mapping[str, int]) -> list[Flaw]:
    """Return a flaw for each unknown key that is nearly one of FRONT_KEYS."""
    flaws = []
    for name in (name for name in map(str, fields) if name not in NO_ATTRIBUTES and name != "date"):
        key = normalise_key(name)
        for near in get_close_matches(key, FRONT_KEYS, 1, SIMILARITY):
            what = f"the key {name!r} is not known and was taken for an attribute"
            flaws.append(Flaw(what, f"Did you mean {near}?", places.get(key, 0), lost=near in LOST_IF_MISSPELT))
    return flaws


def _are_about_readers(keys: Iterable[object]) -> bool:
    return any(get_close_matches(normalise_key(str(key)), (READERS,), 1, NEARLY) for key in keys)


def _close_unread(head: Sequence[str], fenced: bool = False) -> ReaderSets:
    """Return nobody where front matter that cannot be read is about readers."""
    paragraph = takewhile(str.strip, head) if not fenced or _FENCE.match(head[0]) else ()
    return NOBODY if _are_about_readers(found[1] for line in paragraph if (found := _ENTRY.match(line))) else ()


def normalise_key(written: str) -> str:
    return re.sub(r"[\s-]+", "_", written.strip().strip("\"'").casefold())


def _read_attributes(fields: Mapping[str, object]) -> dict[str, str]:
    every = {**fields, **_nested_of(fields)}
    keys = {name: VALID_TO if normalise_key(str(name)) == VALID_TO else str(name) for name in every}
    found = {keys[name]: _one_line(value) for name, value in every.items() if name not in NO_ATTRIBUTES}
    return {name: value for name, value in found.items() if name and value and len(value) <= MAX_ATTRIBUTE}


def _nested_of(fields: Mapping[str, object]) -> Mapping[str, object]:
    nested = fields.get("metadata")
    return nested if isinstance(nested, Mapping) else {}


def _one_line(value: object) -> str:
    return " ".join(str(value).split()) if isinstance(value, str | int | float) else ""
