"""Paths: a setting under which nothing is read otherwise is answered from the tree, and as it would be anew."""

from dataclasses import replace

import dspy
import numpy as np
from dspy.adapters.types.decision import Score

from optimize.compiler.paths import NONE, Parameters, Path, Paths
from optimize.compiler.readings import Readings, Watched
from optimize.compiler.record import Record
from optimize.compiler.replay import Replay
from program.answer import Answer, Outcome
from program.loop.decisions import decode
from program.loop.policy import Candidates, Knob, apply_setting, find_dimensions, read_setting
from program.loop.rag import Classifier

QUESTIONS = [
    "How much water does the Merle hold?",
    "How many days do I have to get my money back and how many watts does the Wren draw?",
    "Does the kettle come in green?",
]


def moved(rag, settings=60):
    """Settings each of which moves a value or two of the one before."""
    rng = np.random.default_rng(5)
    setting, dimensions = read_setting(rag), find_dimensions(rag)
    for _ in range(settings):
        for at in rng.choice(len(dimensions), size=int(rng.integers(1, 3)), replace=False):
            d = dimensions[int(at)]
            value = rng.integers(int(d.low), int(d.high) + 1) if d.integral else rng.uniform(d.low, d.high)
            setting[d.name] = int(value) if d.integral else float(value)
        yield dict(setting)


def test_every_answer_is_that_of_a_replay_that_knows_no_path(rag):
    record = Record()
    kept = Replay(rag.deepcopy(), record)
    for setting in moved(rag):
        fresh = Replay(rag.deepcopy(), record)
        for replay in (kept, fresh):
            apply_setting(replay.program, setting)
        assert kept.answers(QUESTIONS) == fresh.answers(QUESTIONS)


def test_another_set_of_demonstrations_takes_another_path(rag):
    def offered():
        program = rag.deepcopy()
        for name in ("judge.relevance", "grounder.responsive"):
            predictor = program.predictor(name)
            few = predictor.demos[:6]
            predictor.candidates = Candidates([predictor.signature], [predictor.demos, few])
        return program

    record = Record()
    kept, names = Replay(offered(), record), {d.name for d in find_dimensions(offered()) if d.nominal}
    assert len(names) == 2
    for number, setting in enumerate(moved(offered(), 8)):
        setting |= {name: (number >> at) % 2 for at, name in enumerate(sorted(names))}
        fresh = Replay(offered(), record)
        for replay in (kept, fresh):
            apply_setting(replay.program, setting)
        assert kept.answers(QUESTIONS) == fresh.answers(QUESTIONS)


def test_a_knob_that_no_run_read_leaves_every_answer_the_very_same_object(rag):
    replay = Replay(rag.deepcopy(), Record())
    apply_setting(replay.program, {**read_setting(rag), "policy.max_rounds": 1, "policy.fresh_above": 0.0})
    before = replay.answers(QUESTIONS)
    apply_setting(replay.program, {"policy.clarify_above": 0.999, "policy.search_claims": 0, "policy.min_gain": 0.123})
    after = replay.answers(QUESTIONS)
    assert all(one is other for one, other in zip(before, after, strict=True))


class Shy(Classifier):
    """A classifier that makes all questions simple past a knob of its own, of which nobody else knows."""

    def __init__(self, cards):
        super().__init__(cards)
        self.shyness = Knob(0.0, 0.0, 1.0, meaning="probability of a base under which nothing is chosen")

    def plan(self, evidence):
        plan = super().plan(evidence)
        return plan if self.shyness.value < 0.5 else replace(plan, route="direct")


def test_a_knob_written_today_anywhere_is_searched_and_replayed_as_it_is_read(rag):
    def shy():
        program = rag.deepcopy()
        demos = program.classifier.route.demos
        program.classifier = Shy(program.runtime.library.describe())
        program.classifier.route.demos = demos
        return program

    assert "classifier.shyness" in {d.name for d in find_dimensions(shy())}
    record = Record()
    kept = Replay(shy(), record)
    paths = []
    for shyness in (0.2, 0.8, 0.2, 0.6):
        fresh = Replay(shy(), record)
        for replay in (kept, fresh):
            apply_setting(replay.program, {"classifier.shyness": shyness})
        assert kept.answers(QUESTIONS) == fresh.answers(QUESTIONS)
        paths.append([answer.trace.path for answer in kept.answers(QUESTIONS)])
    assert paths[0] == paths[2] != paths[1] == paths[3]


class Grade(dspy.Signature):
    """How good is the text?"""

    text: str = dspy.InputField()
    quality: Score["poor", "fair", "good", "best"] = dspy.OutputField(desc="how good it is")  # noqa: F821


def test_a_run_that_looked_at_the_level_of_a_score_is_known_exactly_while_it_comes_to_the_same_level(rag):
    program = rag.deepcopy()
    program.grade = dspy.Predict(Grade)
    parameters = Parameters(program, {"grade": program.grade})
    names = [d.name for d in find_dimensions(program) if d.name.startswith("grade:")]
    found, rng = [0.1, 0.3, 0.4, 0.2], np.random.default_rng(3)
    paths, levels = Paths(parameters), {}
    for _ in range(60):
        apply_setting(program, {name: n + rng.uniform(0.02, 0.98) for n, name in enumerate(names)})
        (known,) = paths.known(["q"])
        watched = Watched(program, Readings(parameters, parameters.row()))
        level = watched.decided("grade", {"quality": found})["quality"].level
        assert level == decode({"quality": found}, program.grade.fields)["quality"].level
        assert (known != NONE) == (level in levels)
        assert known in {NONE, levels.setdefault(level, len(levels))}
        noted = watched.readings
        paths.add(Path("q", noted.low, noted.high, noted.choices, Answer("", Outcome.ABSTAIN)))
    assert len(levels) > 1
