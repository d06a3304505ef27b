"""Logs of many files put together, and the report of a live experiment and its command line."""

import json
import random
import shutil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragc.errors import ExperimentError, VersionError
from ragc.optimize.abtest.arm_statistics import merge_rows
from ragc.optimize.abtest.online import report_experiment, start_experiment
from ragc.serve.experiment_store import (
    ArmDesign,
    Design,
    ExposureLog,
    MetricGuard,
    choose_arm,
    pseudonymize_unit,
    read_design,
)
from tests.experiments import KEY, NAME, begin, publish
from tests.optimize.conftest import publish_rows


@pytest.fixture
def ragc(ragc, tmp_path):
    """Runs a command line over the versions of this test."""
    return lambda *arguments: ragc(*arguments, "--artifacts", tmp_path)


def serve(
    root, users, resolved=dict.fromkeys("ABC", 0.5), *, latency=None, recorded=None, key=KEY, place=None, first=0
):
    """Users who ask one question each, straight into a log: as `Experiment` would write it, in a hurry."""
    folder, design = read_design(NAME, root)
    log = ExposureLog(place or folder, design.id, design.seal, key.encode())
    rng = random.Random(0)
    for n in range(first, first + users):
        arm = design.arms[choose_arm(design.id, design.weights, f"user-{n}")]
        unit = pseudonymize_unit(key.encode(), design.id, f"user-{n}")
        log.append("exposure", unit=unit, arm=arm.name, digest=arm.digest, request=f"r{n}")
        seconds = (latency or {}).get(arm.name, 1.0)
        log.append("measured", request=f"r{n}", trace=f"t{n}", values={"error": 0, "latency_s": seconds})
        if rng.random() < (recorded or {}).get(arm.name, 1):
            log.append("outcome", request=f"t{n}", values={"resolved": rng.random() < resolved[arm.name]})


GAIN = {"A": 0.5, "B": 0.7}
CASES = {
    "a clear gain": ({}, {"resolved": GAIN}, "better", "", "B"),
    "a clear loss": ({}, {"resolved": {"A": 0.7, "B": 0.5}}, "worse", "", ""),
    "an outcome without spread": ({"primary": "latency_s"}, {"latency": {"A": 2.0, "B": 1.0}}, "undecided", "", ""),
    "nobody yet": ({"primary": "error"}, {"users": 0}, "undecided", "", ""),
    "a guard that the control breaks": ({"guards": ["latency_s<=3"]}, {"latency": {"A": 4.0}}, "undecided", "", ""),
    "nothing found at the end": ({"max_units": 600}, {}, "no_detectable_difference", "1500 units were seen", ""),
    "two better ones": ({"arms": 3}, {"users": 2500, "resolved": {"A": 0.4, "B": 0.6, "C": 0.75}}, "better", "", "C"),
    "a guard that the better one breaks": ({"guards": ["latency_s<=3", "error<=0"]},
        {"resolved": GAIN, "latency": {"B": 4.0}}, "halted", "B breaks latency_s <= 3 more often than the control", ""),
    "outcomes missing from one arm": ({}, {"users": 2500, "resolved": GAIN, "recorded": {"B": 0.5}},
        "undecided", "outcomes came from", ""),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_report_says_who_is_better_and_proposes_a_promotion_that_it_does_not_make(tmp_path, case):
    design, served, verdict, reason, proposed = CASES[case]
    begin(tmp_path, **design)
    serve(tmp_path, **{"users": 1500, **served})
    found = report_experiment(NAME, tmp_path)
    assert found.verdict == verdict and reason in found.reason
    best = next((arm.version for arm in found.design.arms if arm.name == proposed), None)
    assert found.proposal == (f"ragc promote {best} --to production --reason {NAME}" if best else "")
    assert not (tmp_path / "support" / "aliases").exists()
    assert [check.broken for check in found.guards] == [verdict == "halted", False][: len(found.guards)]
    kept = json.loads((tmp_path / "experiments" / NAME / "report.json").read_bytes())
    assert kept == json.loads(json.dumps(found.as_dict()))


@pytest.mark.parametrize(
    ("served", "read"), [("", "0 files, 0 rows"), ("A", "1 file, 4 rows"), ("B", "1 file, 4 rows")]
)
def test_an_arm_without_users_has_no_difference(tmp_path, ragc, served, read):
    begin(tmp_path)
    _, design = read_design(NAME, tmp_path)
    arms = [design.arms[choose_arm(design.id, design.weights, f"user-{n}")].name for n in range(50)]
    for arm in served:
        serve(tmp_path, 1, first=arms.index(arm))
    (found,) = report_experiment(NAME, tmp_path).arms[1:]
    assert (found.difference, found.ci, found.verdict) == (None, None, "undecided")
    code, out, _ = ragc("experiment", "report", NAME)
    (row,) = [line for line in out.splitlines() if line.startswith("B ")]
    assert row.split()[-2:] == ["-", "-"]
    assert code == 3 and f"read: {read}\n" in out


def test_nothing_found_is_undecided_while_it_runs_and_logs_of_other_hosts_are_merged_from_their_folders(tmp_path):
    begin(tmp_path, max_units=600)
    serve(tmp_path, 300)
    elsewhere = tmp_path / "copied"
    elsewhere.mkdir()
    serve(tmp_path, 300, place=elsewhere, first=200)
    found = report_experiment(NAME, tmp_path, [elsewhere])
    assert (sum(arm.units for arm in found.arms), found.verdict) == (500, "undecided")
    assert (found.files, found.accounting.crossed) == (2, 0)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"weights": (1, 2, 3)}, "3 weights do not fit 2 arms"), ({"weights": (1, 0)}, "not above 0"),
        ({"include": 0}, "--include"), ({"max_units": 0}, "--max-units"),
        ({"guards": ["slow"]}, "latency_s<=3"), ({"guards": ["latency_s<=1e"]}, "latency_s<=3"),
        *(({"name": name}, "name of an experiment") for name in ("../up", "exp-", "Big", "")),
        ({"arms": {"A": "support@v1"}}, ""), ({"arms": {"A": "support@v1", "B": "none@v1"}}, ""),
        ({"arms": {"A": "support@v1", "B": "desk@v1"}}, r"different programs: A support@v1 \(a project\), B desk@v1"),
        ({"arms": {"A": "support@v1", "B": "support@v3"}}, r"different programs: .* B support@v3 \(your own code\)"),
    ],
)  # fmt: skip
def test_a_design_that_cannot_work_is_refused_and_leaves_nothing(tmp_path, wrong, told):
    publish(tmp_path)
    publish_rows(tmp_path, name="desk")
    publish_rows(tmp_path, name="support", program={"kind": "module"})
    with pytest.raises((ExperimentError, VersionError), match=told):
        started(tmp_path, **wrong)
    assert not (tmp_path / "experiments").exists()
    begin(tmp_path)
    with pytest.raises(ExperimentError, match="already"):
        begin(tmp_path)


def started(root, name="other", arms=None, **design):
    arms = arms or {"A": "support@v1", "B": "support@v2"}
    return start_experiment(name, arms, **{"primary": "resolved", "max_units": 9, "artifacts": root, **design})


def test_the_command_line_starts_reports_and_stops(ragc, tmp_path):
    publish(tmp_path)
    began = ragc(
        *("experiment", "start", "2026-11-refunds", "A=support@v1", "B=support@v2", "--weights", "60,40", "--primary"),
        *("resolved", "--guard", "latency_s<=3", "--max-units", "20000", "--include", "0.5", "--json"),
    )
    assert began[0] == 0
    design = json.loads(began[1])
    assert [arm["weight"] for arm in design["arms"]] == [60, 40]
    assert (design["id"], design["include"], design["max_units"]) == (NAME, 0.5, 20000)
    code, out, _ = ragc("experiment", "report", NAME, "--json")
    assert (code, json.loads(out)["verdict"]) == (3, "undecided")
    serve(tmp_path, 1500, {"A": 0.5, "B": 0.75})
    code, out, _ = ragc("experiment", "report", NAME)
    assert (code, "better" in out, "proposed, not done: ragc promote" in out) == (0, True, True)
    assert ragc("experiment", "report")[0] == 0
    assert "stopped: enough" in ragc("experiment", "stop", NAME, "--reason", "enough")[1]
    code, out, _ = ragc("experiment", "report", "--json")
    (found,) = json.loads(out)
    assert (code, found["status"], found["units"], found["max_units"]) == (0, "stopped", 1500, 20000)


def test_what_is_to_be_known_of_an_experiment_is_told_when_it_starts_and_in_each_report(ragc, tmp_path, monkeypatch):
    publish(tmp_path)
    publish_rows(tmp_path, name="desk", program={"kind": "module"})
    to = ("--primary", "resolved", "--max-units", "9")
    monkeypatch.delenv("RAGC_UNIT_KEY", raising=False)
    _, out, err = ragc("experiment", "start", "own", "A=desk@v1", "B=desk@v1", *to)
    opened = f'Experiment.open("exp-own", make, artifacts="{tmp_path}")'
    assert "export RAGC_UNIT_KEY=" in out and opened in out and "ragc serve" not in out
    assert "ragc experiment report exp-own --artifacts " in out
    monkeypatch.setenv("RAGC_UNIT_KEY", KEY)
    _, out, other = ragc("experiment", "start", "live", "A=support@v1", "B=support@v2", *to)
    assert "RAGC_UNIT_KEY" not in out and "ragc serve exp-live" in out
    assert "A, B are the same version (an A/A test)" in err and not other
    assert err in ragc("experiment", "report", "own")[2]
    (lost,) = (tmp_path / "support" / "versions").glob("v2-*")
    shutil.rmtree(lost)
    code, out, err = ragc("experiment", "report", "live")
    assert code == 3 and "it still runs" in out and f"Arm B began as support@{lost.name}, which" in err
    assert err.count("was deleted") == 1


def test_the_command_line_exits_with_1_when_halted_or_worse_and_2_for_a_mistake(ragc, tmp_path):
    begin(tmp_path, guards=["latency_s<=3"])
    serve(tmp_path, 800, latency={"B": 9.0})
    started(tmp_path)
    code, out, _ = ragc("experiment", "report", "--json")
    assert code == 1, "a look halts"
    assert {one["experiment"]: one["status"] for one in json.loads(out)} == {NAME: "halted", "exp-other": "running"}
    assert (ragc("experiment", "report", NAME)[0], ragc("experiment", "report", "other")[0]) == (1, 3)
    for mistake in (
        ("experiment", "report", "nothing-here"),
        ("experiment", "report", NAME, "--logs", "nowhere"),
        ("experiment", "start", "x", "support@v1", "--primary", "resolved", "--max-units", "9"),
        (*"experiment start x A=support@v1 B=support@v2 --primary resolved --weights a,b --max-units 9".split(),),
    ):
        code, _, err = ragc(*mistake)
        assert (code, err.startswith("error: "), "Traceback" in err) == (2, True, False)


ARMS = (ArmDesign("A", "support@v1-00000001", "sha256:1", 1), ArmDesign("B", "support@v2-00000002", "sha256:2", 1))
DESIGN = Design("exp-a", ARMS, "resolved", (MetricGuard.parse("latency_s<=3"),), 1, 100, 0.05, "", "sha256:seal")


def row(kind, ts, **fields):
    return {"kind": kind, "ts": ts, "experiment": "exp-a", **fields}


def exposure(ts, unit, arm, request):
    return row("exposure", ts, unit=unit, arm=arm, digest={"A": "sha256:1", "B": "sha256:2"}[arm], request=request)


def outcome(ts, key, value):
    return row("outcome", ts, request=key, values={"resolved": value})


def merged(*rows):
    return merge_rows(DESIGN, rows)


@st.composite
def logs(draw):
    """Rows of a few users with a few requests each, some in two arms, some outcomes twice or early or of nobody."""
    rows = [row("opened", 0.0, design="sha256:seal", key="k")]
    for n in range(draw(st.integers(0, 12))):
        at = float(draw(st.integers(0, 5)))
        rows.append(exposure(at, draw(st.sampled_from("uvwx")), draw(st.sampled_from("AB")), f"r{n}"))
        if draw(st.booleans()):
            rows.append(row("measured", at + 1, request=f"r{n}", trace=f"t{n}", values={"error": 0}))
        for _ in range(draw(st.integers(0, 2))):
            key = draw(st.sampled_from([f"r{n}", f"t{n}", "lost"]))
            rows.append(outcome(float(draw(st.integers(0, 6))), key, draw(st.sampled_from([0, 1]))))
    return rows


@given(logs(), st.randoms(use_true_random=False))
def test_the_merged_log_does_not_depend_on_the_order_of_rows_and_counts_a_unit_once_in_one_arm(rows, random):
    found, shuffled = merged(*rows), list(rows)
    random.shuffle(shuffled)
    assert merged(*shuffled) == found
    assert merged(*rows, *rows).units == found.units
    by_unit = {}
    for r in (r for r in rows if r["kind"] == "exposure"):
        by_unit.setdefault(r["unit"], set()).add(r["arm"])
    whole = {unit: arm for unit, (arm, *others) in by_unit.items() if not others}
    assert {unit: one.arm for unit, one in found.units.items()} == whole
    assert found.accounting.crossed == len(by_unit) - len(whole)


@given(
    st.sampled_from(["kind", "unit", "arm", "digest", "request", "values", "trace", "design", "key"]),
    st.sampled_from([None, 7, [], {}, "x", {"a": None}]),
    st.integers(0, 3),
)
def test_no_row_however_spoilt_stops_the_merge(field, spoilt, which):
    rows = [
        row("opened", 1.0, design="sha256:seal", key="k1"),
        exposure(1.0, "u", "A", "r1"),
        row("measured", 2.0, request="r1", trace="t1", values={"error": 0}),
        outcome(3.0, "t1", 1),
    ]
    whole = list(rows)
    whole[which] = {**rows[which], field: spoilt}
    found = merged(*rows, *whole)
    assert found.accounting.rows == 8
    assert "A" in {unit.arm for unit in found.units.values()}


def test_what_cannot_be_used_is_counted():
    found = merged(
        row("opened", 1.0, design="sha256:seal", key="k1"),
        row("opened", 1.0, design="sha256:seal", key="k2"),
        row("opened", 1.0, design="sha256:another", key="k1"),
        {**exposure(1.0, "u", "A", "r0"), "experiment": "exp-b"},
        {**exposure(1.0, "u", "A", "r0"), "digest": "sha256:3"},
        exposure(5.0, "u", "A", "r1"),
        outcome(4.0, "r1", 1),
        outcome(4.0, "gone", 1),
        row("outcome", 4.0, request="r1", values={"resolved": "yes"}),
        None,
    )
    accounting = found.accounting
    assert (accounting.rows, accounting.unusable, accounting.unmatched, accounting.keys) == (10, 5, 1, 2)
    assert found.units["u"].requests == ({"resolved": 1},)
