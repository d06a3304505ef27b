"""An experiment as a service sees it: sticky arms, a log of each answer that names no user, and a halt."""

import asyncio
import multiprocessing
import os
import shutil
import signal
import sys
import time
import unicodedata
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragc import Experiment
from ragc.errors import ExperimentError, IntegrityError
from ragc.knowledge.index.build import index_project
from ragc.knowledge.project import Project
from ragc.optimize.abtest.online import look_at_experiment, report_experiment, start_experiment, stop_experiment
from ragc.optimize.registry.aliases import promote_version
from ragc.serve.experiment import measure_answer
from ragc.serve.experiment_store import (
    DESIGN,
    MEASURED,
    ExposureLog,
    choose_arm,
    is_included,
    log_files,
    pseudonymize_unit,
    read_design,
)
from ragc.storage import read_json_rows
from tests.experiments import KEY, NAME, Echo, begin

fork = multiprocessing.get_context("fork") if sys.platform != "win32" else None
needs_fork = pytest.mark.skipif(fork is None, reason="processes are forked and killed")
weights = st.lists(st.sampled_from([0.5, 1, 10, 33.3, 90]), min_size=2, max_size=5).map(tuple)
BAD = (
    ("a\nb", 1),
    ("../../x", 1),
    ("1st", 1),
    ("résolu", 1),
    ("x" * 41, 1),
    ("resolved ", 1),
    ("ok", 1e10),
    ("ok", float("nan")),
)
units = st.text(st.characters(), min_size=1)  # whatever a caller may hold, lone surrogates included


@pytest.fixture(autouse=True)
def key(monkeypatch):
    monkeypatch.setenv("RAGC_UNIT_KEY", KEY)


def opened(root, programs=None):
    """The experiment, its arms answered by programs that pass for their versions."""
    programs = programs or {n: Echo(n) for n in "AB"}
    for arm in read_design(NAME, root)[1].arms if (folder(root) / DESIGN).exists() else ():
        if arm.name in programs:
            programs[arm.name].version_digest = arm.digest
    return Experiment.open(NAME, artifacts=root, programs=programs)


def folder(root):
    return root / "experiments" / NAME


def rows(root, kind=""):
    return [row for row in read_logs(folder(root)) if row["kind"] == kind or not kind]


def test_a_user_gets_the_arm_of_the_hash_every_time_and_it_says_which_and_why(tmp_path):
    begin(tmp_path, weights=(70, 30))
    exp = opened(tmp_path)
    for n in (*range(30), *range(30)):
        with exp.assign(unit=f"user-{n}") as arm:
            answer = arm.program("why?")
        assert (arm.name, arm.why) == ("AB"[choose_arm(NAME, (70, 30), f"user-{n}")], "assigned")
        assert answer.text == f"{arm.name}: why?"
        assert arm.version.startswith(f"support@v{1 + 'AB'.index(arm.name)}-")
    assert Counter(row["kind"] for row in rows(tmp_path)) == {"opened": 1, "exposure": 60, "measured": 60}
    assert len({row["unit"] for row in rows(tmp_path, "exposure")}) == 30


def test_an_exposure_is_written_before_the_answer_and_a_failure_counts_and_nobody_is_named(tmp_path):
    begin(tmp_path)
    seen = []
    exp = opened(tmp_path, {n: Echo(n, then=lambda: seen.append(len(rows(tmp_path, "exposure")))) for n in "AB"})
    with exp.assign(unit="ann@example.org"):
        pass
    assert rows(tmp_path) == []

    async def ask():
        with exp.assign(unit="ann@example.org") as arm:
            answer = await arm.program.aask("my card is lost")
            *events, last = [event async for event in arm.program.stream("two")]
        assert [row["trace"] for row in rows(tmp_path, "measured")] == [answer.trace.id, last.trace.id]
        assert events == ["a token"]

    asyncio.run(ask())
    assert seen == [1, 2]
    failing = opened(tmp_path, {n: Echo(n, then=lambda: 1 / 0) for n in "AB"})
    with pytest.raises(ZeroDivisionError), failing.assign(unit="ann@example.org") as arm:
        arm.program("my card is lost")
    assert rows(tmp_path, "measured")[-1]["values"] == {"error": 1}
    with pytest.raises(ExperimentError, match="not a number"):
        exp.record("a1", outcome={"comment": "call me, ann"})
    (log,) = folder(tmp_path).glob("exposures-*.jsonl")
    assert not any(word in log.read_text() for word in ("ann", "example", "card", "lost", KEY))


def test_an_outcome_is_recorded_by_answer_by_trace_or_by_request_now_or_later_and_refused_without_a_name(tmp_path):
    begin(tmp_path)
    exp, kept = opened(tmp_path), []
    for n in range(3):
        with exp.assign(unit=f"user-{n}") as arm:
            answer = arm.program("why?")
            kept.append((answer, answer.trace.id, arm.request_id)[n])
    later = opened(tmp_path)
    for which in kept:
        later.record(which, outcome={"resolved": True})
    found, before = report_experiment(NAME, tmp_path), rows(tmp_path)
    assert (sum(arm.measured for arm in found.arms), found.accounting.unmatched) == (3, 0)
    assert all(arm.mean in {1.0, None} for arm in found.arms)
    for name in ("", "  ", None, 7):
        with pytest.raises(ExperimentError, match="has no name"):
            exp.record(answer, outcome={name: 1})
    for name, value in (*((name, 1) for name in measure_answer(answer, 1.0)), *BAD):
        with pytest.raises(ExperimentError):
            exp.record(answer, outcome={name: value})
    assert rows(tmp_path) == before and {*measure_answer(answer, 1.0)} == MEASURED


def test_rows_that_somebody_wrote_past_the_service_change_no_measured_figure(tmp_path):
    begin(tmp_path, guards=["error<=0"])
    exp = opened(tmp_path)
    for n in range(40):
        with exp.assign(unit=f"user-{n}") as arm:
            answer = arm.program("why?")
            for name, value in (("error", 1.0), ("latency_s", 99.0), *BAD):
                exp._write_row("outcome", request=answer.trace.id, values={name: value})
    found = look_at_experiment(NAME, tmp_path)
    assert found.state.running and {*found.measures} == MEASURED and found.accounting.unusable == 40 * (2 + len(BAD))
    assert {*found.measures["error"].values()} == {0.0} and {*found.measures["latency_s"].values()} == {0.1}


def test_a_mistake_of_record_is_no_error_of_the_arm_that_answered(tmp_path):
    begin(tmp_path)
    exp = opened(tmp_path)
    for mistake in ({"answer": "no-such-request"}, {"answer": {"team": "billing"}}, {"outcome": {"resolved": "yes"}}):
        with pytest.raises(ExperimentError), exp.assign(unit="ann") as arm:
            exp.record(**{"answer": arm.program("why?"), "outcome": {"resolved": 1}, **mistake})
    assert [row["values"]["error"] for row in rows(tmp_path, "measured")] == [0.0] * 3


def test_an_outcome_on_which_no_verdict_rests_is_told_once(tmp_path, caplog):
    begin(tmp_path, guards=["cost<=3"])
    exp = opened(tmp_path)
    with exp.assign(unit="user-1") as arm:
        answer = arm.program("why?")
    for name in ("resolved", "cost", "Resolved", "Resolved"):
        exp.record(answer, outcome={name: 1})
    assert [record.args[1] for record in caplog.records] == ["Resolved"]


def test_those_not_included_get_the_control_and_leave_no_trace(tmp_path):
    begin(tmp_path, include=0.25)
    exp, whys = opened(tmp_path), Counter()
    for n in range(80):
        with exp.assign(unit=f"user-{n}") as arm:
            exp.record(arm.program("why?"), outcome={"resolved": True})
        whys[arm.why] += 1
        assert arm.why == "assigned" or (arm.name, arm.request_id) == ("A", "")
    assert 5 < whys["assigned"] < 40
    assert len(rows(tmp_path, "exposure")) == len(rows(tmp_path, "outcome")) == whys["assigned"]


def test_after_a_stop_every_process_serves_the_control_within_seconds_and_logs_no_more(tmp_path):
    begin(tmp_path)
    exp = opened(tmp_path)
    with exp.assign(unit="ann") as arm:
        late = arm.program("why?")
    stop_experiment(NAME, "enough", tmp_path)
    before = len(rows(tmp_path))
    with exp.assign(unit="bob") as arm:
        assert (arm.name, arm.why) == ("A", "stopped: enough")
        arm.program("why?")
    assert len(rows(tmp_path)) == before
    exp.record(late, outcome={"resolved": True})
    assert len(rows(tmp_path)) == before + 1


def test_a_log_that_cannot_be_written_costs_nobody_an_answer_and_the_control_gives_it(tmp_path):
    begin(tmp_path)
    exp = opened(tmp_path)
    shutil.rmtree(folder(tmp_path))
    for n in range(8):
        with exp.assign(unit=f"user-{n}") as arm:
            answer = arm.program("why?")
            exp.record(answer, outcome={"resolved": True})
        assert (answer.text, arm.request_id) == ("A: why?", "")


def serve_users(exp, users, arms="AB"):
    """One question of each user whose arm is one of `arms`."""
    for n in range(users):
        with exp.assign(unit=f"user-{n}") as arm:
            if arm.name in arms:
                arm.program("why?")


def test_an_experiment_ends_when_it_has_seen_its_units_or_its_arms_are_of_the_wrong_size(tmp_path):
    begin(tmp_path / "one", max_units=20)
    exp = opened(tmp_path / "one")
    serve_users(exp, 19)
    assert look_at_experiment(NAME, tmp_path / "one").state.running
    serve_users(exp, 20)
    seen = look_at_experiment(NAME, tmp_path / "one")
    assert (seen.units, seen.state.status, seen.state.reason) == (20, "complete", "20 units were seen")
    begin(tmp_path / "two")
    serve_users(opened(tmp_path / "two"), 100, arms="A")
    reason = look_at_experiment(NAME, tmp_path / "two").state.reason
    assert reason.startswith("sample ratio mismatch: ") and ", 0 instead of " in reason


def _serve(exp, number, users):
    for n in range(users):
        with exp.assign(unit=f"user-{n % 60}") as arm:
            exp.record(arm.program(f"{number}"), outcome={"resolved": n % 2 == 0})


@needs_fork
def test_processes_forked_from_one_experiment_agree_on_every_user_and_log_to_a_file_each(tmp_path):
    begin(tmp_path)
    exp = opened(tmp_path)
    with exp.assign(unit="user-0") as arm:
        arm.program("before the fork")
    children = [fork.Process(target=_serve, args=(exp, n, 90)) for n in range(4)]
    for child in children:
        child.start()
    for child in children:
        child.join()
    assert [child.exitcode for child in children] == [0] * 4
    found = report_experiment(NAME, tmp_path)
    assert (found.files, sum(arm.units for arm in found.arms)) == (5, 60)
    assert found.accounting.crossed == found.accounting.unusable == 0
    assert found.accounting.rows == 3 + 4 * (1 + 90 * 3)


def test_real_versions_are_loaded_and_asked_by_their_arms(compiled):
    artifacts = compiled / "artifacts"
    start_experiment("real", {"A": "shop@v1", "B": "shop@v2"}, primary="resolved", max_units=100, artifacts=artifacts)
    exp = Experiment.open("real", artifacts=artifacts)
    versions = {}
    for n in range(8):
        with exp.assign(unit=f"user-{n}") as arm:
            versions[arm.name] = arm.program("How much water does the Merle hold?").version
    assert versions == {"A": "shop@v1", "B": "shop@v2"}
    assert not any(program.current.runtime.models.write.cache for program in exp.programs.values())


def test_an_arm_answers_over_the_index_as_it_is_now_by_the_version_that_it_began_with(compiled, tmp_path):
    project = Path(shutil.copytree(compiled, tmp_path / "shop"))
    artifacts, file = project / "artifacts", project / "knowledge" / "billing" / "refunds.md"
    start_experiment("live", {"A": "shop@v1", "B": "shop@v2"}, primary="resolved", max_units=100, artifacts=artifacts)
    promote_version("shop@v1", "production", root=artifacts)
    exp = Experiment.open("live", artifacts=artifacts)

    def ask_arms():
        found = {}
        for n in range(8):
            with exp.assign(unit=f"user-{n}") as arm:
                answer = arm.program("What do companies pay to return a kettle?")
                found[arm.name] = answer.version, [fee for fee in ("GBP 5", "GBP 7") if fee in answer.text]
        return found

    assert ask_arms() == {"A": ("shop@v1", ["GBP 5"]), "B": ("shop@v2", ["GBP 5"])}
    file.write_text(file.read_text().replace("GBP 5", "GBP 7"))
    index_project(Project.open(project))
    promote_version("shop@v2", "production", root=artifacts)  # which no arm follows
    assert ask_arms() == {"A": ("shop@v1", ["GBP 7"]), "B": ("shop@v2", ["GBP 7"])}


def test_an_experiment_that_is_not_there_or_was_changed_or_has_no_key_is_refused(tmp_path, monkeypatch):
    with pytest.raises(ExperimentError, match="ragc experiment start"):
        opened(tmp_path)
    begin(tmp_path)
    with pytest.raises(ExperimentError, match="no arm C"):
        opened(tmp_path, {"C": Echo("C")})
    with pytest.raises(ExperimentError, match="empty"), opened(tmp_path).assign(unit=""):
        pass
    for key in ("", "short"):
        with monkeypatch.context() as patch, pytest.raises(ExperimentError, match=r"RAGC_UNIT_KEY .*openssl rand"):
            patch.setenv("RAGC_UNIT_KEY", key)
            opened(tmp_path)
    path = folder(tmp_path) / DESIGN
    sound = path.read_bytes()
    path.write_bytes(sound.replace(b'"primary": "resolved"', b'"primary": "kept"'))
    with pytest.raises(IntegrityError, match="changed after the experiment began"):
        opened(tmp_path)
    manifest = next((tmp_path / "support" / "versions").glob("v2-*")) / "manifest.json"
    manifest.write_bytes(manifest.read_bytes() + b"\n")
    path.write_bytes(sound)
    with pytest.raises(IntegrityError, match="Arm B began as support@v2"):
        opened(tmp_path, {"A": Echo("A")})


def test_golden_units_are_put_in_the_arms_that_sha256sum_says():
    # printf 'exp-2026-11-refunds\0arm\0user-1' | sha256sum | cut -c1-16
    users = ("user-1", "user-2", "üñí")
    assert [choose_arm("exp-2026-11-refunds", (90, 10), unit) for unit in users] == [0, 0, 1]
    assert [is_included("exp-2026-11-refunds", 0.5, unit) for unit in users] == [False, True, False]
    assert all(is_included("exp-2026-11-refunds", 1.0, unit) for unit in users)


@given(units, weights, st.integers(2, 9))
def test_an_arm_depends_on_nothing_but_experiment_unit_in_any_spelling_and_the_ratios_of_weights(unit, shares, times):
    spelt = {unicodedata.normalize(form, unit) for form in ("NFC", "NFD")} | {unit}
    first = choose_arm("exp-a", shares, unit)
    assert 0 <= first < len(shares)
    assert {choose_arm("exp-a", [n * weight for weight in shares], one) for one in spelt for n in (1, times)} == {first}
    assert len({is_included("exp-a", 0.5, one) for one in spelt}) == 1
    assert len({pseudonymize_unit(KEY.encode(), "exp-a", one) for one in spelt}) == 1


def test_a_user_whose_name_is_typed_in_two_spellings_is_one_user_of_one_arm(tmp_path):
    begin(tmp_path, max_units=100)
    exp = opened(tmp_path)
    for n in range(20):
        for form in ("NFC", "NFD"):
            with exp.assign(unicodedata.normalize(form, f"José-Ngô-{n}")) as arm:
                exp.record(arm.program("why?"), outcome={"resolved": True})
    seen = look_at_experiment(NAME, tmp_path)
    assert (seen.units, seen.accounting.crossed) == (20, 0)


def open_log(folder):
    return ExposureLog(folder, NAME, "sha256:0", KEY.encode())


def read_logs(folder):
    return [row for path in log_files(folder) for row in read_json_rows(path)]


def _write_for_ever(folder):
    mine = open_log(folder)
    for n in range(10**9):
        mine.append("exposure", request=str(n), padding="x" * 500)


@needs_fork
def test_rows_survive_a_killed_process_and_its_torn_last_line_is_counted(tmp_path):
    child = fork.Process(target=_write_for_ever, args=(tmp_path,))
    child.start()
    while not (files := list(tmp_path.iterdir())) or files[0].stat().st_size < 50_000:
        time.sleep(0.01)
    os.kill(child.pid, signal.SIGKILL)
    child.join()
    left = files[0].read_bytes()  # a kill, too, may come in the midst of a row: between two pages of the file
    whole = left.count(b"\n")
    with files[0].open("r+b") as file:  # what a power cut leaves of the last row
        file.truncate(left.rindex(b"\n") + 1 - 7)
    *found, torn = read_logs(tmp_path)
    assert [row["request"] for row in found[1:]] == [str(n) for n in range(len(found) - 1)]
    assert (len(found), torn) == (whole - 1, None)


def test_an_outcome_of_a_request_that_nobody_logged_is_refused_and_not_written(tmp_path):
    begin(tmp_path, include=0.5)
    exp, asked = opened(tmp_path), {}
    for n in range(40):
        with exp.assign(unit=f"user-{n}") as arm:
            asked[arm.why] = arm.program("why?")
    before, inside = rows(tmp_path), asked["assigned"].trace.id
    for unknown in ("no-such-request", "A", "opened", '"', inside[:-1], NAME, "0" * 32, "\ud800"):
        with pytest.raises(ExperimentError, match="has logged no request"):
            opened(tmp_path).record(unknown, outcome={"resolved": True})
    exp.record(asked["not included"], outcome={"resolved": True})
    assert rows(tmp_path) == before
    opened(tmp_path).record(inside, outcome={"resolved": True})
    assert len(rows(tmp_path)) == len(before) + 2  # the head of the file is of each process that opens it
