"""Exposure logs put together: rows in any order, from any number of files, become units with their arms and values."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from program.serve.experiment_design import Design
from program.serve.exposures import ExposureRow

Values = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Unit:
    """One unit: its arm, and the values of each of its requests, the first request first."""

    arm: str
    requests: tuple[Values, ...]


@dataclass(frozen=True, slots=True)
class Accounting:
    """What was read, and what could not be used. `crossed` units were seen in two arms and are left out."""

    rows: int = 0
    duplicates: int = 0
    foreign: int = 0
    malformed: int = 0
    crossed: int = 0
    unmatched: int = 0
    skewed: int = 0
    torn: int = 0
    keys: int = 0


@dataclass(frozen=True, slots=True)
class Merged:
    """The units that count, by pseudonym, and the accounting of the rest."""

    units: Mapping[str, Unit]
    accounting: Accounting

    def exposed(self, design: Design) -> list[int]:
        """Count the units of each arm, in the order of the design's arms."""
        found = Counter(unit.arm for unit in self.units.values())
        return [found[arm.name] for arm in design.arms]


def merge(design: Design, rows: Iterable[ExposureRow | None]) -> Merged:
    """Join rows to units; the result is the same whatever the order of the rows.

    A unit counts once; one seen in two arms does not count. A row that is not of this experiment, not well formed,
    or None (torn) is counted and passed over.
    """
    tally = _Tally(design)
    for row in rows:
        tally.add(row)
    return tally.merged()


class _Tally:
    """What the rows so far say, by request."""

    def __init__(self, design: Design) -> None:
        self._design = design
        self._arms = {arm.name: arm.digest for arm in design.arms}
        self._exposures: dict[str, tuple[float, str, str]] = {}
        self._traces: dict[str, str] = {}
        self._values: dict[str, dict[str, tuple[float, float]]] = {}
        self._counts: Counter[str] = Counter()
        self._keys: set[str] = set()

    def add(self, row: ExposureRow | None) -> None:
        """Count one row in."""
        if row is None:
            self._counts["torn"] += 1
            return
        self._counts["rows"] += 1
        if row.get("experiment") != self._design.id:
            self._counts["foreign"] += 1
            return
        try:
            self._take(row)
        except (KeyError, TypeError, ValueError, AttributeError):
            self._counts["malformed"] += 1

    def merged(self) -> Merged:
        """Return the units, and the accounting."""
        requests: dict[str, list[tuple[float, str, str]]] = {}
        for request, (at, arm, unit) in self._exposures.items():
            requests.setdefault(unit, []).append((at, request, arm))
        known = self._joined()
        units, crossed = {}, 0
        for name, seen in sorted(requests.items()):
            seen.sort()
            if len({arm for _, _, arm in seen}) > 1:
                crossed += 1
                continue
            units[name] = Unit(seen[0][2], tuple(known.get(request, {}) for _, request, _ in seen))
        unmatched = sum(self._request(key) not in self._exposures for key in self._values)
        found = Accounting(
            **self._counts, crossed=crossed, unmatched=unmatched, skewed=self._skewed(), keys=len(self._keys)
        )
        return Merged(units, found)

    def _take(self, row: ExposureRow) -> None:
        kind, at = row["kind"], float(row["ts"])
        if kind == "opened":
            if row["design"] != self._design.seal:
                raise ValueError("of another design")
            self._keys.add(row["key"])
        elif kind == "exposure":
            if self._arms[row["arm"]] != row["digest"]:
                raise ValueError("of another version")
            found, request = (at, row["arm"], str(row["unit"])), str(row["request"])
            if request in self._exposures:
                self._counts["duplicates"] += 1
            self._exposures[request] = min(self._exposures.get(request, found), found)
        else:
            key, trace = str(row["request"]), str(row.get("trace", ""))
            values = {name: float(value) for name, value in row["values"].items()}
            if not all(map(math.isfinite, values.values())):
                raise ValueError("not a number")
            if trace:
                self._traces[trace] = min(self._traces.get(trace, key), key)
            kept = self._values.setdefault(key, {})
            for name, value in values.items():
                kept[name] = max(kept.get(name, (at, value)), (at, value))

    def _request(self, key: str) -> str:
        """Return the request of a key, which is a request or a trace id."""
        return self._traces.get(key, key)

    def _joined(self) -> dict[str, dict[str, float]]:
        """Return the last value of each name, by request."""
        last: dict[str, dict[str, tuple[float, float]]] = {}
        for key, values in self._values.items():
            kept = last.setdefault(self._request(key), {})
            for name, value in values.items():
                kept[name] = max(kept.get(name, value), value)
        return {key: {name: value for name, (_, value) in values.items()} for key, values in last.items()}

    def _skewed(self) -> int:
        """Count requests with a value dated before their exposure: two hosts whose clocks differ."""
        found = set()
        for key, values in self._values.items():
            request = self._request(key)
            if request in self._exposures and any(at < self._exposures[request][0] for at, _ in values.values()):
                found.add(request)
        return len(found)
