"""What is kept of finished questions: the log of traces, its review queue, and OpenTelemetry spans."""

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragc import open_program
from ragc.answer import Answer, Outcome, Step, Trace, Usage, new_trace_id
from ragc.serve.trace import LineLog, LogIndex, TraceLog, emit_span
from ragc.text.history import Asked
from tests.conftest import add_toml

WRITE = """
import sys
from pathlib import Path
from tests.conftest import add_toml
from ragc.serve.trace import LineLog
log = LineLog(Path(sys.argv[1]), largest=int(sys.argv[3]), files=50)
for n in range(200):
    log.append({"who": sys.argv[2], "n": n, "fill": "x" * 100})
"""
STEPS = (
    Step("search", "d1", "3 candidates", 2.0, began=1000.0),
    Step("judge.sufficiency", "d2", "0.900", 3.0, 0, 0, {"sufficient": 0.9}, 1000.1, "local/reader"),
    Step("generator.answer", "d3", "text=Oslo", 4.0, 10, 5, {}, 1000.2, "openai/writer"),
)


def answer(*steps, path=("search(2)", "ask: answered"), **changes):
    usage = Usage(calls=1, tokens_in=10, tokens_out=5, seconds=0.5)
    whole = {"confidence": 0.9, "trace": Trace(new_trace_id(), path, steps or STEPS), "usage": usage, **changes}
    return Answer({"text": "Oslo. [1]", "outcome": Outcome.ANSWERED, **whole})


@pytest.mark.parametrize("largest", [10_000_000, 5_000])
def test_lines_of_several_processes_are_whole_and_none_is_lost(tmp_path, largest):
    path = tmp_path / "deep" / "log.jsonl"
    writers = [subprocess.Popen([sys.executable, "-c", WRITE, str(path), str(w), str(largest)]) for w in range(3)]
    assert [writer.wait(60) for writer in writers] == [0, 0, 0]
    found = [(entry["who"], entry["n"]) for entry in LineLog(path, files=50).entries()]
    assert sorted(found) == sorted((str(w), n) for w in range(3) for n in range(200))


def test_a_full_file_is_put_aside_and_the_oldest_is_dropped(tmp_path):
    log = LineLog(tmp_path / "log.jsonl", largest=100, files=2)
    for n in range(30):
        log.append({"n": n, "fill": "x" * 40})
    kept = [entry["n"] for entry in log.entries()]
    assert kept == list(range(kept[0], 30)) and kept[0] > 0
    assert {p.name for p in tmp_path.glob("log.*")} <= {"log.jsonl.lock", "log.jsonl", "log.jsonl.1", "log.jsonl.2"}


def test_a_trace_tells_every_step_with_its_scores_tokens_and_model(tmp_path):
    log, told = TraceLog(tmp_path), answer()
    log.write_answer(told, Asked("What is it?"), "full")
    entry, *_ = log.traces.entries()
    assert (entry["trace_id"], entry["question"], entry["preset"]) == (told.trace.id, "What is it?", "full")
    assert entry["path"] == ["search(2)", "ask: answered"]
    search, judged, written = entry["steps"]
    assert (search["model"], judged["scores"]) == ("", {"sufficient": 0.9})
    assert (written["tokens_in"], written["model"], written["inputs"]) == (10, "openai/writer", "d3")


def test_a_log_that_cannot_be_written_is_told_in_one_warning_and_raises_nothing(tmp_path, caplog):
    (tmp_path / "traces.jsonl").mkdir()
    log = TraceLog(tmp_path)
    for _ in range(3):
        log.write_answer(answer(), Asked("What is it?"), "")
    (warning,) = [record.getMessage() for record in caplog.records if record.name == "ragc.trace"]
    assert "cannot be written" in warning and str(tmp_path) in warning
    (tmp_path / "file").write_text("")
    TraceLog(tmp_path / "file" / "log").write_answer(answer(), Asked("What is it?"), "")
    half_a_letter = answer(text="\ud83d")
    TraceLog(tmp_path / "other").write_answer(half_a_letter, Asked("What is it?"), "")


def test_a_projects_questions_are_traced_unless_that_is_switched_off(own_shop, spans):
    told = open_program(own_shop)("How much water does the Merle hold?")
    (entry,) = TraceLog(own_shop / ".ragc").traces.entries()
    assert entry["trace_id"] == told.trace.id and entry["preset"] == "full"
    assert [s.attributes["ragc.trace_id"] for s in spans() if "ragc.trace_id" in s.attributes] == [told.trace.id]
    open_program(add_toml(own_shop, "[trace]\nenabled = false"))("How much water does the Merle hold?")
    assert len(list(TraceLog(own_shop / ".ragc").traces.entries())) == 1


def test_a_question_is_a_span_under_the_callers_own_with_what_it_came_to_and_no_text(spans):
    from opentelemetry import trace

    told = answer()
    with trace.get_tracer("caller").start_as_current_span("request") as outer:
        emit_span(told)
    emit_span(Answer(answer(), outcome=Outcome.FAILED, degraded=("not searched: stock (gone)",)))
    whole, _, failed = spans()
    assert whole.attributes["gen_ai.operation.name"] == "invoke_workflow"
    assert whole.attributes["gen_ai.agent.name"] == (told.version or "ragc")
    assert whole.attributes["ragc.trace_id"] == told.trace.id
    assert whole.attributes["gen_ai.usage.input_tokens"] == 10
    assert whole.parent.span_id == outer.get_span_context().span_id
    assert (whole.status.is_unset, failed.status.description) == (True, "not searched: stock (gone)")
    assert not any(text in str(v) for text in ("Oslo", "the text") for v in whole.attributes.values())


def test_how_a_follow_up_reads_is_in_a_span_only_where_texts_are(spans):
    told = answer(path=("follows on: my card is lost", "search(1)"))
    for texts in (False, True):
        emit_span(told, texts=texts)
    paths = [span.attributes["ragc.path"] for span in spans() if "ragc.path" in span.attributes]
    assert paths == ["follows on > search(1)", "follows on: my card is lost > search(1)"]


def test_texts_are_in_the_spans_only_where_the_project_wants_them(own_shop, spans):
    (own_shop / "ragc.toml").write_text((own_shop / "ragc.toml").read_text() + "\n[trace]\ntexts = true\n")
    told = open_program(own_shop)("How much water does the Merle hold?")
    (whole,) = spans()
    assert (whole.attributes["input.value"], whole.attributes["output.value"])[1] == told.text


@given(st.lists(st.tuples(st.integers(1, 9), st.sampled_from(["", "torn", "[]"])), max_size=12))
def test_an_index_of_a_log_holds_its_entries_through_turns_of_files_and_reads_none_twice(steps):
    with tempfile.TemporaryDirectory() as folder:
        log = LineLog(Path(folder) / "log.jsonl", largest=400, files=3)
        index, n = LogIndex(log, ("n", "text")), 0
        for more, amiss in steps:
            for _ in range(more):
                n += 1
                log.append({"n": n, "text": "x" * (n % 7), "rest": [n]})
            if amiss:
                with log.path.open("a") as file:
                    file.write(amiss)
            shown = index.entries()
            assert [(one["n"], one["text"]) for one in shown] == [(one["n"], one["text"]) for one in log.entries()]
            assert [index.read_whole(one) for one in shown] == [*log.entries()]
        for path in filter(Path.is_file, log.paths):
            whole = path.read_bytes()
            path.write_bytes(whole[:64] + b"#" * (len(whole) - 64))  # what was read once is not read again
        assert [one["n"] for one in index.entries()] == [one["n"] for one in shown] if steps else True
