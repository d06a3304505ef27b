"""What people say of answers: a log of verdicts and votes, the queue to review, and labelled questions of reviews.

A reviewed question is a row of `reviewed.jsonl` beside the labelled questions. A compile learns from it, unless it
shares a passage or its words with a test question.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from program.errors import DataError
from program.knowledge.library import Library
from program.knowledge.project import Project
from program.passage import Readers
from program.serve.trace import LineLog, TraceLog
from program.storage import append_row, read_json_rows
from program.text.facts import spans_boundary, states

Verdict = Literal["right", "wrong", "should_clarify", "should_abstain", "skip"]
FEEDBACK = "feedback.jsonl"
_ASKED: Mapping[str, list[Any]] = {"history": [], "readers": []}


@dataclass(frozen=True, slots=True)
class ReviewedAnswer:
    """What a reviewer says of one answer."""

    verdict: Verdict
    facts: tuple[str, ...] = ()
    """What a right answer states, in words of the evidence."""
    evidence: tuple[str, ...] = ()
    """The ids of the passages that state it."""
    seconds: float = 0.0
    """The time that the reviewer took."""


class FeedbackLog:
    """The verdicts and votes of a project, in a file of its private folder."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._log = LineLog(project.private / FEEDBACK)
        self._traces = TraceLog(project.private).traces

    def write_verdict(self, trace: str, verdict: Verdict, corrected: str = "", by: str = "user") -> None:
        """Write what somebody said of an answer."""
        row = {"kind": "verdict", "trace": trace, "verdict": verdict, "corrected": corrected, "by": by}
        self._log.append({**row, "at": time.time()})

    def write_vote(self, versions: Sequence[str], preferred: str) -> None:
        """Write which of two versions answered better; empty for neither."""
        self._log.append({"kind": "vote", "versions": [*versions], "preferred": preferred, "at": time.time()})

    def list_queue(self, readers: Readers = ()) -> list[dict[str, Any]]:
        """Return the traces to review: those thumbed down first, then the least sure.

        Of each question that nobody labelled or reviewed it is the trace marked wrong, else the last one. Its asker was
        in no other group than the reviewer is.
        """
        entries = [*self._traces.entries()]
        asked = {entry["trace_id"]: entry["question"] for entry in entries}
        rows = [row for row in self._log.entries() if row.get("trace") in asked]
        verdicts = [row for row in rows if row["kind"] == "verdict"]
        reviewed = {asked[row["trace"]] for row in verdicts if row["by"] == "reviewer"}
        last = {asked[row["trace"]]: row for row in verdicts}
        marked = {row["trace"]: row["corrected"] for row in last.values() if row["verdict"] == "wrong"}
        done = reviewed | self._list_labelled()
        readable = _list_readable(entries, readers)
        readable.sort(key=lambda entry: entry["trace_id"] in marked)  # the last of a question stays
        latest = {entry["question"]: entry for entry in readable if entry["question"] not in done}
        ordered = sorted(
            latest.values(), key=lambda one: (one["trace_id"] not in marked, one["confidence"], -one["at"])
        )
        return [{**entry, "corrected": marked.get(entry["trace_id"], "")} for entry in ordered]

    def find_review(self, trace: str, readers: Readers = ()) -> tuple[str, str] | None:
        """Return the last verdict of a trace's reviews, and its question; else None."""
        rows = [row for row in self._log.entries() if row.get("trace") == trace and row["by"] == "reviewer"]
        readable = _list_readable(self._traces.entries(), readers) if rows else []
        asked = [entry["question"] for entry in readable if entry["trace_id"] == trace]
        return (rows[-1]["verdict"], asked[-1]) if asked else None

    def _list_labelled(self) -> set[str]:
        files = filter(Path.is_file, (self._project.labelled, self._project.reviewed))
        return {str(row.get("question")).strip() for file in files for row in read_json_rows(file) if row}

    def write_review(self, entry: Mapping[str, Any], review: ReviewedAnswer, library: Library) -> dict[str, Any]:
        """Write a review, and return the labelled question that it made.

        It is empty for a review that labels nothing. Raises `DataError` for a fact that the passages do not state: no
        such label could be learned from.
        """
        row = _label_review(entry, review, library)
        if row:
            append_row(self._project.reviewed, row)
        self.write_verdict(entry["trace_id"], review.verdict, "; ".join(review.facts), by="reviewer")
        return row


def _list_readable(entries: Iterable[Mapping[str, Any]], readers: Readers) -> list[dict[str, Any]]:
    """Return the traces whose asker was in no other group than the reviewer is."""
    whole = ({**_ASKED, **entry} for entry in entries)
    return [entry for entry in whole if {*entry["readers"]} <= {*readers}]


def _label_review(entry: Mapping[str, Any], review: ReviewedAnswer, library: Library) -> dict[str, Any]:
    """Return the labelled question that a review makes of a trace."""
    outcome = {"should_clarify": "clarify", "should_abstain": "abstain"}.get(review.verdict, "answered")
    if review.verdict == "right":
        outcome = entry["outcome"]
    if review.verdict == "skip" or outcome == "failed" or (review.verdict == "wrong" and not review.facts):
        return {}
    row = {
        "id": f"review-{entry['trace_id']}",
        "question": entry["question"],
        **{name: entry[name] for name in _ASKED if entry.get(name)},
        "outcome": outcome,
        "tags": ["reviewed"],
        "reviewed": {
            "at": datetime.now(UTC).isoformat(timespec="seconds"),
            "seconds": round(review.seconds, 1),
            "trace": entry["trace_id"],
            "version": entry["version"],
        },
    }
    if outcome != "answered":
        return row
    _require_stated(review, library)
    return {**row, "facts": [*review.facts], "evidence": [*review.evidence]}


def _require_stated(review: ReviewedAnswer, library: Library) -> None:
    passages = [passage for id_ in review.evidence if (passage := library.find_passage(id_)) is not None]
    text = "\n\n".join(f"{passage.title}\n\n{passage.text}" for passage in passages)
    if not review.facts:
        raise DataError("Nothing says what a right answer states.", "Write it in a few words of a passage.")
    if not passages:
        raise DataError("No passage is chosen.", "Choose the passage that states it.")
    for fact in review.facts:
        if not states(text, fact):
            mend = "Take its words from the passage, or choose another."
            if spans_boundary(text, fact):
                mend = "Take words of one sentence or cell."
            raise DataError(f"The chosen passage does not state “{fact}”.", mend)
