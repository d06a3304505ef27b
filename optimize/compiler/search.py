"""One multi-objective Optuna study over every knob of a program: utility against model calls.

1. The first settings are tried: those of the plan, then the one that sweeps found.
2. Optuna's TPE proposes BATCH settings at a time for the knobs that had an effect. It is told of none of them before
   all are finished, so that they can be scored at once, by as many processes as there are. (Under a constant liar the
   proposals would depend on which trials are under way, and so on the number of processes and their speed.)
3. A batch is scored on growing parts of the questions. A setting that a Wilcoxon test finds worse than the best before
   the batch, and that costs no fewer calls, is given up.
4. Trials are added in the order in which they were proposed. So the next batch depends on the seed, the worker and the
   trials before it alone: a search that was killed goes on as if it had not been.

A trial is written once it is finished, in one piece, not asked for and told as Optuna would: a process killed at any
moment leaves no half of one, and `should_prune` and Optuna's WilcoxonPruner take one objective only. A second study, in
memory, holds the searched knobs alone: the sampler would model the others, too, at their one value.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import FrozenTrial, TrialState

from optimize.compiler.record import Record
from optimize.compiler.runs.workers import Workers
from optimize.compiler.scoring import Scores, Scoring, setting_key
from optimize.compiler.study import KEPT_EVERY, OBJECTIVES, Caps, Spending, Study
from optimize.evaluation.evaluate import Asking
from program.loop.policy import Dimension, Setting, find_dimensions

SHARES = (0.15, 0.4, 1.0)  # parts of the questions after which a trial may be given up
PRUNED_BELOW = 0.1  # p of a Wilcoxon test that a setting is worse than the best, under which its trial is given up
IN_FULL = 4  # of the first settings so many are scored on every question: the other ones are compared with them
TOGETHER = 4  # questions that a process is given before it says how far it is
BATCH = 8  # settings proposed before any of them is scored
GRAIN = 20  # parts of a range: proposals are rounded, as settings a hair apart would open branches of their own
FIRST, SWEEP, STUDY = "first settings", "sweeps", "study"  # what brought a setting about


A = TypeVar("A")
B = TypeVar("B")


@dataclass(frozen=True, slots=True)
class Trial:
    """A setting with its mean utility (routing credit included) and model calls a question."""

    number: int
    setting: Setting
    worth: float
    calls: float
    origin: str  # FIRST, SWEEP or STUDY
    first: int | None = None  # place among the settings the search begins with
    pruned: bool = False  # true when it was given up on a part of the questions, of which its figures are then

    @classmethod
    def of(cls, frozen: FrozenTrial) -> Trial:
        """Return Optuna's trial as ours."""
        notes, setting = frozen.user_attrs, plain_params(frozen.params)
        worth, calls = notes["figures"]
        pruned = frozen.state == TrialState.PRUNED
        return cls(frozen.number, setting, worth, calls, notes["origin"], notes.get("first"), pruned)


class Proposal(NamedTuple):
    """A setting to be tried, and where it comes from."""

    origin: str  # FIRST, SWEEP or STUDY
    setting: Setting
    first: int | None = None  # place among the settings the search begins with


@dataclass(slots=True)
class Live:
    """Progress of a compile, for whoever watches it."""

    stage: str = ""  # name of the stage
    study: str = ""  # name of the study, once there is one
    done: int = 0  # steps of the stage that are done
    of: int = 0  # steps of the stage in all; 0 where that is not known
    baseline: float | None = None  # utility, with routing credit, of the program as it was
    best: float | None = None  # the highest so far
    calls: int = 0  # model calls so far
    expected: str = ""  # what the compile comes to, about, in a line; empty where no language model is asked
    started: float = field(default_factory=time.monotonic)
    seconds: dict[str, float] = field(default_factory=dict)  # that each stage took which is over


Watch = Callable[[Live], None]


@dataclass(frozen=True, slots=True)
class Session:
    """What every stage of a compile works with: the record, the spending and its caps, and whom to tell of progress."""

    record: Record
    spending: Spending
    caps: Caps
    live: Live
    watch: Watch
    jobs: int = 1  # processes that share the work
    forked: list[Workers[Any, Any]] = field(default_factory=list)

    def fork(self, work: Callable[[Any], Any]) -> Workers[Any, Any]:
        """Return the processes that share some work."""
        self.forked.append(Workers(self.jobs, work, self.spending))
        return self.forked[-1]

    def share(self, asks: Sequence[Asking]) -> list[Asking]:
        """Return what gives the same answers, worked out by several processes; those forked before are ended."""
        self.end_processes()
        workers = self.fork(lambda given: asks[given[0]](given[1]))

        def ask(at: int, texts: Sequence[Any]) -> list[Any]:
            parts = [texts[n :: workers.count] for n in range(min(workers.count, len(texts)))] or [texts]
            found = workers.run([(n, (at, part)) for n, part in enumerate(parts)])
            answers = {
                text: answer
                for part, made in zip(parts, found, strict=True)
                for text, answer in zip(part, asks[at](part) if made is None else made, strict=True)
            }
            return [answers[text] for text in texts]

        return [partial(ask, at) for at in range(len(asks))]

    def divide(self, work: Callable[[Sequence[A]], B], among: Sequence[A], needed: bool = True) -> list[B | None]:
        """Return what several processes make of parts, in order.

        What they cannot do is done here where it is `needed`, else None.
        """
        parts = [among[n : n + TOGETHER] for n in range(0, len(among), TOGETHER)]

        def done(n: int) -> None:
            self.advance(min(n * TOGETHER, len(among)), len(among))

        found = self.fork(work).run(list(enumerate(parts)), done)
        self.end_processes()
        for n in [n for n, one in enumerate(found) if one is None and needed]:
            found[n] = work(parts[n])
            done(n + 1)
        return found

    def end_processes(self) -> None:
        """End the processes; what they do next forks them anew."""
        for workers in self.forked:
            workers.close()

    def close(self) -> None:
        """End the processes and close the record."""
        self.end_processes()
        self.record.close()

    def limit(self, share: float) -> None:
        """Let no more than that share of each cap be gone from now on."""
        self.spending.caps = self.caps.reduce_to(share)

    def begin_stage(self, name: str) -> None:
        """Begin a stage."""
        live, now = self.live, time.monotonic()
        if live.stage:
            live.seconds[live.stage] = live.seconds.get(live.stage, 0.0) + now - live.started
        live.stage, live.done, live.of, live.started = name, 0, 0, now
        self.spending.book()
        self.tell()

    def advance(self, done: int, of: int) -> None:
        """Say how far a stage is. Raises `BudgetStop` when the time is up."""
        self.live.done, self.live.of = done, of
        self.tell()
        self.spending.check()

    def tell(self) -> None:
        """Tell the watcher."""
        self.spending.book(every=KEPT_EVERY)
        self.live.calls = self.spending.calls
        self.watch(self.live)


class Search:
    """The trials of a study, proposed and scored by this process and by any other that joins.

    First the `firsts` are tried, then proposals for the knobs that are searched, all others as in the best of the
    firsts.
    """

    def __init__(
        self,
        study: Study,
        scoring: Scoring,
        firsts: Sequence[Setting],
        seed: int,
        worker: int = 0,
        space: Sequence[Dimension] = (),
    ) -> None:
        self.study = study
        self.scoring = scoring
        self.space = list(space) or find_dimensions(scoring.arms[0].replay.program)
        self.firsts = [(FIRST, self.fit_ranges(setting)) for setting in firsts]
        self._searched = [dimension.name for dimension in self.space]
        self._distributions = {d.name: _make_distribution(d) for d in self.space}
        self._seed = seed
        self._worker = worker
        self.added = 0  # trials by this process
        optuna.logging.set_verbosity(logging.ERROR)
        self._memory = optuna.create_study(directions=[*OBJECTIVES.values()])  # of the trials, for the sampler
        self._remembered = 0
        self._order = np.random.default_rng(seed).permutation(len(scoring.questions)).tolist()

    def follow_sweeps(self, swept: Mapping[str, Any]) -> None:
        """Try the swept setting, too, and search the knobs that had an effect."""
        self.firsts.append((SWEEP, self.fit_ranges(swept["setting"])))
        self._searched = list(swept["effective"]) or self._searched

    def run(self, target: int, session: Session) -> None:
        """Try settings until the study has `target` trials, or a cap is reached."""
        live, live.of = session.live, target
        while len(trials := self.trials()) < target and not (self._worker and self.study.finished):
            session.spending.check()
            batch, best = self._propose(trials)
            batch = batch[: target - len(trials)]
            self.scoring.score_ahead([(proposal.setting, None) for proposal in batch])
            for proposal in batch:
                if len(self.study.trials()) >= target:  # others add to it, too
                    break
                frozen = self._try_setting(proposal, best)
                self.study.add(frozen)
                self.added += 1
                trials.append(Trial.of(frozen))
                live.done = len(trials)
                live.baseline = next((one.worth for one in trials if one.first == 0), None)
                live.best = max((one.worth for one in trials if not one.pruned), default=None)
                session.tell()

    def trials(self) -> list[Trial]:
        """Return every finished trial of the study, oldest first."""
        return [Trial.of(frozen) for frozen in self.study.trials()]

    def rank_trials(self, origins: Sequence[str] = (FIRST, SWEEP, STUDY)) -> list[Trial]:
        """Return the trials scored on every question, best first, no setting twice."""
        complete = [one for one in self.trials() if not one.pruned and one.origin in origins]
        best: dict[Any, Trial] = {}
        for trial in sorted(complete, key=lambda one: (-one.worth, one.number)):
            best.setdefault(setting_key(trial.setting), trial)
        return list(best.values())

    def pick_finalists(self, most: int) -> list[Trial]:
        """Return the best settings and the study's frontier, best first."""
        ranked = self.rank_trials()
        front = self.study.frontier()
        frontier = [trial for trial in ranked if trial.number in front]
        leaders = [next((one for one in ranked if one.origin == origin), None) for origin in (STUDY, SWEEP, FIRST)]
        chosen: dict[bytes, Trial] = {}
        for trial in [*(one for one in leaders if one is not None), frontier[-1], *frontier, *ranked]:
            if len(chosen) < most:
                scores = np.array(self.scoring(trial.setting))[[0, 2]]
                chosen.setdefault(np.round(scores, 9).tobytes(), trial)
        return sorted(chosen.values(), key=lambda trial: (-trial.worth, trial.number))

    def _propose(self, trials: Sequence[Trial]) -> tuple[list[Proposal], Trial | None]:
        """Return what is left of the batch that is under way, and the best trial before it.

        Without such a trial the batch is scored on every question.
        """
        firsts = {trial.first: trial for trial in trials if trial.first is not None}
        if open_ := [n for n in range(len(self.firsts)) if n not in firsts]:
            at = self._worker % len(open_)  # workers begin at different ones
            numbers = [*open_[at:], *open_[:at]][:IN_FULL]
            compared = [trial for n, trial in firsts.items() if n < IN_FULL]
            in_full = min(numbers) < IN_FULL or self.firsts[numbers[0]][0] == SWEEP
            return [Proposal(*self.firsts[n], n) for n in numbers], None if in_full else _find_best(compared)
        start = len(trials) - (len(trials) - len(self.firsts)) % BATCH
        base = max(firsts.values(), key=_rank).setting
        space = {name: self._distributions[name] for name in self._searched}
        for one in trials[self._remembered : start]:
            params = {name: one.setting[name] for name in space}
            values = [one.worth, one.calls]
            self._memory.add_trial(optuna.create_trial(values=values, params=params, distributions=space))
        self._remembered = start
        seed = (self._seed * 1_000_003 + self._worker * 7_919 + start) % 2**32
        self._memory.sampler = optuna.samplers.TPESampler(seed=seed, multivariate=True)
        asked = [self._memory.ask(space) for _ in range(BATCH)]
        for one in asked:
            self._memory.tell(one, state=TrialState.FAIL)  # it is added once it is on disk
        found = [plain_params(one.params) for one in asked[len(trials) - start :]]
        steps = [{d.name: _coarsen_value(d, one[d.name]) for d in self.space if d.name in one} for one in found]
        return [Proposal(STUDY, base | one) for one in steps], _find_best(trials[:start])

    def fit_ranges(self, setting: Setting) -> Setting:
        """Return the setting with each value in its range."""
        return {d.name: _round_to_range(d, setting[d.name]) for d in self.space}

    def _try_setting(self, proposal: Proposal, best: Trial | None) -> FrozenTrial:
        """Return the finished trial of a setting, scored on growing parts of the questions."""
        for seen in self._parts_for(best):
            scores = self.scoring(proposal.setting, seen).take(seen)
            if pruned := self._is_hopeless(scores, best, seen):
                break
        figures = [scores.worth, scores.mean_calls]
        notes = {"figures": figures, "origin": proposal.origin}
        return optuna.create_trial(
            state=TrialState.PRUNED if pruned else TrialState.COMPLETE,
            params=proposal.setting,
            distributions=self._distributions,
            values=None if pruned else figures,
            user_attrs=notes if proposal.first is None else {**notes, "first": proposal.first},
        )

    def _parts_for(self, best: Trial | None) -> list[list[int]]:
        """Return the growing parts of the questions on which a setting is compared with the best, if there is one."""
        return [self._order[: max(1, round(share * len(self._order)))] for share in (SHARES if best else SHARES[-1:])]

    def _is_hopeless(self, scores: Scores, best: Trial | None, seen: Sequence[int]) -> bool:
        """Return True when a setting is surely worse than the best on a part and costs no fewer calls."""
        from scipy.stats import wilcoxon  # slow to import

        if best is None or len(seen) == len(self._order):
            return False
        before = self.scoring(best.setting).take(seen)
        gain = scores.utility - before.utility
        gain = gain[np.isfinite(gain)]
        if scores.mean_calls < before.mean_calls or len(gain) < 2 or gain.mean() >= 0:
            return False
        return bool(wilcoxon(gain, alternative="less", zero_method="zsplit").pvalue < PRUNED_BELOW)


def _rank(trial: Trial) -> tuple[float, int]:
    return trial.worth, -trial.number


def _find_best(trials: Iterable[Trial]) -> Trial | None:
    """Return the best of the trials that were not given up; of equals the first."""
    return max((one for one in trials if not one.pruned), key=_rank, default=None)


def plain_params(params: Mapping[str, Any]) -> Setting:
    """Return Optuna's parameters as a setting."""
    return {name: value if isinstance(value, int) else float(value) for name, value in params.items()}


def _make_distribution(d: Dimension) -> BaseDistribution:
    if d.nominal:
        return CategoricalDistribution(range(int(d.high) + 1))
    if d.integral:
        return IntDistribution(int(d.low), int(d.high), log=d.log)
    return FloatDistribution(d.low, d.high, log=d.log, step=d.step)


def _round_to_range(d: Dimension, value: float) -> float:
    """Return the value in the range of a knob, on its steps."""
    value = min(max(value, d.low), d.high)
    if d.integral:
        return round(value)
    if d.step:
        value = round(d.low + d.step * round((value - d.low) / d.step), 10)
    return float(min(max(value, d.low), d.high))


def _coarsen_value(d: Dimension, value: float) -> float:
    """Return the value on a grid of GRAIN parts of the range."""
    if d.integral or d.step:
        return _round_to_range(d, value)
    low, high, at = (np.log(v) for v in (d.low, d.high, value)) if d.log else (d.low, d.high, value)
    snapped = low + (high - low) / GRAIN * round(float((at - low) / (high - low) * GRAIN))
    return _round_to_range(d, round(float(np.exp(snapped)) if d.log else float(snapped), 6))
