"""What the traces tell: figures for the operator, and one question's way."""

import json

import pytest

from ragc import open_program
from ragc.errors import DataError
from ragc.knowledge.project import Project
from ragc.optimize.report.monitoring import find_trace, open_log, summarise_traces
from ragc.server.feedback import FeedbackLog
from ragc.server.programs import Programs
from tests.optimize.conftest import invoke
from tests.program.test_reviewed import ASKED, review

WEEK = 7 * 86_400


def entry(n, rounds=((0.9, ["a"]),), cites=("a",), **changes):
    return {
        "trace_id": f"{n:016x}", "at": 1_767_225_600 + WEEK * n,  # 1 January 2026, and a week later each
        "question": f"question {n}", "text": "text", "outcome": "answered", "confidence": 0.9, "stopped_by": "done",
        "path": ["generate"], "citations": [{"n": 1, "source": "s", "id": id, "title": "t"} for id in cites],
        "rounds": [{"sufficiency": s, "kept": kept} for s, kept in rounds],
        "steps": [{"name": "search", "output": "3", "scores": {}, "tokens_in": 0, "tokens_out": 0, "ms": 1.0}],
        "usage": {"calls": 2, "tokens_in": 100, "tokens_out": 50, "usd": 0.01, "seconds": 1.0 + n}, **changes,
    }  # fmt: skip


ENTRIES = [
    entry(0),
    entry(1, rounds=((0.3, ["a"]), (0.8, ["a", "b"]))),  # the first evidence held the citation already
    entry(2, rounds=((0.3, ["a"]), (0.7, ["a", "b"])), cites=("b",)),
    entry(3, outcome="clarify", rounds=(), cites=()),
    entry(4, outcome="abstain", stopped_by="rounds", rounds=((0.1, []), (0.2, [])), cites=()),
    entry(5, stopped_by="fallback", rounds=(), path=["unretrieved", "fallback"]),
]


@pytest.fixture
def traces(tmp_path):
    def write(name, entries):
        (tmp_path / name).write_text("".join(json.dumps(e) + "\n" for e in entries))

    write("traces.jsonl", ENTRIES)
    return tmp_path


def test_the_figures_are_those_of_the_traces(traces):
    found = summarise_traces(open_log(traces))
    rates = {
        name: pytest.approx(1 / 6) for name in ("fallback_rate", "clarify_rate", "abstain_rate", "unretrieved_rate")
    }
    assert found.items() >= {
        **rates, "n": 6, "one_round": 0.5, "mean_rounds": pytest.approx(8 / 6),
        "judge_by_week": {"2026-W01": 0.9, "2026-W02": 0.8, "2026-W03": 0.7, "2026-W05": 0.2},
        "mean_calls": 2.0, "mean_tokens": 150.0, "usd": 0.06, "seconds_p50": 3.5, "to_review": 6,
        "false_retry_rate": pytest.approx(1 / 3),
    }.items()  # fmt: skip
    gone = {"degraded": ["not searched: stock (gone)"]}
    lost = entry(6, outcome="failed", stopped_by="fallback", rounds=(), cites=(), **gone)
    with (traces / "traces.jsonl").open("a") as file:
        file.writelines(json.dumps(one) + "\n" for one in (lost, entry(7, **gone)))
    found = summarise_traces(open_log(traces))
    assert (found["failed_rate"], found["degraded_rate"]) == (1 / 8, 2 / 8)


def test_a_trace_is_found_by_the_beginning_of_its_id_when_that_is_enough(traces):
    (traces / "traces.jsonl").rename(traces / "monday.jsonl")
    log = open_log(traces / "monday.jsonl")
    assert find_trace(log, "0000000000000003")["question"] == "question 3"
    for unclear in ("00", "ff"):
        with pytest.raises(DataError):
            find_trace(log, unclear)


def test_a_torn_line_of_the_log_is_named_and_ends_nothing(traces):
    with (traces / "traces.jsonl").open("a") as file:
        file.write("{broken")
    found = summarise_traces(open_log(traces))
    assert (found["n"], found["unread"]) == (6, (f"{traces / 'traces.jsonl'} line 7",))
    for asked in ("", "--review", "0000000000000001"):
        assert invoke("trace", traces, *asked.split()).exit_code == 0


def test_the_command_line_prints_the_figures_the_queue_and_one_question_step_by_step(traces):
    def run(*arguments):
        done = invoke("trace", *arguments)
        assert done.exit_code == 0
        return done.stdout

    stats, show = [str(traces)], [str(traces), "0000000000000001"]
    assert json.loads(run(*stats, "--json"))["n"] == 6
    asked_again = {**ENTRIES[2], "confidence": 0.1}
    with (traces / "traces.jsonl").open("a") as file:
        file.write(json.dumps(asked_again) + "\n")
    queue = json.loads(run(*stats, "--review", "--json"))
    assert [e["question"] for e in queue][:2] == ["question 2", "question 0"] and len(queue) == 6
    assert "question 2" in run(*stats, "--review") and "false_retry_rate" in run(*stats)
    assert "question 1" in run(*show) and "search" in run(*show)
    assert json.loads(run(*show, "--json"))["trace_id"] == "0000000000000001"


def test_what_the_program_writes_is_what_the_figures_read(own_shop):
    program = open_program(own_shop)
    answer = program("How much water does the Merle hold?")
    log = open_log(own_shop)
    assert summarise_traces(log)["n"] == 1
    assert summarise_traces(log)["to_review"] == 0, "the question is labelled"
    program("How long is the guarantee on a Merle?")
    project = Project.open(own_shop)
    (queued,) = FeedbackLog(project).list_queue()
    (listed,) = json.loads(invoke("trace", own_shop, "--review", "--json").stdout)
    assert (
        summarise_traces(log)["to_review"] == 1
        and listed.items() >= {"question": queued["question"], "trace_id": queued["trace_id"]}.items()
    )
    FeedbackLog(project).write_verdict(queued["trace_id"], "skip", by="reviewer")
    assert summarise_traces(log)["to_review"] == len(FeedbackLog(project).list_queue()) == 0
    assert find_trace(log, answer.trace.id)["path"] == list(answer.trace.path)


def test_an_answer_whose_source_changed_is_to_review_for_the_operator_as_on_the_page(own_shop):
    project, program = Project.open(own_shop), open_program(own_shop)
    program(ASKED)
    review(program, project)
    log, file = open_log(own_shop), own_shop / "knowledge" / "product" / "kettles.md"
    assert summarise_traces(log)["to_review"] == 0
    file.write_text(file.read_text().replace("holds 1.7", "has room for 1.7"))
    assert summarise_traces(log)["to_review"] == 0, "no document is indexed for the sake of a figure"
    (queued,) = FeedbackLog(project).list_queue(None, Programs(str(own_shop)).list_changed())
    assert queued["why"] == "its source changed"
    (listed,) = json.loads(invoke("trace", own_shop, "--review", "--json").stdout)
    assert listed["trace_id"] == queued["trace_id"] and summarise_traces(log)["to_review"] == 1
