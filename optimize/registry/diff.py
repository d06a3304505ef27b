"""What one version holds that another does not: wording, demonstrations, thresholds, data, models, scores."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import orjson

from ragc.errors import DataError, VersionError
from ragc.optimize.evaluation.comparison import Comparison
from ragc.optimize.registry.versions import compare_versions, read_ancestors
from ragc.serve.artifact import DEFAULT_POINT, STATE
from ragc.serve.manifest import open_version, refuse_unreadable
from ragc.serve.reference import Manifest

Edit = tuple[Literal["same", "out", "in"], str]
"""A run of words, and whether both hold it, only the first (out) or only the second (in)."""
Change = Mapping[Literal["from", "to"], Any]  # A value in A and in B; None where one has none
SECTIONS = ("data", "knowledge", "models", "optimizer", "env", "git")
SHORT = 120


@dataclass(frozen=True, slots=True)
class Difference:
    """Version B against version A."""

    a: str
    b: str
    point: str
    wording: Mapping[str, tuple[Edit, ...]]
    """Instructions and descriptions that changed, by predictor (`judge.sufficiency`) or field (`... / Sufficient:`)."""
    demonstrations: Mapping[str, Mapping[str, Any]]
    """By predictor the demonstrations that `came` and `went`, in brief, and how many `stayed`."""
    same_program: bool  # whether nothing differs but data, packages, dates or scores
    settings: Mapping[str, Change]
    """Thresholds, knobs and layouts that changed; so the others, tables of the manifest."""
    data: Mapping[str, Change]
    knowledge: Mapping[str, Change]
    models: Mapping[str, Change]
    optimizer: Mapping[str, Change]
    env: Mapping[str, Change]
    git: Mapping[str, Change]
    scores: Comparison | None
    unscored: str = ""


@refuse_unreadable("The version")
def trace_origin(
    sealed: Manifest, root: Path | str | None = None
) -> tuple[list[str], dict[str, Change], dict[str, int]]:
    """Return a version's lineage, what moved, and its demonstrations.

    The lineage begins with the oldest. What moved are settings that are not as in the version it was compiled from,
    where that is here. Demonstrations are counted by predictor.
    """
    family = read_ancestors(str(sealed), root)
    lineage = [*filter(None, [family[-1].parent]), *(one.full_label for one in reversed(family))]
    states = [_read_state(one) for one in family[:2]]
    after, *before = (_read_settings(one, state, DEFAULT_POINT) for one, state in zip(family, states, strict=False))
    demos = {name: n for name, part in states[0].items() if (n := len(_index_demonstrations(part)))}
    return lineage, _compare_values(before[0], after) if before else {}, demos


@refuse_unreadable("One of the versions")
def diff_versions(a: str, b: str, point: str = DEFAULT_POINT, root: Path | str | None = None) -> Difference:
    """Compare version B with version A.

    Thresholds and knobs are those of an operating point. Both folders are verified first. Raises `VersionError` when
    neither has that operating point.
    """
    sealed = [open_version(ref, root) for ref in (a, b)]
    if not any(point in one.section("points") for one in sealed):
        known = ", ".join(sorted({name for one in sealed for name in one.section("points")}))
        raise VersionError(f"Neither has an operating point {point!r}.", f"Use one of: {known or 'none'}.")
    states = [_read_state(one) for one in sealed]
    settings = [_read_settings(one, state, point) for one, state in zip(sealed, states, strict=True)]
    scores, unscored = None, ""
    try:
        scores = compare_versions(a, b, root=root, by="diff")
    except DataError as error:
        unscored = error.what
    changes = {name: _compare_values(*(flatten(one.section(name)) for one in sealed)) for name in SECTIONS}
    changes["settings"] = _compare_values(*settings)
    wording, demonstrations = _compare_wording(*states), _compare_demonstrations(*states)
    return Difference(
        a=sealed[0].full_label,
        b=sealed[1].full_label,
        point=point,
        wording=wording,
        demonstrations=demonstrations,
        same_program=not (wording or demonstrations or changes["settings"] or changes["models"]),
        **changes,
        scores=scores,
        unscored=unscored,
    )


def word_edits(before: str, after: str) -> tuple[Edit, ...]:
    """Return the edits from one text to another in runs of words.

    Joined, "same" and "out" give the first text, "same" and "in" the other.
    """
    x, y = (re.findall(r"\S+\s*|\s+", text) for text in (before, after))
    found: list[Edit] = []
    for op, i, j, k, m in difflib.SequenceMatcher(a=x, b=y, autojunk=False).get_opcodes():
        old, new = "".join(x[i:j]), "".join(y[k:m])
        found += [("same", old)] if op == "equal" else [("out", old), ("in", new)]
    return tuple(edit for edit in found if edit[1])


def _compare_wording(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, tuple[Edit, ...]]:
    x, y = _find_texts(before), _find_texts(after)
    pairs = {name: (x.get(name, ""), y.get(name, "")) for name in (*x, *y)}
    return {name: word_edits(old, new) for name, (old, new) in pairs.items() if old != new}


def _find_texts(state: Mapping[str, Any]) -> dict[str, str]:
    found = {}
    for name, part in state.items():
        signature = part["signature"] if _is_predictor(part) else {}
        found[name] = str(signature.get("instructions", ""))
        found |= {f"{name} / {f.get('prefix')}": str(f.get("description", "")) for f in signature.get("fields", [])}
    return found


def _read_state(sealed: Manifest) -> dict[str, Any]:
    return dict(orjson.loads((sealed.path / STATE).read_bytes())) if STATE in sealed.files else {}


def _read_settings(sealed: Manifest, state: Mapping[str, Any], point: str) -> dict[str, Any]:
    """Return the thresholds and knobs of an operating point, and the parts of the prompts' layouts, by name."""
    laid = {name: part["layout"] for name, part in state.items() if isinstance(part, Mapping) and "layout" in part}
    return {**(sealed.section("points").get(point) or {}), **flatten(laid)}


def _compare_demonstrations(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    found = {}
    for name in sorted(before.keys() | after.keys()):
        x, y = (_index_demonstrations(state.get(name)) for state in (before, after))
        came, went = ([_shorten(one[key]) for key in one if key not in other] for one, other in ((y, x), (x, y)))
        if came or went:
            found[name] = {"came": came, "went": went, "stayed": len(x.keys() & y.keys())}
    return found


def _index_demonstrations(part: Any) -> dict[bytes, Mapping[str, Any]]:
    demos: Sequence[Mapping[str, Any]] = part.get("demos", []) if _is_predictor(part) else []
    return {orjson.dumps(demo, option=orjson.OPT_SORT_KEYS): demo for demo in demos}


def _shorten(demo: Mapping[str, Any]) -> dict[str, Any]:
    """Return a demonstration's question and its plain values, long texts cut."""
    plain = {k: v for k, v in demo.items() if isinstance(v, str | int | float | bool) and k != "augmented"}
    cut = {k: v[:SHORT] + "..." if isinstance(v, str) and len(v) > SHORT else v for k, v in plain.items()}
    return {"question": cut.pop("question", ""), **cut}


def _is_predictor(part: Any) -> bool:
    return isinstance(part, Mapping) and isinstance(part.get("signature"), Mapping)


def flatten(table: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Return nested fields by dotted names."""
    found: dict[str, Any] = {}
    for name, value in table.items():
        dotted = f"{above}{name}"
        found |= flatten(value, f"{dotted}.") if isinstance(value, Mapping) else {dotted: value}
    return found


def _compare_values(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Change]:
    """Return the values that changed, lists left out."""
    pairs = {name: (before.get(name), after.get(name)) for name in sorted(before.keys() | after.keys())}
    return {n: {"from": x, "to": y} for n, (x, y) in pairs.items() if x != y and not isinstance(x or y, list)}
