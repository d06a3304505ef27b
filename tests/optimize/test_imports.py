"""Each public layout becomes a knowledge base and labelled questions that the check lets pass."""

import csv
import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ragc.errors import DataError
from ragc.knowledge.project import Project
from ragc.optimize.labelled.check import check_questions
from ragc.optimize.labelled.dataset import read_labelled
from ragc.optimize.labelled.imports import import_set
from ragc.optimize.labelled.rules import read_corpus
from tests.conftest import write_shop

SETS = Path(__file__).parent / "sets"


def checked(folder):
    """The questions of a project by their ids, once the check has let them pass."""
    project = Project.open(folder)
    questions, corpus = read_labelled(project.labelled), read_corpus(project)
    report = check_questions(questions, corpus)
    assert report.passed, report.errors
    return {q.id: q for q in questions}


@pytest.fixture
def imported(tmp_path):
    """Import a set into the project of the test, check it, and return its questions by id."""

    def run(name, **more):
        import_set(tmp_path / "project", SETS / name, **more)
        return checked(tmp_path / "project")

    return run


def test_hotpotqa_is_told_by_its_keys_and_read_in_both_its_layouts(imported, tmp_path):
    found = imported("hotpot.json")
    bridge, comparison = found["h1"], found["h2"]
    assert bridge.evidence == ("hotpotqa/corpus.jsonl#p1", "hotpotqa/corpus.jsonl#p2")
    assert (bridge.route, bridge.outcome, bridge.facts, bridge.tags) == ("complex", "answered", ("Oslo",), ("bridge",))
    assert (comparison.route, comparison.facts, comparison.answer) == ("simple", (), "yes")
    assert bridge.topic == comparison.topic  # they share a passage
    texts = [p.text for p in read_corpus(Project.open(tmp_path / "project")).passages.values()]
    assert texts[0] == "The Merle is a kettle. It holds 1.7 litres." and len(texts) == 3
    assert imported("twowiki.json")["w1"].sources == ("twowiki",)


def test_musiques_hops_are_sub_queries_with_the_answers_put_in_and_what_it_answers_and_does_not_is_told(tmp_path):
    report = import_set(tmp_path / "project", SETS / "musique.jsonl")
    assert (report.questions, report.contrary) == (2, 1)
    found = checked(tmp_path / "project")
    assert found["2hop__1"].sub_queries == ("Wren >> made in", "country of Oslo")
    assert found["2hop__1"].facts == (("Norway", "Norge"),)
    assert (found["2hop__3"].outcome, found["2hop__3"].evidence) == ("abstain", ())
    assert "2hop__2" not in found  # all passages lie in one base, where the same question has an answer


def test_squads_impossible_questions_are_ones_to_abstain_from(imported):
    found = imported("squad.json")
    assert (found["s1"].facts, found["s1"].topic) == (("0.8 litres",), "Kettles of Oslo")
    assert (found["s2"].outcome, found["s2"].facts, found["s2"].topic) == ("abstain", (), "Kettles of Oslo")


def test_a_beir_folder_gives_its_judged_questions(tmp_path):
    report = import_set(tmp_path / "project", SETS / "beir", base="kettles")
    found = checked(tmp_path / "project")
    assert (report.format, report.questions, report.passages, report.unchecked) == ("beir", 1, 1, 0)
    assert found["q1"].evidence == ("kettles/corpus.jsonl#d 1",) and found["q1"].facts == ("Oslo",)


def test_an_import_adds_to_a_project_and_leaves_what_is_there(own_shop):
    before = (own_shop / "labelled.jsonl").read_text()
    source = SETS / "faq.csv"
    import_set(own_shop, source, base="faq")
    assert (own_shop / "labelled.jsonl").read_text().startswith(before)
    added = checked(own_shop)["faq-1"]
    assert (added.facts, added.topic) == (("Oslo",), "kettles") and "faq-2" not in checked(own_shop)
    assert list(Project.open(own_shop).settings.knowledge) == ["product", "billing", "faq"]
    for base, complaint in (("faq", "knowledge base 'faq' already"), ("more", "id 'faq-1' already")):
        with pytest.raises(DataError, match=complaint):
            import_set(own_shop, source, base=base)
    assert not (own_shop / "knowledge" / "more").exists()


def test_a_limit_takes_the_first_questions_and_a_large_corpus_is_not_skipped(imported, tmp_path, monkeypatch):
    assert list(imported("squad.json", limit=1)) == ["s1"]
    monkeypatch.setattr("ragc.optimize.labelled.imports.MAX_MEGABYTES", 0.0001)
    assert imported("hotpot.json")["h1"].evidence[1] == "hotpotqa/corpus.jsonl#p2"
    assert Project.open(tmp_path / "project").settings.knowledge["hotpotqa"].max_megabytes == 1


ROWS = [
    ["Question", "Answer", "Context"],
    ["Where is the Wren made?", "Oslo", "The Wren, a kettle, is made in Oslo; by hand."],
    ["", "Rome", "The Kite is made in Rome."],
    ["What does the Kite cost?", "", ""],
    ["Who made the Merle?", "Ann", ""],
    ["Wo ist das Café?", "Malmö", "Das Café ist in Malmö."],
]


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
def test_a_table_of_questions_is_read_as_tables_are_and_rows_left_out_are_counted(tmp_path, separator, encoding):
    source = tmp_path / "faq.csv"
    with source.open("w", encoding=encoding, newline="") as file:
        csv.writer(file, delimiter=separator).writerows(ROWS)
    report = import_set(tmp_path / "project", source, base="faq")
    found = checked(tmp_path / "project")
    assert {n: q.answer for n, q in found.items()} == {"faq-1": "Oslo", "faq-4": "Ann", "faq-5": "Malmö"}
    assert (report.questions, report.passages, found["faq-5"].facts) == (3, 2, ("Malmö",))
    assert [(flaw.what, flaw.line, flaw.path) for flaw in report.flaws if "Windows" not in flaw.what] == [
        ("1 row without a question; left out", 3, "faq.csv"),
        ("1 row with neither context nor answer; left out", 4, "faq.csv"),
        ("1 row without a context, so that the answer has no evidence", 5, "faq.csv"),
    ]
    assert all(flaw.mend for flaw in report.flaws)


def test_an_excel_file_of_questions_is_read_as_a_csv_of_them_is(tmp_path):
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for row in ROWS:
        book.active.append(row)
    book.save(tmp_path / "faq.xlsx")
    report = import_set(tmp_path / "project", tmp_path / "faq.xlsx", base="faq")
    assert (report.format, report.questions) == ("csv", 3) and len(checked(tmp_path / "project")) == 3


@pytest.mark.parametrize(
    ("name", "content", "more", "complaint"),
    [
        ("a.json", "{}", {}, "looks like no known format"),
        ("a.json", "not json", {"format": "hotpotqa"}, "cannot be read as hotpotqa"),
        ("a.json", "[]", {"format": "hotpotqa"}, "holds no questions"),
        ("a.json", '[{"question": "x"}]', {"format": "hotpotqa"}, "cannot be read as hotpotqa"),
        ("a.json", "{}", {"format": "trivia"}, "no format 'trivia'"),
        ("a.csv", "question,answer\nWho?,Ann\n", {}, "brings no passages"),
        ("a.csv", "name\nAnn\n", {}, "names no column `question`, but name"),
        ("a.csv", (SETS / "faq.csv").read_text(), {"base": "../up"}, "no name for a knowledge base"),
        (
            "a.csv",
            "question,wanted\nWho?,Ann\n",
            {},
            "Add a column `context` or `answer`: there are question, wanted",
        ),
        ("a.csv", "question,answer\nWho?,\n", {}, "1 row with neither context nor answer; left out. Fill the column"),
        ("a.csv", "a,b,c\n1,2,3\n", {"question": "Frage"}, "has no column 'Frage'. Name one of its own: a, b, c"),
        ("a.csv", "question,answer\n,Ann\n", {}, "1 row without a question; left out. Fill the column `question`"),
        (
            "a.json",
            '[{"input": [{"role": "system", "content": "x"}], "ideal": "y"}]',
            {},
            "1 row without a question; left out",
        ),
        ("a.csv", "\0\0", {}, "was not read: binary"),
        ("", "", {}, "nothing at"),
    ],
)
def test_what_is_no_set_is_an_error_and_makes_no_project(tmp_path, name, content, more, complaint):
    if name:
        (tmp_path / name).write_text(content)
    with pytest.raises(DataError, match=complaint) as caught:
        import_set(tmp_path / "project", tmp_path / (name or "none.json"), **more)
    assert not (tmp_path / "project").exists() and not (tmp_path / "up").exists()
    assert not re.search(r"[A-Z][a-z]+Error", str(caught.value)), "no name of a class of Python's"


KILLED = """
import os, signal, sys
from pathlib import Path
from ragc.optimize.labelled import imports
left, write = [int(sys.argv[1])], imports.write_whole
def write_or_die(path, content):
    if left[0] == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    left[0] -= 1
    write(path, content)
imports.write_whole = write_or_die
imports.import_set(Path(sys.argv[2]), Path(sys.argv[3]))
"""


def read_files(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(("source", "new"), [("squad.json", True), ("beir", True), ("squad.json", False)])
def test_an_import_that_was_killed_after_any_write_is_given_again_and_ends_as_one_that_was_not(tmp_path, source, new):
    def make(name):
        return tmp_path / name / "shop" if new else write_shop(tmp_path / name / "shop")

    import_set(make("whole"), SETS / source)
    for writes in range(3):
        folder = make(f"killed {writes}")
        for _ in range(2):
            command = [sys.executable, "-c", KILLED, str(writes), str(folder), str(SETS / source)]
            assert subprocess.run(command, capture_output=True).returncode == -signal.SIGKILL
        report = import_set(folder, SETS / source)
        assert report.questions and read_files(folder) == read_files(tmp_path / "whole" / "shop")
        with pytest.raises(DataError, match="already"):
            import_set(folder, SETS / source)


def test_a_folder_of_somebody_s_own_and_a_question_of_another_text_are_not_taken_for_a_killed_import(own_shop):
    (own_shop / "knowledge" / "squad").mkdir()
    (own_shop / "knowledge" / "squad" / "mine.md").write_text("# Mine")
    with pytest.raises(DataError, match="knowledge base 'squad' already"):
        import_set(own_shop, SETS / "squad.json")
    (own_shop / "knowledge" / "more").mkdir()
    (own_shop / "knowledge" / "more" / "corpus.jsonl").touch()
    with (own_shop / "labelled.jsonl").open("a") as file:
        file.write('{"id": "s1", "question": "Is it mine?", "outcome": "abstain"}\n')
    before = read_files(own_shop)
    with pytest.raises(DataError, match="the id 's1' already"):
        import_set(own_shop, SETS / "squad.json", base="more")
    assert read_files(own_shop) == before


MONEY = "billing/refunds.md#money-back"
PAGE, ASKED = "Descale the kettle every six weeks.", "How often is it descaled?"
SAID = [{"role": "system", "content": "Be short."}, {"role": "user", "content": "Is it steel?"}]
CASES = {
    "ragas.jsonl": {"user_input": ASKED, "reference": "six weeks", "reference_contexts": [PAGE]},
    "ragas.json": [{"user_input": ASKED, "ground_truths": ["six weeks"], "contexts": [PAGE]}],
    "deepeval.jsonl": {"input": ASKED, "expected_output": "six weeks", "context": [PAGE]},
    "deepeval.json": {"goldens": [{"input": ASKED, "expected_output": "six weeks", "context": [PAGE]}]},
    "promptfoo.jsonl": {
        "vars": {"question": ASKED, "context": PAGE},
        "assert": [{"type": "javascript", "value": "output.length"}, {"type": "icontains", "value": "six weeks"}],
    },
    "promptfoo.yaml": {
        "prompts": ["{{question}}"],
        "tests": [
            {"vars": {"question": ASKED, "context": PAGE}, "assert": [{"type": "contains-all", "value": ["six weeks"]}]}
        ],
    },
    "evals.jsonl": {"input": [*SAID, {"role": "user", "content": ASKED}], "ideal": ["six weeks"], "context": PAGE},
}


@pytest.mark.parametrize("name", CASES)
def test_test_cases_of_evaluation_tools_are_questions_with_their_contexts_as_evidence(tmp_path, name):
    (tmp_path / name).write_text(json.dumps(CASES[name], indent=2 * (".jsonl" not in name) or None) + "\n")
    report = import_set(tmp_path / "project", tmp_path / name)
    (question,) = checked(tmp_path / "project").values()
    assert report.format == name.partition(".")[0] and question.question == ASKED
    assert [*question.facts] == ["six weeks"] and len(question.evidence) == 1
    assert [turn.content for turn in question.history] == ["Is it steel?"] * name.startswith("evals")


ANSWERED = {  # questions and answers, and of each what is proposed: the evidence and the facts
    "How long do I have to ask for my money back?": ("30 days", MONEY, "30 days"),
    "When is it too late for a refund?": (
        "The money is back within 30 days of the delivery.",
        MONEY,
        "30 days",
    ),
    "Who sings?": ("a fortnight of Sundays", "", ""),
}


@pytest.mark.parametrize("kind", ["csv", "xlsx", "promptfoo", "evals"])
def test_an_answer_without_a_context_is_looked_up_in_the_documents(own_shop, tmp_path, kind):
    pairs, source = [(asked, answer) for asked, (answer, *_) in ANSWERED.items()], tmp_path / f"faq.{kind}"
    if kind == "xlsx":
        openpyxl = pytest.importorskip("openpyxl")
        book = openpyxl.Workbook()
        for row in (("Frage", "Antwort"), *pairs):
            book.active.append(row)
        book.save(source)
    elif kind == "csv":
        source.write_text("Nr;Wortlaut;Soll\n" + "".join(f"{n};{';'.join(pair)}\n" for n, pair in enumerate(pairs)))
    else:
        source = tmp_path / "faq.jsonl"
        cases = [{"vars": {"query": q}, "assert": [{"type": "contains", "value": answer}]} for q, answer in pairs]
        cases = cases if kind == "promptfoo" else [{"input": q, "ideal": answer} for q, answer in pairs]
        source.write_text("\n".join(map(json.dumps, cases)))
    named = {"question": "Wortlaut", "answer": "soll"} if kind == "csv" else {}
    before = {*checked(own_shop)}
    report = import_set(own_shop, source, **named)
    labels = [one for name, one in checked(own_shop).items() if name not in before]
    assert {q.question: (q.answer, "".join(q.evidence), "".join(q.facts)) for q in labels} == ANSWERED
    assert (report.proposed, report.unchecked) == (2, 1)
    assert [q.tags for q in labels] == [("proposed",), ("proposed",), ()]


@pytest.mark.parametrize("name", ["faq.csv", "faq.jsonl"])
def test_a_question_without_an_answer_is_left_out_unless_it_is_one_to_abstain_from(own_shop, tmp_path, name):
    cases = [{"input": "Is there a blue one?", "ideal": ""}, {"input": "How many watts?", "ideal": "2000 watts"}]
    rows = "question,answer\nIs there a blue one?,\nHow many watts?,2000 watts\n"
    (tmp_path / name).write_text(rows if name == "faq.csv" else "\n".join(map(json.dumps, cases)))
    report = import_set(own_shop, tmp_path / name)
    assert report.questions == 1 and any("--abstain" in flaw.mend for flaw in report.flaws)
    other = write_shop(tmp_path / "other")
    assert import_set(other, tmp_path / name, abstain=True).questions == 2
    assert [one.outcome for one in checked(other).values() if one.question == "Is there a blue one?"] == ["abstain"]


@pytest.mark.parametrize(
    ("assertions", "facts"),
    [
        ([{"type": "contains-any", "value": ["six weeks", "6 weeks"]}], (("six weeks", "6 weeks"),)),
        ([{"type": "icontains-all", "value": "kettle, six weeks"}], ("kettle", "six weeks")),
        (
            [{"type": "is-json"}, {"type": "contains", "value": "six"}, {"type": "equals", "value": "weeks"}],
            ("six", "weeks"),
        ),
        ([{"type": "contains-all", "value": ["kettle", "eight weeks"]}], ()),
    ],
)
def test_what_assertions_ask_for_are_facts_where_the_context_states_all_of_it(tmp_path, assertions, facts):
    (tmp_path / "cases.json").write_text(
        json.dumps([{"vars": {"query": ASKED, "context": PAGE}, "assert": assertions}])
    )
    import_set(tmp_path / "project", tmp_path / "cases.json")
    assert [question.facts for question in checked(tmp_path / "project").values()] == [facts]


def test_a_table_of_test_cases_may_call_its_columns_as_evaluation_tools_do(tmp_path):
    rows = [["question", "__expected", "context"], ["How often?", "icontains: six weeks", PAGE]]
    with (tmp_path / "tests.csv").open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    import_set(tmp_path / "project", tmp_path / "tests.csv")
    (question,) = checked(tmp_path / "project").values()
    assert [*question.facts] == ["six weeks"]
