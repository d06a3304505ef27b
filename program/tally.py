"""Exposure logs put together: rows in any order, from any number of files, become units with their arms and values."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from program.design import Design, Guard
from program.exposures import Row

Values = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Unit:
    """One unit: its arm, when it was first exposed, and the values of each of its requests.

    `shadows` holds, for each challenger of a shadow experiment, its values on the same requests.
    """

    arm: str
    first: float
    requests: tuple[Values, ...]
    shadows: Mapping[str, tuple[Values, ...]]


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
    keys: int = 0


@dataclass(frozen=True, slots=True)
class Merged:
    """The units that count, by pseudonym, and the accounting of the rest."""

    units: Mapping[str, Unit]
    accounting: Accounting

    def exposed(self, design: Design) -> list[int]:
        """Units an arm, in the order of the design's arms."""
        found = Counter(unit.arm for unit in self.units.values())
        return [found[arm.name] for arm in design.arms]


class Tally:
    """Takes rows one by one; `merged` is the same whatever their order."""

    def __init__(self, design: Design) -> None:
        self._design = design
        self._arms = {arm.name: arm.digest for arm in design.arms}
        self._exposures: dict[str, tuple[float, str, str]] = {}
        self._traces: dict[str, str] = {}
        self._values: dict[tuple[str, str], dict[str, tuple[float, float]]] = {}
        self._counts: Counter[str] = Counter()
        self._keys: set[str] = set()

    def add(self, rows: Iterable[Row]) -> None:
        """Counts the rows in; one that is not of this experiment, or not well formed, is counted and passed over."""
        for row in rows:
            self._counts["rows"] += 1
            if row.get("experiment") != self._design.id:
                self._counts["foreign"] += 1
                continue
            try:
                self._take(row)
            except (KeyError, TypeError, ValueError, AttributeError):
                self._counts["malformed"] += 1

    def merged(self) -> Merged:
        """The units so far. A unit counts once, from its first exposure on; one seen in two arms does not count."""
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
            values = tuple(known.get((request, ""), {}) for _, request, _ in seen)
            shadows = {
                arm.name: tuple(known.get((request, arm.name), {}) for _, request, _ in seen)
                for arm in self._design.challengers
                if self._design.shadow
            }
            units[name] = Unit(seen[0][2], seen[0][0], values, shadows)
        unmatched = sum(self._traces.get(key, key) not in self._exposures for key, _ in self._values)
        accounting = Accounting(
            rows=self._counts["rows"],
            duplicates=self._counts["duplicates"],
            foreign=self._counts["foreign"],
            malformed=self._counts["malformed"],
            crossed=crossed,
            unmatched=unmatched,
            skewed=self._skewed(),
            keys=len(self._keys),
        )
        return Merged(units, accounting)

    def _take(self, row: Row) -> None:
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
            key, shadow, trace = str(row["request"]), str(row.get("shadow", "")), str(row.get("trace", ""))
            values = {name: float(value) for name, value in row["values"].items()}
            if not all(map(math.isfinite, values.values())):
                raise ValueError("not a number")
            if trace:
                self._traces[trace] = min(self._traces.get(trace, key), key)
            kept = self._values.setdefault((key, shadow), {})
            for name, value in values.items():
                kept[name] = max(kept.get(name, (at, value)), (at, value))

    def _joined(self) -> dict[tuple[str, str], dict[str, float]]:
        """The last value of each name, by request and shadow arm; trace ids are taken to the request."""
        last: dict[tuple[str, str], dict[str, tuple[float, float]]] = {}
        for (key, shadow), values in self._values.items():
            kept = last.setdefault((self._traces.get(key, key), shadow), {})
            for name, value in values.items():
                kept[name] = max(kept.get(name, value), value)
        return {key: {name: value for name, (_, value) in values.items()} for key, values in last.items()}

    def _skewed(self) -> int:
        """Requests with a value dated before their exposure: two hosts whose clocks differ."""
        found = set()
        for (key, _), values in self._values.items():
            request = self._traces.get(key, key)
            if request in self._exposures and any(at < self._exposures[request][0] for at, _ in values.values()):
                found.add(request)
        return len(found)


def breaches(units: Iterable[Iterable[Values]], guard: Guard) -> tuple[int, int]:
    """How many units breach a guard in at least one request, and how many were measured and never do."""
    failed = fine = 0
    for requests in units:
        measured = [guard.breached(values[guard.metric]) for values in requests if guard.metric in values]
        failed += any(measured)
        fine += bool(measured) and not any(measured)
    return failed, fine
