"""What the log of traces tells of a program in service: rounds, costs, how often it gave up or retried in vain."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from program.errors import DataError
from program.models.asked import DEFAULTED
from program.project import Project
from program.serve.trace import UNRETRIEVED, LineLog, TraceLog
from program.settings import FILE

LOOKED_UP = ("search", "fallback")

Entry = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Monitoring:
    """Figures over all traced questions; shares and rates are in [0, 1], None where no question tells.

    `one_round` and `mean_rounds` are over all questions: one answered from evidence that was not judged has one round,
    one answered without a look-up none. A retry was `false` when its first evidence already held everything that the
    answer follows in the end; one that ended without a citation was not. `judge_by_week` is the mean sufficiency of
    the last round by ISO week, without questions of which a decision could not be read: a default is no score.
    `unread` says which lines of the log are no trace.
    """

    n: int
    one_round: float
    mean_rounds: float
    judge_by_week: Mapping[str, float]
    fallback_rate: float
    false_retry_rate: float | None
    clarify_rate: float
    abstain_rate: float
    unretrieved_rate: float
    stopped_by: Mapping[str, int]
    mean_calls: float
    mean_tokens: float
    usd: float
    seconds_p50: float
    seconds_p95: float
    to_review: int
    unread: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def log_of(target: str | Path) -> TraceLog:
    """The log of a project folder, or the one whose traces are in a file.

    Raises `DataError` when there is none yet.
    """
    place = Path(target)
    if not place.exists():
        raise DataError(f"There is no {target}.", "Name a project folder, or a file of traces.")
    if place.is_file():
        log = TraceLog(place.parent, name=place.name)
    else:
        log = TraceLog(Project.open(place).private if (place / FILE).is_file() else place)
    if not log.traces.path.is_file():
        raise DataError(f"There are no traces at {log.traces.path}.", "Ask something first, with [trace] enabled.")
    return log


def trace_of(log: TraceLog, trace_id: str) -> Entry:
    """The entry of that trace; the beginning of an id will do. Raises `DataError` when there is none, or several."""
    found = [entry for entry in log.traces.entries() if str(entry.get("trace_id", "")).startswith(trace_id)]
    if len(found) != 1:
        many = f"{len(found)} traces begin" if found else "No trace begins"
        raise DataError(f"{many} with {trace_id!r}.", "List them with: ragc trace stats, or give the whole id.")
    return found[0]


def monitor(log: TraceLog) -> Monitoring:
    """The figures of every trace that is kept. Raises `DataError` when there is none."""
    unread: list[str] = []
    entries = list(log.traces.entries(unread.append))
    if not entries:
        raise DataError(f"{log.traces.path} is empty.", "Ask something first, with [trace] enabled.")
    rounds = [_rounds(entry) for entry in entries]
    seconds = [entry["usage"]["seconds"] for entry in entries]
    outcomes = Counter(entry["outcome"] for entry in entries)
    retried = [entry for entry in entries if len(entry.get("rounds", ())) > 1]
    return Monitoring(
        n=len(entries),
        one_round=_rate(n <= 1 for n in rounds),
        mean_rounds=_rate(rounds),
        judge_by_week=_by_week(entries),
        fallback_rate=_rate(entry["stopped_by"] == "fallback" for entry in entries),
        false_retry_rate=_mean(_in_vain(entry) for entry in retried),
        clarify_rate=outcomes["clarify"] / len(entries),
        abstain_rate=outcomes["abstain"] / len(entries),
        unretrieved_rate=_rate(UNRETRIEVED in entry["path"] for entry in entries),
        stopped_by=dict(Counter(entry["stopped_by"] for entry in entries)),
        mean_calls=_rate(entry["usage"]["calls"] for entry in entries),
        mean_tokens=_rate(entry["usage"]["tokens_in"] + entry["usage"]["tokens_out"] for entry in entries),
        usd=round(sum(entry["usage"]["usd"] for entry in entries), 6),
        seconds_p50=float(np.percentile(seconds, 50)),
        seconds_p95=float(np.percentile(seconds, 95)),
        to_review=sum(1 for _ in log.review.entries()),
        unread=tuple(unread),
    )


def queue_of(log: LineLog) -> list[Entry]:
    """The entries of a queue, least confident first."""
    return sorted(log.entries(), key=lambda entry: (entry["confidence"], entry["at"]))


def _rounds(entry: Entry) -> int:
    """How often evidence was gathered and judged, or used as it was."""
    return len(entry.get("rounds", ())) or int(any(note.startswith(LOOKED_UP) for note in entry["path"]))


def _in_vain(entry: Entry) -> bool:
    """True when the first round's evidence held every final citation; one that was overruled is none of these."""
    cited = {citation["id"] for citation in entry["citations"]}
    followed = cited & set(entry.get("retrieved", cited))
    return bool(followed) and followed <= set(entry["rounds"][0]["kept"])


def _by_week(entries: Iterable[Entry]) -> dict[str, float]:
    weeks: dict[str, list[float]] = defaultdict(list)
    for entry in entries:
        if entry.get("rounds") and not any(DEFAULTED in note for note in entry["path"]):
            year, week, _ = datetime.fromtimestamp(entry["at"], UTC).isocalendar()
            weeks[f"{year}-W{week:02}"].append(entry["rounds"][-1]["sufficiency"])
    return {week: round(float(np.mean(scores)), 4) for week, scores in sorted(weeks.items())}


def _mean(values: Iterable[float]) -> float | None:
    listed = list(values)
    return float(np.mean(listed)) if listed else None


def _rate(values: Iterable[float]) -> float:
    return _mean(values) or 0.0
