"""What the log of traces tells of a program in service: rounds, costs, how often it gave up or retried in vain."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from ragc.errors import DataError, RagcError
from ragc.knowledge.index.build import is_indexed
from ragc.knowledge.project import Project
from ragc.notes import NoteKind
from ragc.serve.opening import open_latest
from ragc.serve.trace import LineLog, TraceLog
from ragc.server.feedback import FEEDBACK, FeedbackLog
from ragc.settings import FILE

LOOKED_UP = NoteKind.SEARCHED, NoteKind.FALLBACK
ASK_FIRST = "Ask something first, with [trace] enabled."

Entry = Mapping[str, Any]


def open_log(target: str | Path) -> TraceLog:
    """Open the log of a project folder, or of a file. Raises `DataError` without."""
    place = Path(target)
    if not place.exists():
        raise DataError(f"There is no {target}.", "Name a project folder, or a file of traces.")
    if place.is_file():
        log = TraceLog(place.parent, name=place.name)
    else:
        log = TraceLog(Project.open(place).private if (place / FILE).is_file() else place)
    if not log.traces.path.is_file():
        raise DataError(f"There are no traces at {log.traces.path}.", ASK_FIRST)
    return log


def find_trace(log: TraceLog, trace_id: str) -> Entry:
    """Return the trace whose id begins so; raises `DataError` for none or several."""
    found = [entry for entry in log.traces.entries() if str(entry.get("trace_id", "")).startswith(trace_id)]
    if len(found) != 1:
        many = f"{len(found)} traces begin" if found else "No trace begins"
        raise DataError(f"{many} with {trace_id!r}.", "List them with: ragc trace, or give the whole id.")
    return found[0]


def list_queue(log: TraceLog) -> Sequence[Entry]:
    """Return the traces to review, as the page of a project lists them.

    Beside no project they are each question's last, the least sure first.
    """
    home = log.folder.parent
    if (home / FILE).is_file() and (project := Project.open(home)).private == log.folder:
        whole = {entry["trace_id"]: entry for entry in log.traces.entries()}
        return [whole[one["trace_id"]] for one in FeedbackLog(project).list_queue(None, _find_changed(project))]
    latest = {entry["question"]: entry for entry in log.traces.entries()}
    return sorted(latest.values(), key=lambda entry: (entry["confidence"], entry["at"]))


def _find_changed(project: Project) -> Mapping[str, str]:
    """Return by question why its reviewed answer holds no more; none while documents wait to be indexed."""
    with suppress(RagcError):
        if is_indexed(project):
            runtime = open_latest(project.folder).runtime
            return runtime.reviewed.list_changed(runtime.library) if runtime.reviewed else {}
    return {}


def summarise_traces(log: TraceLog) -> dict[str, Any]:
    """Return the figures of all traces; raises `DataError` without any.

    Rates are shares in [0, 1], None where no question tells. Evidence that was not judged counts as one round, an
    answer without a look-up as none. `judge_by_week` has by ISO week the mean sufficiency of the last round, without
    decisions that could not be read; `false_retry_rate` the share of the retries whose first evidence already held all
    that the answer cites; `unread` the lines of the log that are no trace.
    """
    unread: list[str] = []
    entries = list(log.traces.entries(unread.append))
    if not entries:
        raise DataError(f"{log.traces.path} is empty.", ASK_FIRST)
    rounds = [_count_rounds(entry) for entry in entries]
    usages = [entry["usage"] for entry in entries]
    seconds = [usage["seconds"] for usage in usages]
    outcomes = Counter(entry["outcome"] for entry in entries)
    stops = Counter(entry["stopped_by"] for entry in entries)
    retries = [_retried_in_vain(entry) for entry in entries if len(entry.get("rounds", ())) > 1]
    return {
        "n": len(entries),
        "one_round": float(np.mean([n <= 1 for n in rounds])),
        "mean_rounds": float(np.mean(rounds)),
        "judge_by_week": _average_by_week(entries),
        "fallback_rate": stops["fallback"] / len(entries),
        "failed_rate": outcomes["failed"] / len(entries),
        "degraded_rate": sum(bool(entry.get("degraded")) for entry in entries) / len(entries),
        "false_retry_rate": float(np.mean(retries)) if retries else None,
        "clarify_rate": outcomes["clarify"] / len(entries),
        "abstain_rate": outcomes["abstain"] / len(entries),
        "unretrieved_rate": float(np.mean([NoteKind.UNRETRIEVED() in entry["path"] for entry in entries])),
        "stopped_by": dict(stops),
        "mean_calls": float(np.mean([usage["calls"] for usage in usages])),
        "mean_tokens": float(np.mean([usage["tokens_in"] + usage["tokens_out"] for usage in usages])),
        "usd": round(sum(usage["usd"] for usage in usages), 6),
        "seconds_p50": float(np.percentile(seconds, 50)),
        "seconds_p95": float(np.percentile(seconds, 95)),
        "to_review": len(list_queue(log)),
        **_count_feedback(log),
        "unread": tuple(unread),
    }


def _count_feedback(log: TraceLog) -> dict[str, dict[str, int]]:
    """Count what people said of answers, and how often a version was preferred to another, blind."""
    said = list(LineLog(log.folder / FEEDBACK).entries())
    votes = (
        f"{row['preferred'] or 'neither'} of {' and '.join(sorted(row['versions']))}"
        for row in said
        if "versions" in row
    )
    verdicts = (row["verdict"] for row in said if row["kind"] == "verdict")
    return {"verdicts": dict(Counter(verdicts)), "votes": dict(Counter(votes))}


def _count_rounds(entry: Entry) -> int:
    """Count how often evidence was gathered and judged, or used as it was."""
    return len(entry.get("rounds", ())) or int(any(kind.begins(note) for note in entry["path"] for kind in LOOKED_UP))


def _retried_in_vain(entry: Entry) -> bool:
    """Tell whether the first round held every citation; what was overruled and cited for that is no evidence."""
    cited = {citation["id"] for citation in entry["citations"]}
    followed = cited & set(entry.get("retrieved", cited))
    return bool(followed) and followed <= set(entry["rounds"][0]["kept"])


def _average_by_week(entries: Iterable[Entry]) -> dict[str, float]:
    weeks: dict[str, list[float]] = defaultdict(list)
    for entry in entries:
        if entry.get("rounds") and not any(map(NoteKind.UNREAD.begins, entry["path"])):
            year, week, _ = datetime.fromtimestamp(entry["at"], UTC).isocalendar()
            weeks[f"{year}-W{week:02}"].append(entry["rounds"][-1]["sufficiency"])
    return {week: round(float(np.mean(scores)), 4) for week, scores in sorted(weeks.items())}
