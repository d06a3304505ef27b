"""Shortcuts in labels: what should not matter and yet predicts is found, named and told how to break."""

import random

import pytest

from optimize.labelled.check import check_questions
from optimize.labelled.dataset import LabelledQuestion
from optimize.labelled.shortcuts import LEAST, WARN_ABOVE, find_shortcuts

WORDS = "lamp kettle door price parcel refund battery colour window hinge river cloud stone paper".split()
SHORT, LONG = range(3, 7), range(14, 25)
SURFACE = {"length", "question mark", "first word", "digit"}


def asked(n, short=None, **traits):
    """Questions of which every third is vague, each trait by its own rule or by chance."""
    r = random.Random(5)
    chance = {"first": ["how", "what", "my", "is"], "end": ["?", ""], "topic": "abcdef", "digit": ["7", "seven"]}
    found = []
    for i in range(n):
        vague = i % 3 == 0
        made = {name: traits[name](vague, r) if name in traits else r.choice(chance[name]) for name in chance}
        length = r.choice([*SHORT, *LONG] if short is None else SHORT if short(vague, r) else LONG)
        words = [made["first"], made["digit"], *(r.choice(WORDS) for _ in range(length - 2))]
        labels = {"outcome": "clarify" if vague else "abstain", "split": "train", "topic": made["topic"]}
        found.append(LabelledQuestion(id=f"q{i}", question=" ".join(words) + made["end"], **labels))
    return found


def found(questions, feature):
    (one,) = [s for s in find_shortcuts({"train": questions}) if (s.value, s.feature) == ("clarify", feature)]
    return one


def test_questions_whose_form_is_by_chance_hold_no_shortcut():
    shortcuts = find_shortcuts({"train": asked(300)})
    assert {s.feature for s in shortcuts} == SURFACE | {"topic", "together"}
    assert max(s.auc for s in shortcuts) < 0.62
    assert not any(s.warns for s in shortcuts)


@pytest.mark.parametrize(
    ("feature", "rule", "mend"),
    [
        ("length", {"short": lambda vague, r: vague}, "words that lack outcome"),
        ("question mark", {"end": lambda vague, r: "" if vague else "?"}, "a question mark that"),
        ("first word", {"first": lambda vague, r: "how" if vague else "my"}, "questions that begin with"),
        ("digit", {"digit": lambda vague, r: "7" if vague else "seven"}, "a digit that"),
        ("topic", {"topic": lambda vague, r: r.choice("abc" if vague else "def")}, "the topic"),
    ],
)
def test_a_shortcut_is_named_with_what_would_break_it(feature, rule, mend):
    questions = asked(120, **rule)
    shortcut = found(questions, feature)
    assert shortcut.auc > 0.95 and shortcut.warns and mend in shortcut.mend
    assert (shortcut.n, shortcut.positives) == (120, 40)
    told = [w for w in check_questions(questions, {}).warnings if "outcome clarify" in w.what]
    assert [feature in w.what and w.mend == shortcut.mend for w in told] == [True]


def test_weak_shortcuts_are_strong_together():
    def often(yes, no):
        return lambda vague, r: yes if (r.random() < 0.8) == vague else no

    questions = asked(300, first=often("how", "my"), end=often("", "?"), digit=often("7", "seven"))
    alone = [found(questions, feature).auc for feature in ("first word", "question mark", "digit")]
    assert max(alone) < 0.86 < found(questions, "together").auc


def test_of_few_questions_nothing_is_told_and_a_topic_is_not_held_against_a_knowledge_base():
    assert find_shortcuts({"train": asked(3 * (LEAST - 1), short=lambda vague, r: vague)}) == []
    assert find_shortcuts({"train": asked(3 * LEAST, short=lambda vague, r: vague)})[0].auc > WARN_ABOVE
    questions = [
        LabelledQuestion(id=f"q{i}", question=f"What of {i}?", topic=f"t{i % 4}", sources=(f"base{i % 2}",))
        for i in range(80)
    ]
    assert {s.feature for s in find_shortcuts({"train": questions})} == SURFACE | {"together"}
