"""The entry of the log made of an answer."""

from __future__ import annotations

import logging
import time
from dataclasses import asdict

import orjson

from program.answer import Answer, Outcome
from program.trace import TraceLog

UNRETRIEVED = "unretrieved"
_LOG = logging.getLogger("ragc.trace")


def log(answer: Answer, question: str, preset: str, to: TraceLog) -> None:
    """Writes the answer's line, and one more for the reviewer or the auditor when it is theirs.

    An answer is worth more than its trace: where nothing can be written a warning says so, once for each log.
    """
    try:
        _write(answer, question, preset, to)
    except (OSError, orjson.JSONEncodeError) as error:
        if not to.unwritable.is_set():
            to.unwritable.set()
            _LOG.warning("Traces cannot be written to %s (%s): answers go on without them.", to.folder, error)


def _write(answer: Answer, question: str, preset: str, to: TraceLog) -> None:
    entry = {
        **answer.as_dict(),
        "question": question,
        "at": time.time(),
        "preset": preset,
        "route": answer.route,
        "sources": answer.sources,
        "retrieved": answer.retrieved,
        "rounds": [asdict(one) for one in answer.rounds],
        "steps": [step.as_dict() for step in answer.trace.steps],
    }
    to.traces.append(entry)
    short = {name: entry[name] for name in ("trace_id", "at", "question", "text", "confidence", "path", "version")}
    if answer.outcome is Outcome.ANSWERED and answer.confidence < to.review_below:
        to.review.append(short)
    if UNRETRIEVED in answer.trace.path:
        to.audit.append(short)
