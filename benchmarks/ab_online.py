"""Online A/B tests that are looked at after every user: false verdicts, power, mismatch, assignment.

    python benchmarks/ab_online.py [--quick] [--json]

Every A/A figure is the share of seeded runs in which some look, of one after every user (or request), gives a verdict
although nothing differs. Two lines are controls that must come out bad, or these simulations could not find fault:
the usual z-test looked at as often, and the same confidence sequence on requests instead of users.
"""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path

import numpy as np
from figures import Figure, figure, run_benchmark
from numpy.typing import NDArray

from ragc.optimize.abtest.arm_statistics import MISMATCH, merge_rows
from ragc.optimize.abtest.sequential import Moments, choose_horizon, compare_means, log_e_multinomial, log_e_rates
from ragc.serve.experiment_store import ArmDesign, Design, ExposureLog, choose_arm, log_files
from ragc.storage import read_json_rows

Floats = NDArray[np.float64]
ALPHA = 0.05
CHUNK = 100
UNITS = 5000
USERS = 500
Draw = Callable[[np.random.Generator, Floats], Floats]


def chunks(runs: int, seed: int) -> Iterator[np.random.Generator]:
    """A generator of its own for each chunk of runs."""
    yield from np.random.default_rng(seed).spawn(runs // CHUNK)


def one_each(member: Floats, y: Floats, *, binary: bool) -> Moments:
    """An arm at every look, each of its users having one outcome; `member` is 1 where the user is in the arm."""
    powers = [member.cumsum(1), (member * y).cumsum(1)]
    powers += powers[1:] * 2 if binary else [(member * y**i).cumsum(1) for i in (2, 3)]
    sums = {(i, j): powers[i] for i in range(4) for j in range(4 - i)}
    return Moments(sums, powers[1], powers[0] - powers[1])


def looks(
    a: Moments, b: Moments, *, alpha: float = ALPHA, units: int = UNITS, binary: bool = True
) -> NDArray[np.bool_]:
    """Where the interval leaves out zero; shape (runs, looks)."""
    mean, reach = compare_means(a, b, alpha=alpha, horizon=choose_horizon(2 * units), binary=binary)
    return np.asarray(np.abs(mean) > reach)


def verdicts(
    draw: Draw, runs: int, seed: int, *, weight: float = 0.5, units: int = UNITS, binary: bool = True, arms: int = 2
) -> tuple[float, float]:
    """The share of runs with a verdict at some look, and the median user at which it came.

    `weight` is that of each challenger; `draw` gives outcomes for the matrix of arm numbers.
    """
    stops: list[float] = []
    for rng in chunks(runs, seed):
        edges = np.cumsum([1 - weight * (arms - 1)] + [weight] * (arms - 2))
        arm = np.searchsorted(edges, rng.random((CHUNK, units))).astype(np.float64)
        y = draw(rng, arm)
        control = one_each((arm == 0) * 1.0, y, binary=binary)
        said = np.zeros((CHUNK, units), dtype=bool)
        for n in range(1, arms):
            challenger = one_each((arm == n) * 1.0, y, binary=binary)
            said |= looks(control, challenger, alpha=ALPHA / (arms - 1), units=units // 2, binary=binary)
        stops += [float(row.argmax()) + 1 if row.any() else math.inf for row in said]
    return float(np.isfinite(stops).mean()), float(np.median(stops))


def peeked_z(runs: int, seed: int) -> float:
    """The two-sample z-test at .05 after every user, once each arm has 30."""
    wrong = 0
    for rng in chunks(runs, seed):
        member = (rng.random((CHUNK, UNITS)) < 0.5) * 1.0
        y = (rng.random((CHUNK, UNITS)) < 0.7) * 1.0
        a, b = one_each(1 - member, y, binary=True), one_each(member, y, binary=True)
        z = np.abs(b.mean() - a.mean()) / np.sqrt(np.maximum(a.variance() + b.variance(), 1e-12))
        wrong += int(((z > 1.959964) & (a.units >= 30) & (b.units >= 30)).any(1).sum())
    return wrong / runs


def rates(p: float, gain: float = 0.0) -> Draw:
    return lambda rng, arm: (rng.random(arm.shape) < p + gain * (arm > 0)) * 1.0


def lognormal(sigma: float) -> Draw:
    return lambda rng, arm: rng.lognormal(0, sigma, arm.shape)


def returning(runs: int, seed: int) -> tuple[float, float, float]:
    """Users who come back ten times on average, each with a success rate of their own (Beta .7, .3): the share of
    runs with a verdict by users, by requests, and with a guard broken by "one bad answer or more"."""
    by_user = by_request = by_guard = 0
    for rng in chunks(runs, seed):
        rate = rng.beta(0.7, 0.3, (CHUNK, USERS))
        arm = (rng.random((CHUNK, USERS)) < 0.5) * 1.0
        who = rng.integers(0, USERS, (CHUNK, UNITS))
        row = np.arange(CHUNK)
        member, success = arm[row[:, None], who], (rng.random(who.shape) < rate[row[:, None], who]) * 1.0
        users = _users(who, success)
        a, b = _arm_of(users, 1 - member), _arm_of(users, member)
        by_user += int(looks(a, b, units=USERS // 2).any(1).sum())
        request = [one_each(1 - member, success, binary=True), one_each(member, success, binary=True)]
        by_request += int(looks(*request, units=UNITS // 2).any(1).sum())
        failed = np.stack([a.failures, b.failures], -1)
        fine = np.stack([a.units, b.units], -1) - failed
        by_guard += int((log_e_rates(failed, fine, [1, 1]) >= -math.log(ALPHA)).any(1).sum())
    return by_user / runs, by_request / runs, by_guard / runs


def _users(who: NDArray[np.int64], success: Floats) -> dict[str | tuple[int, int], Floats]:
    """What each request adds to the sums over users of y**i * n**j, and to the users with a success or a failure."""
    powers = [(i, j) for i in range(3) for j in range(3 - i)]
    added: dict[str | tuple[int, int], Floats] = {key: np.zeros(who.shape) for key in [*powers, "success", "failure"]}
    row = np.arange(len(who))
    y, n = np.zeros((len(who), USERS)), np.zeros((len(who), USERS))
    for t in range(who.shape[1]):
        user, outcome = who[:, t], success[:, t]
        y0, n0 = y[row, user], n[row, user]
        y1, n1 = y0 + outcome, n0 + 1
        for i, j in powers:
            added[i, j][:, t] = y1**i * n1**j - (y0**i * n0**j) * (n0 > 0)
        added["success"][:, t] = (y1 > 0) & (y0 == 0)
        added["failure"][:, t] = (y1 < n1) & (y0 == n0)
        y[row, user], n[row, user] = y1, n1
    return added


def _arm_of(added: dict[str | tuple[int, int], Floats], member: Floats) -> Moments:
    summed = {key: (member * value).cumsum(1) for key, value in added.items()}
    sums = {key: value for key, value in summed.items() if isinstance(key, tuple)}
    return Moments(sums, summed["success"], summed["failure"])


def evidence(p: tuple[float, float], runs: int, seed: int, *, weight: float, units: int) -> tuple[float, float]:
    """How often a guard that users break at these rates is called, and the median user at which it is."""
    stops: list[float] = []
    for rng in chunks(runs, seed):
        arm = (rng.random((CHUNK, units)) < weight) * 1.0
        bad = (rng.random((CHUNK, units)) < np.where(arm > 0, p[1], p[0])) * 1.0
        members = (1 - arm, arm)
        failed = np.stack([(m * bad).cumsum(1) for m in members], -1)
        fine = np.stack([(m * (1 - bad)).cumsum(1) for m in members], -1)
        called = log_e_rates(failed, fine, [1 - weight, weight]) >= -math.log(ALPHA)
        stops += [float(row.argmax()) + 1 if row.any() else math.inf for row in called]
    return float(np.isfinite(stops).mean()), float(np.median(stops))


def mismatches(share: float, runs: int, seed: int, *, units: int = 10_000) -> float:
    """The share of runs in which a promised 50/50 is called wrong by 10,000 users, the second arm getting `share`."""
    found = 0
    for rng in chunks(runs, seed):
        second = (rng.random((CHUNK, units)) < share).cumsum(1)
        counts = np.stack([np.arange(1, units + 1) - second, second], -1)
        found += int((log_e_multinomial(counts, [1, 1]) >= MISMATCH).any(1).sum())
    return found / runs


def assignments(n: int) -> list[Figure]:
    """Shares, microseconds, and whether two experiments know of each other."""
    from scipy.stats import chi2_contingency

    weights = (60, 30, 10)
    names = [f"user-{i}" for i in range(n)]
    began = time.process_time()
    arms = [choose_arm("exp-one", weights, name) for name in names]
    microseconds = (time.process_time() - began) / n * 1e6
    shares = np.array(weights) / sum(weights)
    errors = np.abs(np.bincount(arms) - n * shares) / np.sqrt(n * shares * (1 - shares))
    table = np.zeros((3, 3))
    np.add.at(table, (arms, [choose_arm("exp-two", weights, name) for name in names]), 1)
    return [
        figure("assignment: worst arm, standard errors from its weight", float(errors.max()), "<= 4", n),
        figure("assignment: microseconds of processor each", microseconds, "<= 3", n),
        figure("two experiments: p of independence", float(chi2_contingency(table).pvalue), "> 0.001", n),
    ]


def logs(n: int) -> list[Figure]:
    """Microseconds to log an answer (exposure, measured, outcome), and seconds to merge a log of n answers."""
    arms = (ArmDesign("A", "support@v1-00000001", "sha256:1", 1), ArmDesign("B", "support@v2-00000002", "sha256:2", 1))
    design = Design("exp-one", arms, "resolved", (), 1.0, n, ALPHA, "", "sha256:0")
    values = {"error": 0.0, "latency_s": 0.5, "calls": 1.0, "tokens": 900.0, "usd": 0.001}
    with tempfile.TemporaryDirectory() as folder:
        log = ExposureLog(Path(folder), design.id, design.seal, b"a key of the benchmark's own")
        began = time.process_time()
        for i in range(n):
            arm = arms[choose_arm(design.id, design.weights, f"{i % (n // 2)}")]
            log.append("exposure", unit=f"{i % (n // 2)}", arm=arm.name, digest=arm.digest, request=f"r{i}")
            log.append("measured", request=f"r{i}", trace=f"t{i}", values=values)
            log.append("outcome", request=f"t{i}", values={"resolved": 1.0})
        written = (time.process_time() - began) / n * 1e6
        began = time.process_time()
        rows = chain.from_iterable(map(read_json_rows, log_files(Path(folder))))
        units = len(merge_rows(design, rows).units)
        merged = time.process_time() - began
    return [
        figure("logging: microseconds of processor an answer", written, "reported", n),
        figure("merging: seconds of processor for 100,000 answers", merged * 100_000 / n, "reported", units),
    ]


def measure(quick: bool) -> Iterator[Figure]:
    runs, few, bar = (200, 100, "<= 0.05") if quick else (2000, 500, "<= 0.05")
    for seed, name, draw, settings in (
        (1, "50/50, p .70", rates(0.7), {}),
        (2, "90/10, p .95", rates(0.95), {"weight": 0.1}),
        (3, "90/10, p .99", rates(0.99), {"weight": 0.1}),
        (5, "lognormal (sigma 2), 50/50", lognormal(2), {"binary": False}),
        (6, "lognormal (sigma 2), 90/10", lognormal(2), {"weight": 0.1, "binary": False}),
        (7, "lognormal (sigma 1), 90/10", lognormal(1), {"weight": 0.1, "binary": False}),
        (8, "four arms, p .70", rates(0.7), {"weight": 0.25, "arms": 4}),
    ):
        yield figure(f"A/A {name}", verdicts(draw, runs, seed, **settings)[0], bar, runs)
    by_user, by_request, by_guard = returning(runs, 4)
    yield figure("A/A returning users, by user", by_user, bar, runs)
    yield figure("A/A guard, returning users, one bad answer", by_guard, bar, runs)
    yield figure("control: A/A returning users, by request", by_request, "> 0.2", runs)
    yield figure("control: A/A z-test looked at as often", peeked_z(runs, 9), "> 0.15", runs)
    for seed, kept in ((11, 0.9), (12, 0.99)):
        called, _ = evidence((1 - kept, 1 - kept), runs, seed, weight=0.1, units=UNITS)
        yield figure(f"A/A guard 90/10, kept by {kept}", called, bar, runs)
    power, median = verdicts(rates(0.7, 0.05), few, 10, units=10_000)
    yield figure("power at 10,000 users, .70 against .75", power, ">= 0.95", few)
    yield figure("users until then, median", median, "reported", few)
    found, median = evidence((0.01, 0.03), few, 13, weight=0.1, units=10_000)
    yield figure("guard 90/10 broken by .01 against .03: found by 10,000", found, "reported", few)
    yield figure("users until then, median", median, "reported", few)
    yield figure("mismatch: 55/45 found by 10,000 users", mismatches(0.45, few, 14), ">= 0.99", few)
    yield figure("mismatch: 50/50 called wrong", mismatches(0.5, 4000, 15), "<= 0.002", 4000)
    yield from assignments(100_000 if quick else 1_000_000)
    yield from logs(10_000 if quick else 100_000)


if __name__ == "__main__":
    run_benchmark(__doc__, measure)
