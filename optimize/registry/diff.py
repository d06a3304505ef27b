"""What one version holds that another does not: wording, demonstrations, thresholds, data, models, scores."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import orjson

from optimize.evaluation.comparison import Comparison, compare_versions
from program.errors import DataError, VersionError
from program.serve import manifest, reference

Edit = tuple[Literal["same", "out", "in"], str]
"""A run of words, and whether both hold it, only the first (out) or only the second (in)."""
STATE = "program.json"
POINT = "balanced"
SECTIONS = ("data", "knowledge", "models", "optimizer", "env", "git")
SHORT = 120


@dataclass(frozen=True, slots=True)
class Wording:
    """A text that a model is shown, such as `judge.relevance` or `judge.relevance / Relevant:`, as word edits."""

    of: str
    edits: tuple[Edit, ...]


@dataclass(frozen=True, slots=True)
class Demonstrations:
    """A predictor's demonstrations that only B shows (`came`) or only A (`went`), in brief, and how many stayed."""

    of: str
    came: tuple[Mapping[str, Any], ...]
    went: tuple[Mapping[str, Any], ...]
    stayed: int


@dataclass(frozen=True, slots=True)
class Difference:
    """B against A. `settings` and each of `sections` map a name to (in A, in B); None where one has none.

    `scores` is the paired comparison, or None with the reason in `unscored`.
    """

    a: str
    b: str
    point: str
    wording: tuple[Wording, ...]
    demonstrations: tuple[Demonstrations, ...]
    settings: Mapping[str, tuple[Any, Any]]
    sections: Mapping[str, Mapping[str, tuple[Any, Any]]]
    scores: Comparison | None
    unscored: str = ""

    @property
    def same_program(self) -> bool:
        """True when the two answer alike: nothing differs but data, packages, dates or scores."""
        return not (self.wording or self.demonstrations or self.settings or self.sections["models"])

    def as_dict(self) -> dict[str, Any]:
        """The shape of `ragc diff --json`."""
        return {
            "a": self.a,
            "b": self.b,
            "point": self.point,
            "same_program": self.same_program,
            "instructions": [
                {"of": w.of, "edits": [{"op": op, "text": text} for op, text in w.edits]} for w in self.wording
            ],
            "demonstrations": [asdict(d) for d in self.demonstrations],
            "settings": {name: {"from": x, "to": y} for name, (x, y) in self.settings.items()},
            **{
                section: {name: {"from": x, "to": y} for name, (x, y) in changed.items()}
                for section, changed in self.sections.items()
            },
            "scores": self.scores.as_dict() if self.scores else None,
            "unscored": self.unscored,
        }


@manifest.readable("One of the versions")
def diff(a: str, b: str, point: str = POINT, root: Path | str | None = None) -> Difference:
    """What changed from version `a` to version `b`; thresholds and knobs are those of operating point `point`.

    Both folders are verified first. Raises `VersionError` when neither has that operating point.
    """
    sealed = [_opened(ref, root) for ref in (a, b)]
    points = [dict(m.section("points").get(point) or {}) for m, _ in sealed]
    if not any(points):
        known = sorted({p for m, _ in sealed for p in m.section("points")})
        raise VersionError(f"Neither has an operating point {point!r}.", f"Use one of: {', '.join(known) or 'none'}.")
    states = [state for _, state in sealed]
    scores, unscored = None, ""
    try:
        scores = compare_versions(a, b, root=root)
    except DataError as error:
        unscored = error.what
    return Difference(
        a=_title(sealed[0][0]),
        b=_title(sealed[1][0]),
        point=point,
        wording=_wording(*states),
        demonstrations=_demonstrations(*states),
        settings=_changed(*points),
        sections={name: _changed(*(_flat(m.section(name)) for m, _ in sealed)) for name in SECTIONS},
        scores=scores,
        unscored=unscored,
    )


def word_edits(before: str, after: str) -> tuple[Edit, ...]:
    """From one text to another in runs of words; joined, "same" and "out" give the first, "same" and "in" the other."""
    x, y = (re.findall(r"\S+\s*|\s+", text) for text in (before, after))
    found: list[Edit] = []
    for op, i, j, k, m in difflib.SequenceMatcher(a=x, b=y, autojunk=False).get_opcodes():
        if op == "equal":
            found.append(("same", "".join(x[i:j])))
        else:
            found += [(side, text) for side, text in (("out", "".join(x[i:j])), ("in", "".join(y[k:m]))) if text]  # type: ignore[misc]
    return tuple(found)


def _opened(ref: str, root: Path | str | None) -> tuple[manifest.Manifest, dict[str, Any]]:
    found = reference.resolve(ref, root)
    sealed = manifest.verify(found.path, found.digest)
    path = sealed.folder / STATE
    return sealed, orjson.loads(path.read_bytes()) if path.is_file() else {}


def _title(sealed: manifest.Manifest) -> str:
    return f"{sealed.name}@{sealed.version}-{sealed.digest[7:15]}"


def _wording(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[Wording, ...]:
    x, y = _texts(before), _texts(after)
    names = [*x, *(name for name in y if name not in x)]
    return tuple(
        Wording(name, word_edits(x.get(name, ""), y.get(name, "")))
        for name in names
        if x.get(name, "") != y.get(name, "")
    )


def _texts(state: Mapping[str, Any]) -> dict[str, str]:
    """Every instruction by its predictor, every field's description by predictor and prefix."""
    found = {}
    for name, signature in ((n, part["signature"]) for n, part in state.items() if _is_predictor(part)):
        found[name] = str(signature.get("instructions", ""))
        found |= {f"{name} / {f.get('prefix')}": str(f.get("description", "")) for f in signature.get("fields", [])}
    return found


def _demonstrations(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[Demonstrations, ...]:
    found = []
    for name in sorted(before.keys() | after.keys()):
        x, y = (_shown(state.get(name)) for state in (before, after))
        came, went = ([_brief(one[key]) for key in one if key not in other] for one, other in ((y, x), (x, y)))
        if came or went:
            found.append(Demonstrations(name, tuple(came), tuple(went), len(x.keys() & y.keys())))
    return tuple(found)


def _shown(part: Any) -> dict[bytes, Mapping[str, Any]]:
    demos: Sequence[Mapping[str, Any]] = part.get("demos", []) if _is_predictor(part) else []
    return {orjson.dumps(demo, option=orjson.OPT_SORT_KEYS): demo for demo in demos}


def _brief(demo: Mapping[str, Any]) -> dict[str, Any]:
    """A demonstration in a line: its question and its plain values, long texts cut."""
    plain = {k: v for k, v in demo.items() if isinstance(v, str | int | float | bool) and k != "augmented"}
    cut = {k: v[:SHORT] + "..." if isinstance(v, str) and len(v) > SHORT else v for k, v in plain.items()}
    return {"question": cut.pop("question", ""), **cut}


def _is_predictor(part: Any) -> bool:
    return isinstance(part, Mapping) and isinstance(part.get("signature"), Mapping)


def _flat(fields: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Nested fields as dotted names; lists (such as the digests of single questions) are left out."""
    found: dict[str, Any] = {}
    for name, value in fields.items():
        if isinstance(value, Mapping):
            found |= _flat(value, f"{above}{name}.")
        elif not isinstance(value, list):
            found[f"{above}{name}"] = value
    return found


def _changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    names = sorted(before.keys() | after.keys())
    return {n: (before.get(n), after.get(n)) for n in names if before.get(n) != after.get(n)}
