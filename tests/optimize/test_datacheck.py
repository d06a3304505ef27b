"""The check of labelled questions: each contradiction and each shortcut is found, named and told how to mend."""

import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragc.errors import DataError, KnowledgeError
from ragc.knowledge.project import Project
from ragc.optimize.labelled.check import check_questions, require_sound_labels
from ragc.optimize.labelled.dataset import SPLITS, LabelledQuestion, read_labelled
from ragc.optimize.labelled.leaks import link_questions
from ragc.optimize.labelled.rules import Knowledge, read_corpus
from ragc.optimize.labelled.shortcuts import find_shortcuts
from ragc.optimize.labelled.split import split_questions
from ragc.passage import Passage
from tests.optimize.conftest import invoke

PASSAGES = {
    p.id: p
    for p in (
        Passage("billing/refunds.md#window", "billing", "Refunds", "Ask within 30 days of paying."),
        Passage("billing/old.md#window", "billing", "Refunds", "Ask within 14 days of paying."),
        Passage("product/hub.md#hub", "product", "Hub", "One hub serves 4 devices, says Ruth Amankwah."),
        Passage("rooms/a.md#beds", "rooms", "Rooms", "| Room | Beds |\n|---|---|\n| Rowan | 4 |\n\nThere are three."),
    )
}


def project(folder, **labels):
    bases = '[knowledge.docs]\npath = "docs"\n[knowledge.records]\nkind = "tables"\npath = "records"\n'
    for path, text in {
        "ragc.toml": f'name = "p"\n{bases}',
        "docs/a.md": "---\ntitle: Refunds\n---\n# Refunds\nAsk within 30 days.\n",
        "records/orders.csv": "order_id,total\nA1,12813\nA2,77\n",
        "labelled.jsonl": json.dumps({"id": "q1", "question": "How much in all?", "facts": ["12,890"], **labels}),
    }.items():
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_text(text)
    return folder


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """Check questions beside PASSAGES and a table."""
    corpus = read_corpus(Project.open(project(tmp_path_factory.mktemp("tables"))))
    rows = {id_: passage for id_, passage in corpus.passages.items() if id_.startswith("records/")}
    knowledge = Knowledge({**PASSAGES, **rows}, corpus.databases)
    return lambda *questions: check_questions(questions, knowledge)


def question(**labels):
    base = {"id": "q1", "question": "How long may I ask for a refund?", "outcome": "answered", "route": "simple"}
    sound = {"sources": ["billing"], "evidence": ["billing/refunds.md#window"], "facts": ["30 days"]}
    return LabelledQuestion.model_validate({**base, **sound, **labels})


COMPLEX = {
    **{"route": "complex", "sources": ["billing", "product"], "facts": ["30 days", "4 devices"]},
    **{"evidence": ["billing/refunds.md#window", "product/hub.md#hub"]},
    **{"sub_queries": ["days to ask after paying", "devices served by one hub"]},
}
ROOMS = {"sources": ["rooms"], "evidence": ["rooms/a.md#beds"]}
TABLE = {"sources": ["records"], "evidence": ["records/orders"], "facts": ["12,890"]}
SUM = {**TABLE, "sql": "SELECT SUM(total) FROM orders"}
NOTHING = {"sources": (), "evidence": (), "facts": ()}


@pytest.mark.parametrize(
    "labels",
    [
        {},
        {"facts": [["a month", "thirty days"]], "not_facts": ["14-day"], "answer": "Within 30 days."},
        COMPLEX,
        {**SUM, "not_facts": ["77"]},
        {**NOTHING, "outcome": "clarify", "route": None, "answer": "Which plan?"},
        {"outcome": "abstain", "evidence": (), "facts": ()},
        {"route": "direct", "sources": (), "evidence": (), "facts": ["36"]},
    ],
)
def test_sound_labels_pass_without_a_word(report, labels):
    found = report(question(**labels))
    assert found.passed and not [warning for warning in found.warnings if warning.id]


@pytest.mark.parametrize(
    ("labels", "what", "mend"),
    [
        ({"evidence": ["billing/refund.md#window"]}, "is no passage", "billing/refunds.md#window"),
        ({"facts": ["60 days"]}, "does not state the fact '60 days'", "words of the evidence"),
        ({"facts": ["3"]}, "does not state the fact '3'", ""),
        ({**ROOMS, "facts": ["Rowan 4"]}, "does not state the fact 'Rowan 4'", "cannot reach across table cells"),
        ({"not_facts": ["90 days"]}, "nothing in the knowledge states the not_fact '90 days'", ""),
        ({"facts": ["within 30 days"], "not_facts": ["30 days"]}, "'30 days' is part of a fact", ""),
        ({"answer": "Within 14 days."}, "its own answer does not state the fact '30 days'", ""),
        ({"answer": "30 days, once 14 days.", "not_facts": ["14 days"]}, "its own answer states the not_fact", ""),
        ({"history": [{"role": "assistant", "content": "Hi"}]}, "its history holds no question of the asker", ""),
        ({"history": ["how long may I ask for a refund"]}, "its history ends with the question itself", ""),
        ({"sources": ["product"]}, "sources: product; but evidence is in billing", ""),
        ({"sources": ["bills"], "evidence": ()}, "the source 'bills' is no knowledge base", "billing"),
        ({"outcome": "clarify"}, "outcome is clarify but it has facts", "Empty `facts`"),
        ({"outcome": "abstain", "facts": ()}, "outcome is abstain but it has evidence", ""),
        ({"route": "direct"}, "route is direct but it has evidence", ""),
        ({"sub_queries": ["a", "b"]}, "has sub_queries but is not complex", ""),
        ({**COMPLEX, "sub_queries": ["days to ask after paying for one hub"]}, "has 1 sub_queries", "2 to 4"),
        ({**COMPLEX, "sub_queries": ["days to ask", "who?"]}, "no sub_query looks up", "Use words of that passage"),
        ({**TABLE, "sql": "SELECT 1 FROM nothing"}, "its SELECT cannot be run: ", ""),
        ({**SUM, "facts": ["890"]}, "does not state the fact '890'", ""),
    ],
)
def test_an_error_is_named_with_its_remedy(report, labels, what, mend):
    found = report(question(**labels, line=7))
    assert [(f.id, f.line) for f in found.errors] == [("q1", 7)] * len(found.errors)
    assert any(what in f.what and mend in f.mend and f.mend for f in found.errors), found.errors


def test_the_same_words_after_two_conversations_are_two_questions(report):
    asked = {"question": "And for the other kind?", "topic": "refunds", **NOTHING}
    one, two = ({"history": [before]} for before in ("How long may I ask for a refund?", "How many devices serves it?"))
    assert report(question(**asked, **one), question(**asked, **two, id="q2", outcome="clarify")).errors == []
    contradict = report(question(**asked), question(**asked, id="q2", outcome="clarify")).errors
    assert ["the same question, q1" in found.what for found in contradict] == [True]


@pytest.mark.parametrize(
    ("labels", "what"),
    [
        ({**COMPLEX, "sub_queries": ()}, "is complex but has no sub_queries"),
        ({**COMPLEX, "sub_queries": [*COMPLEX["sub_queries"], "x"]}, "looks up none"),
        ({**COMPLEX, "sub_queries": ["days to ask after paying", "the hub?"]}, "hardly look up 'product/hub.md#hub'"),
        ({"evidence": ()}, "has facts but no evidence"),
        ({"facts": ()}, "is answered but has no facts"),
        ({"facts": (), "outcome": None, "answer": "30 days."}, "has an answer but no facts"),
        ({**COMPLEX, "facts": ["4"]}, "the fact '4' is one character"),
        ({**ROOMS, "facts": ["three"]}, "'three' is a number in words without its noun"),
    ],
)
def test_a_warning_leaves_the_questions_usable(report, labels, what):
    found = report(question(**labels))
    assert found.passed and any(what in f.what for f in found.warnings), found.warnings


@pytest.mark.parametrize(
    ("first", "second", "what"),
    [
        ({"topic": "refunds", "evidence": ()}, {"topic": "refunds"}, "'refunds' is in test and, with q1, in train"),
        ({}, {}, "the evidence 'billing/refunds.md#window' is in test"),
        (
            {"evidence": ()},
            {"evidence": (), "question": "how LONG may I ask for a refund"},
            "nearly the question 'How long may I ask for a refund?' is in test and, with q1, in train",
        ),
    ],
)
def test_nothing_but_a_table_may_be_shared_by_two_splits(report, first, second, what):
    other = {"question": "Which day is it by?", "id": "q2", "split": "test", **second}
    found = report(question(**first, split="train"), question(**other))
    assert [what in f.what for f in found.errors] == [True]
    assert report(question(**first, split="train"), question(**{**other, "split": "train"})).passed
    other = question(**SUM, question="Which orders are there?", id="q2", split="test")
    assert report(question(**SUM, question="How many orders?", split="train"), other).passed


HALL = {
    f"b/{n}.md#t": Passage(f"b/{n}.md#t", "b", f"Page {n}", "It costs 10 euros. It takes 30 days.") for n in range(3)
}


@st.composite
def labelled_sets(draw):
    """Draw a set whose questions often share words, topics, passages, labels and splits."""
    words = st.lists(st.sampled_from("what does the dog cost per night in summer".split()), min_size=1, max_size=7)
    found = []
    for n in range(draw(st.integers(1, 12))):
        outcome = draw(st.sampled_from(["answered", "clarify", "abstain", None]))
        labels = {"outcome": outcome, "answer": "It depends."}
        if outcome == "answered":
            facts = st.lists(st.sampled_from(["10 euros", "30 days"]), max_size=1)
            labels = {"outcome": outcome, "facts": draw(facts), "evidence": draw(st.sets(st.sampled_from([*HALL])))}
        labels |= {"topic": draw(st.sampled_from(["", "", *"abcdef"])), "id": f"q{n}"}
        split = draw(st.sampled_from([None, None, None, *SPLITS]))
        found.append(LabelledQuestion(question=" ".join(draw(words)), split=split, **labels))
    return found


@settings(max_examples=400, deadline=None)
@given(labelled_sets(), st.integers(0, 3))
def test_what_the_check_accepts_is_divided_into_splits_that_it_accepts_and_that_a_compile_uses(questions, seed):
    before = check_questions(questions, Knowledge(HALL))
    parts = split_questions(questions, seed)
    written = [q.model_copy(update={"split": name}) for name, part in parts.items() for q in part]
    after = check_questions(written, Knowledge(HALL))
    assert after.passed or not before.passed
    assert split_questions(written) == {name: [q for q in written if q.split == name] for name in SPLITS}


@pytest.mark.parametrize(
    ("one", "two", "bound"),
    [
        ({"outcome": "abstain"}, {"outcome": "clarify"}, False),
        ({"outcome": "abstain"}, {"outcome": "abstain"}, True),
        ({"outcome": "abstain"}, {"answer": "Never."}, True),
        ({"facts": ["10 euros"]}, {"facts": ["30 days"]}, False),
        ({"facts": ["10 euros"]}, {"facts": [["thirty days", "ten euros"]]}, True),
        ({"facts": ["10 euros"], "evidence": ["b/0.md"]}, {"facts": ["10 euros"], "evidence": ["b/1.md"]}, False),
    ],
)
def test_nearly_the_same_questions_are_bound_unless_a_label_tells_them_apart(one, two, bound):
    asked = ("What does the dog cost per night?", "What does the old dog cost per night?")
    near = [LabelledQuestion(id=f"q{n}", question=asked[n], **labels) for n, labels in enumerate((one, two))]
    assert [len(group) for group in link_questions(tuple(near)).groups] == ([2] if bound else [1, 1])


@pytest.mark.parametrize("again", ["When do you open on Sunday?", "when do you  OPEN, on sunday", "Hours?"])
@pytest.mark.parametrize("splits", [(None, None), ("train", "train"), ("train", "test")])
def test_the_same_words_with_two_outcomes_are_an_error_that_names_both_lines(report, again, splits):
    first = "When do you open on Sunday?" if again != "Hours?" else "hours"
    one = question(question=first, split=splits[0], line=3)
    two = question(**NOTHING | {"id": "q2", "question": again, "outcome": "abstain", "split": splits[1], "line": 8})
    errors = [f for f in report(one, two).errors if "same question" in f.what]
    assert [(f.id, f.line) for f in errors] == [("q2", 8)]
    assert "q1 in line 3" in errors[0].what and errors[0].mend
    assert report(one, two.model_copy(update={"question": "Why is it closed on every Monday?", "split": None})).passed


@pytest.mark.parametrize(
    ("text", "warned"),
    [
        ("Ask within 30 days, not 14 days as before.", True),
        ("Ask within 30 days. Before it was 14 days.", False),
        ("| Plan | New | Old |\n|---|---|---|\n| Pro | 30 days | 14 days |", True),
        ("| Plan | Days |\n|---|---|\n| Pro | 30 days |\n| Home | 14 days |", False),
        ("- Pro: 30 days\n- Home: 14 days", False),
    ],
)
def test_a_rival_beside_its_fact_is_a_warning_for_a_right_quotation_would_be_wrong(text, warned):
    passages = {"b/a.md#t": Passage("b/a.md#t", "b", "Refunds", text)}
    labels = {"sources": ["b"], "evidence": ["b/a.md#t"], "not_facts": ["14 days"]}
    found = check_questions([question(**labels)], Knowledge(passages))
    assert not found.errors
    assert any("stands in one sentence or table row with a fact" in w.what for w in found.warnings) == warned


def test_a_passage_that_answers_too_and_is_not_cited_is_a_warning():
    texts = {
        "b/a.md#t": "A refund: ask within 30 days.",
        "b/b.md#t": "A refund for a kettle may be asked for within 30 days.",
        "b/c.md#t": "A lamp is sent within 30 days.",
        **{f"b/d.md#{n}": f"Page {n} is about nothing." for n in range(9)},
    }
    passages = {id_: Passage(id_, "b", "Page", text) for id_, text in texts.items()}
    labels = {"question": "How long may I ask for a refund for the kettle?", "sources": ["b"]}
    cited = check_questions([question(**labels, evidence=["b/a.md#t"])], Knowledge(passages))
    (warning,) = [w for w in cited.warnings if w.id]
    assert "'b/b.md#t', as near" in warning.what and "b/c.md" not in warning.what
    both = check_questions([question(**labels, evidence=["b/a.md#t", "b/b.md#t"])], Knowledge(passages))
    assert not [w for w in both.warnings if w.id]


def test_a_project_is_read_without_an_index_and_its_tables_are_only_read(tmp_path):
    corpus = read_corpus(Project.open(project(tmp_path)))
    assert list(corpus.passages) == ["docs/a.md#refunds", "records/orders#row-1", "records/orders#row-2"]
    assert corpus.tables == {"records/orders"} and not (tmp_path / ".ragc").exists()
    assert corpus.select_rows("SELECT * FROM orders WHERE total < 100") == "order_id | total\nA2 | 77"
    with pytest.raises(KnowledgeError):
        corpus.select_rows("DELETE FROM orders")


def test_a_base_whose_passages_are_known_only_when_it_is_asked_is_a_source_for_the_check_and_for_a_compile(tmp_path):
    folder = project(tmp_path)
    with (folder / "ragc.toml").open("a") as toml:
        toml.write('[knowledge.press]\nkind = "web"\nprovider = "searxng"\nurl = "http://127.0.0.1:9"\n')
    questions = [question(id="q1", sources=["press"], evidence=[], facts=["9 pounds"])]
    assert not require_sound_labels(Project.open(folder), questions).errors
    with pytest.raises(DataError, match="'prose' is no knowledge base"):
        require_sound_labels(Project.open(folder), [question(id="q1", sources=["prose"], evidence=[])])


@pytest.mark.parametrize(("total", "code"), [("SUM(total)", 0), ("MAX(total)", 1)])
def test_labels_that_do_not_hold_fail_the_command_and_keep_a_compile_from_beginning(tmp_path, total, code):
    folder = project(tmp_path, evidence=["records/orders"], sql=f"SELECT {total} FROM orders")
    result = invoke("data", "check", folder, "--json")
    shown = json.loads(result.stdout)
    assert (result.exit_code, shown["passed"], shown["questions"]) == (code, code == 0, 1)
    assert len(shown["errors"]) == code and invoke("data", "check", folder).exit_code == code
    opened = Project.open(folder)
    questions = read_labelled(opened.labelled)
    if code:
        with pytest.raises(
            DataError, match=rf"1 label is not in order: line 1 \(q1\).*ragc data check {opened.folder}$"
        ):
            require_sound_labels(opened, questions)
    else:
        assert require_sound_labels(opened, questions, {"train": questions, "dev": [], "test": questions}).passed


def test_every_unreadable_line_is_reported_beside_what_is_wrong_with_the_others(tmp_path):
    folder = project(tmp_path, evidence=["docs/nosuch.md#a"])
    (folder / "docs/a.md").write_text("---\nauthority: holy\n---\n# A\nText.\n")
    with (folder / "labelled.jsonl").open("a") as file:
        file.write('\n{not json}\n{"id": "q3", "question": "Why?", "facst": ["7"]}\n')
    result = invoke("data", "check", folder, "--json")
    assert isinstance(result.exception, DataError) and result.exception.exit_code == 2
    assert "2 lines of labelled.jsonl" in str(result.exception)
    shown = json.loads(result.stdout)
    assert (shown["passed"], shown["questions"]) == (False, 1) and all(e["mend"] for e in shown["errors"])
    told = {(e["file"], e["line"], e["id"]) for e in shown["errors"]}
    assert told == {("docs/a.md", 2, ""), ("", 1, "q1"), ("", 2, ""), ("", 3, "q3")}
    assert any("Did you mean 'facts'?" in e["mend"] for e in shown["errors"])
    (folder / "docs/blank.md").touch()
    told = invoke("data", "check", folder).stdout
    assert "error: docs/a.md line 2: authority 'holy' is not known" in told and "blank.md: holds no text" in told
    assert all(map(str.strip, told.splitlines()))  # one that has no remedy is a single line


@pytest.mark.parametrize(
    ("topics", "split", "told"),
    [
        (1, None, "a compile cannot begin: no labelled question is left to test on: there is 1 topic, and a topic is"),
        (2, None, "topics: 2 (train 1, dev 0, test 1); a compile can choose on none and prove no gain"),
        (3, None, "topics to test on: 1; with fewer than 6 a compile can prove no gain"),
        (4, "train", "left to test on: the `split` fields, or the version begun from, put all 4 topics elsewhere"),
        (40, None, ""),
    ],
)
def test_too_few_topics_to_compile_or_to_prove_a_gain_are_a_warning(tmp_path, topics, split, told):
    folder = project(tmp_path)
    words = [f"{n:05b}".translate(str.maketrans("01", "xy")) for n in range(topics)]  # so that none are alike
    rows = [
        {"id": w, "topic": w, "question": f"How many {w} of {w}{w}?", "facts": ["70"], "split": split} for w in words
    ]
    (folder / "labelled.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    result = invoke("data", "check", folder, "--json")
    about = [f for f in json.loads(result.stdout)["warnings"] if "topic" in f["what"]]
    assert result.exit_code == 0 and [f["line"] for f in about] == ([0] if told else [])
    assert all(told in f["what"] and f["mend"] for f in about)
    assert not split or f"ragc data split {folder} --again" in about[0]["mend"]


WORDS = "lamp kettle door price parcel refund battery colour window hinge river cloud stone paper".split()
SHORT, LONG = range(3, 7), range(14, 25)


def asked(n, short=None, **traits):
    """Questions of which every third is vague, each trait by its own rule or by chance."""
    r, made = random.Random(5), []
    chance = {"first": ["how", "what", "my", "is"], "end": ["?", ""], "topic": "abcdef", "digit": ["7", "seven"]}
    for i in range(n):
        vague = i % 3 == 0
        own = {name: traits[name](vague, r) if name in traits else r.choice(chance[name]) for name in chance}
        length = r.choice([*SHORT, *LONG] if short is None else SHORT if short(vague, r) else LONG)
        words = [own["first"], own["digit"], *(r.choice(WORDS) for _ in range(length - 2))]
        labels = {"outcome": "clarify" if vague else "abstain", "split": "train", "topic": own["topic"]}
        made.append(LabelledQuestion(id=f"q{i}", question=" ".join(words) + own["end"], **labels))
    return made


def found(questions, feature):
    return next(s for s in find_shortcuts({"train": questions}) if (s.value, s.feature) == ("clarify", feature))


def test_questions_whose_form_is_by_chance_hold_no_shortcut_and_weak_ones_are_strong_together():
    shortcuts = find_shortcuts({"train": asked(300)})
    assert {s.feature for s in shortcuts} == {"length", "question mark", "first word", "digit", "topic", "together"}
    assert max(s.auc for s in shortcuts) < 0.62 and not any(s.warns for s in shortcuts)

    def often(yes, no):
        return lambda vague, r: yes if (r.random() < 0.8) == vague else no

    questions = asked(300, first=often("how", "my"), end=often("", "?"), digit=often("7", "seven"))
    alone = [found(questions, feature).auc for feature in ("first word", "question mark", "digit")]
    assert max(alone) < 0.86 < found(questions, "together").auc


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
    told = [w for w in check_questions(questions, Knowledge({})).warnings if "outcome clarify" in w.what]
    assert [feature in w.what and w.mend == shortcut.mend for w in told] == [True]
