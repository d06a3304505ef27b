"""Logs of many files put together: the same whatever their order, first exposures, crossed units, skewed clocks."""

from hypothesis import given
from hypothesis import strategies as st

from optimize.abtest.arm_statistics import merge_rows
from program.serve.experiment_store import ArmDesign, Design, MetricGuard

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
    twice = merged(*rows, *rows)
    assert twice.units == found.units
    assert twice.accounting.duplicates == sum(r["kind"] == "exposure" for r in rows)
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
    assert found.count_exposed(DESIGN)[0] >= 1


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
    assert (accounting.rows, accounting.foreign, accounting.malformed) == (9, 1, 3)
    assert (accounting.skewed, accounting.unmatched, accounting.torn, accounting.keys) == (1, 1, 1, 2)
    assert found.units["u"].requests == ({"resolved": 1},)


def test_a_guard_is_read_as_it_is_written():
    for text, kept, broken in (
        ("latency_s<=3", 3, 3.1),
        ("latency_s < 3", 2.9, 3),
        ("score>=0.5", 0.5, 0.4),
        ("score > 0.5", 0.6, 0.5),
    ):
        guard = MetricGuard.parse(text)
        assert not guard.breached(kept) and guard.breached(broken)
