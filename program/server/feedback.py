"""What people say of answers: a log of verdicts and votes, the queue to review, and labelled questions of reviews.

A reviewed question is a row of `reviewed.jsonl` beside the labelled questions. A compile learns from it, unless it
shares a passage or its words with a test question.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import orjson
from filelock import FileLock

from ragc.answer import Answer
from ragc.errors import DataError
from ragc.knowledge.library import Library
from ragc.knowledge.project import Project
from ragc.loop.reviewed import Review, see_sources, write_answer
from ragc.passage import Readers
from ragc.serve.trace import LineLog, LogIndex, TraceLog
from ragc.storage import DiskCache, keep_last, read_json_rows
from ragc.text.facts import spans_boundary, states

Verdict = Literal["right", "wrong", "should_clarify", "should_abstain", "skip", "undo"]
FEEDBACK, ASKERS = "feedback.jsonl", "askers.sqlite"
LABEL = "review-"  # begins the id of a labelled question that a review made, before the trace's
UNDO: Verdict = "undo"  # the verdict that takes the review before back
MOST_BYTES = 100_000_000  # of the file of askers, about: some 500,000 answers
MOST_ASKERS = 10_000  # in memory, where a full disk does not keep them
_ASKED: Mapping[str, list[Any]] = {"history": [], "readers": []}
NO_CHANGE: Mapping[str, str] = {}


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
    by: str = ""
    """Who reviewed it."""


@dataclass(frozen=True, slots=True)
class AskedBy:
    """Who asked for an answer: a digest of the key and the pseudonym of the unit, both of them or neither."""

    key: str
    unit: str
    by_cookie: bool
    """Whether a cookie said so, as every request of a browser does."""
    counts: bool
    """Whether the answer is one of an experiment."""

    def is_judged_by(self, other: AskedBy) -> bool:
        """Tell whether the other is who asked.

        Who did not ask by a cookie may leave the unit out.
        """
        unnamed = not self.unit or not (other.unit or self.by_cookie)
        return self.key == other.key and (unnamed or self.unit == other.unit)


class FeedbackLog:
    """The verdicts and votes of a project, in files of its private folder, and who may give them."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._askers = DiskCache(project.private / ASKERS, MOST_BYTES)
        self._recent: OrderedDict[str, AskedBy] = OrderedDict()
        self._log = LineLog(project.private / FEEDBACK)
        self._said = LogIndex(self._log, ("kind", "trace", "verdict", "corrected", "by"))
        self._traces = LogIndex(
            TraceLog(project.private).traces,
            ("trace_id", "question", "confidence", "at", "readers", "outcome", "version"),
        )

    def note_asker(self, trace: str, asked_by: AskedBy) -> None:
        """Keep who asked for an answer; the oldest are forgotten."""
        keep_last(self._recent, {trace: asked_by}, MOST_ASKERS)
        self._askers.put({trace: orjson.dumps(asked_by)})

    def find_asker(self, trace: str) -> AskedBy | None:
        """Return who asked for an answer, None for one that is not known."""
        kept = self._askers.get([trace]).get(trace)
        return AskedBy(**orjson.loads(kept)) if kept else self._recent.get(trace)

    def write_verdict(self, trace: str, verdict: Verdict, corrected: str = "", by: str = "user") -> None:
        """Write what somebody said of an answer."""
        row = {"kind": "verdict", "trace": trace, "verdict": verdict, "corrected": corrected, "by": by}
        self._log.append({**row, "at": time.time()})

    def write_vote(self, versions: Sequence[str], preferred: str) -> None:
        """Write which of two versions answered better; empty for neither."""
        self._log.append({"kind": "vote", "versions": [*versions], "preferred": preferred, "at": time.time()})

    def list_queue(self, readers: Readers | None = (), changed: Mapping[str, str] = NO_CHANGE) -> list[dict[str, Any]]:
        """Return a few fields of the traces to review.

        Those thumbed down come first, then questions whose reviewed answer holds no more, as `changed` says, then the
        least sure. Of each question that nobody labelled or reviewed it is the trace marked wrong, else the last one.
        Its asker was in no other group than the reviewer is; None is whoever runs the service.
        """
        entries = self._traces.entries()
        asked = {entry["trace_id"]: entry["question"] for entry in entries}
        verdicts = [row for row in self._said.entries() if row["kind"] == "verdict" and row["trace"] in asked]
        judged = {row["trace"]: row["verdict"] for row in verdicts if row["by"] == "reviewer"}
        reviewed = {asked[trace] for trace, verdict in judged.items() if verdict != UNDO}
        last = {asked[row["trace"]]: row for row in verdicts if row["verdict"] != UNDO}
        marked = {row["trace"]: row["corrected"] for row in last.values() if row["verdict"] == "wrong"}
        files = filter(Path.is_file, (self._project.labelled, self._project.reviewed))
        labelled = {str(row.get("question")).strip() for file in files for row in read_json_rows(file) if row}
        done = (reviewed | labelled) - changed.keys()
        readable = _list_readable(entries, readers)
        readable.sort(key=lambda entry: entry["trace_id"] in marked)  # the last of a question stays
        latest = {entry["question"]: entry for entry in readable if entry["question"] not in done}
        ordered = sorted(
            latest.values(),
            key=lambda one: (
                one["trace_id"] not in marked,
                one["question"] not in changed,
                one["confidence"],
                -one["at"],
            ),
        )
        return [
            {
                **one,
                "corrected": marked.get(one["trace_id"], ""),
                "why": changed.get(one["question"], ""),
                "day": datetime.fromtimestamp(one["at"], UTC).date().isoformat(),
            }
            for one in ordered
        ]

    def find_entry(self, trace: str, readers: Readers = ()) -> dict[str, Any] | None:
        """Return all of a trace with its `reviews`, oldest first, or None.

        Its asker was in no other group than the reviewer is. `corrected` is what was last said to be right.
        """
        found = _list_readable((one for one in self._traces.entries() if one["trace_id"] == trace), readers)
        if not found or not (whole := self._traces.read_whole(found[-1])):
            return None
        said = self._list_verdicts(trace)
        reviews = [row for row in said if row["by"] == "reviewer"]
        stands = [row for row in said if row["verdict"] != UNDO][-1:]
        last = {name: stands[0][name] if stands else "" for name in ("corrected", "verdict")}
        return {**_ASKED, **whole, **last, "reviews": reviews}

    def _list_verdicts(self, trace: str) -> list[dict[str, Any]]:
        return [row for row in self._said.entries() if row["kind"] == "verdict" and row["trace"] == trace]

    def write_review(self, entry: Mapping[str, Any], review: ReviewedAnswer, library: Library) -> dict[str, Any]:
        """Write a review, and return the labelled question that it made.

        It takes the place of an earlier one of the answer. It is empty for a review that labels nothing. Raises
        `DataError` for a fact that the passages do not state: no such label could be learned from.
        """
        row, trace, corrected = _label_review(entry, review, library), entry["trace_id"], "; ".join(review.facts)
        with FileLock(self._project.private / "reviews.lock"):
            write_answer(self._project, row, f"{LABEL}{trace}")
            last = [row for row in self._list_verdicts(trace) if row["by"] == "reviewer"][-1:]
            if (review.verdict, corrected) not in [(one["verdict"], one["corrected"]) for one in last]:
                self.write_verdict(trace, review.verdict, corrected, by="reviewer")
        return row


def _list_readable(entries: Iterable[Mapping[str, Any]], readers: Readers | None) -> list[dict[str, Any]]:
    """Return the traces whose asker was in no other group than the reviewer is."""
    whole = ({**_ASKED, **entry} for entry in entries)
    return [entry for entry in whole if readers is None or {*entry["readers"]} <= {*readers}]


def _label_review(entry: Mapping[str, Any], review: ReviewedAnswer, library: Library) -> dict[str, Any]:
    """Return the labelled question that a review makes of a trace."""
    outcome = {"should_clarify": "clarify", "should_abstain": "abstain"}.get(review.verdict, "answered")
    if review.verdict == "right":
        outcome = entry["outcome"]
    if review.verdict in ("skip", UNDO) or outcome == "failed" or (review.verdict == "wrong" and not review.facts):
        return {}
    answered = outcome == "answered"
    if answered:
        _require_stated(review, library, entry.get("text", "") if entry["outcome"] == "answered" else "")
    noted = Review(
        at=datetime.now(UTC).isoformat(timespec="seconds"),
        seconds=round(review.seconds, 1),
        trace=entry["trace_id"],
        version=entry["version"],
        by=review.by,
        seen=see_sources(review.evidence if answered else (), library),
    )
    return {
        "id": f"{LABEL}{entry['trace_id']}",
        "question": entry["question"],
        **{name: entry[name] for name in _ASKED if entry.get(name)},
        "outcome": outcome,
        "tags": ["reviewed"],
        **({"facts": [*review.facts], "evidence": [*review.evidence]} if answered else {}),
        **({"answer": Answer(text=entry.get("text", "")).answer.strip()} if review.verdict == "right" else {}),
        "reviewed": noted.model_dump(mode="json", exclude_defaults=True),
    }


def _require_stated(review: ReviewedAnswer, library: Library, said: str) -> None:
    passages = [passage for id_ in review.evidence if (passage := library.find_passage(id_)) is not None]
    text = "\n\n".join(passage.whole for passage in passages)
    if not review.facts:
        raise DataError("Nothing says what a right answer states.", "Write it in a few words of a passage.")
    if not passages:
        raise DataError("No passage is chosen.", "Choose the passage that states it.")
    for fact in review.facts:
        if review.verdict == "wrong" and states(said, fact):
            what = f"The answer that was called wrong states “{fact}”."
            raise DataError(what, "Write what a right answer states instead, or call it right.")
        if not states(text, fact):
            mend = "Take its words from the passage, or choose another."
            if spans_boundary(text, fact):
                mend = "Take words of one sentence or cell."
            raise DataError(f"The chosen passage does not state “{fact}”.", mend)
