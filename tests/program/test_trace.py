"""The log of traces: whole lines from many writers, put aside when full, told to whoever asks."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest
from staged import Decider, Writer, staged

from program.serve.trace import LineLog

WRITE = """
import sys
from pathlib import Path
from program.trace import LineLog
log = LineLog(Path(sys.argv[1]), largest=int(sys.argv[3]), files=50)
for n in range(200):
    log.append({"who": sys.argv[2], "n": n, "fill": "x" * 100})
"""


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
    assert kept == list(range(kept[0], 30))
    assert kept[0] > 0
    assert {p.name for p in tmp_path.iterdir()} - {"log.jsonl.lock"} <= {"log.jsonl", "log.jsonl.1", "log.jsonl.2"}


def test_a_line_that_is_no_entry_is_skipped_and_its_place_told(tmp_path):
    (tmp_path / "log.jsonl").write_bytes(b'{"n": 1}\nhalf a li{"n": 2}\n[3]\n\xff\n{"n": 4}\n{"n')
    unread: list[str] = []
    assert [entry["n"] for entry in LineLog(tmp_path / "log.jsonl").entries(unread.append)] == [1, 4]
    assert [place.rpartition(" ")[2] for place in unread] == ["2", "3", "4", "6"]


def test_a_trace_tells_every_step_with_its_scores_tokens_and_model(tmp_path):
    program = staged(log=tmp_path)
    answer = program("What is it?")
    (entry,) = program.runtime.log.traces.entries()
    assert entry["trace_id"] == answer.trace.id
    assert entry["path"] == list(answer.trace.path)
    by_name = {step["name"]: step for step in entry["steps"]}
    assert by_name["judge.sufficiency"]["scores"] == {"sufficient": 0.9}
    assert by_name["classifier.route"]["scores"]["route"] == 0.9
    assert by_name["generator.answer"]["tokens_in"] == 10
    assert by_name["generator.answer"]["model"] == "staged/writer"
    assert by_name["search"]["model"] == ""
    assert all(len(step["inputs"]) == 16 for step in entry["steps"])
    counts = {"relevance": 1.0, "completeness": 1.0, "freshness": 1.0}
    assert entry["rounds"] == [{"sufficiency": 0.9, "kept": list(answer.retrieved), **counts}]


def test_the_path_reads_as_a_sentence_of_what_happened():
    path = str(staged(Decider("complex"))("What is it?").trace)
    assert path == ("classify->complex[shelf] > search(2) > judge .90 > generate > ground 1/1 > responsive .90")


def test_the_same_inputs_have_the_same_digest_and_others_another():
    program = staged()
    first, again, other = (program(question).trace.steps for question in ("What?", "What?", "Who?"))
    assert [step.inputs for step in first] == [step.inputs for step in again]
    assert first[0].inputs != other[0].inputs


def test_an_answer_of_little_confidence_is_put_in_the_review_queue(tmp_path):
    program = staged(Decider(responsive=0.6), log=tmp_path, review_below=0.7)
    answer = program("What is it?")
    (entry,) = program.runtime.log.review.entries()
    assert (entry["trace_id"], entry["question"]) == (answer.trace.id, "What is it?")
    assert not Path(tmp_path / "audit.jsonl").exists()


def test_a_sure_answer_and_an_abstention_are_not_for_review(tmp_path):
    staged(log=tmp_path, review_below=0.7)("What is it?")
    staged(Decider(responsive=0.1), log=tmp_path, review_below=0.7)("What is it?")
    assert not Path(tmp_path / "review.jsonl").exists()


def test_an_answer_without_a_look_up_is_put_in_the_audit_log(tmp_path):
    program = staged(Decider("direct"), log=tmp_path)
    answer = program("What is it?")
    assert "unretrieved" in answer.trace.path
    assert [entry["trace_id"] for entry in program.runtime.log.audit.entries()] == [answer.trace.id]


def blocked(folder: Path) -> Path:
    """A folder in which no trace can be written, as its file's name is taken."""
    (folder / "traces.jsonl").mkdir(parents=True)
    return folder


def test_an_answer_whose_trace_cannot_be_written_is_given_all_the_same_with_one_warning(tmp_path, caplog):
    program = staged(log=blocked(tmp_path / "log"))

    async def last():
        return [event async for event in program.stream("What is it?")][-1]

    answers = [program("What is it?"), asyncio.run(program.aask("What is it?")), asyncio.run(last())]
    assert {answer.text for answer in answers} == {"What is it? is 42. [1]"}
    (warning,) = [record.getMessage() for record in caplog.records if record.name == "ragc.trace"]
    assert "cannot be written" in warning and str(tmp_path) in warning


def test_a_folder_of_traces_that_cannot_be_made_takes_no_answer_along(tmp_path):
    (tmp_path / "file").write_text("")
    assert staged(log=tmp_path / "file" / "log")("What is it?").text


def test_a_reply_that_is_no_text_takes_no_answer_along(tmp_path):
    program = staged(writer=Writer(answer="Half a letter: \ud83d. [1]"), log=tmp_path)
    assert program("What is it?").citations
