"""Each public layout becomes a knowledge base and labelled questions that the check lets pass."""

import json

import pytest

from optimize.labelled.check import check_questions
from optimize.labelled.dataset import read_labelled
from optimize.labelled.imports import import_set
from optimize.labelled.rules import read_corpus
from program.errors import DataError
from program.knowledge.project import Project

PAIRS = [
    ["Merle", ["The Merle is a kettle.", " It holds 1.7 litres."]],
    ["Wren", ["The Wren is a kettle made in Oslo."]],
]
HOTPOT = {
    "_id": "h1", "question": "Where is the kettle smaller than the Merle made?", "answer": "Oslo", "type": "bridge",
    "supporting_facts": [["Merle", 1], ["Wren", 0]], "context": [*PAIRS, ["Kite", ["A kite is no kettle."]]],
}  # fmt: skip
COLUMNS = {
    "id": "h2", "question": "Are both kettles?", "answer": "yes",
    "supporting_facts": {"title": ["Merle"], "sent_id": [0]},
    "context": {"title": ["Merle"], "sentences": [PAIRS[0][1]]},
}  # fmt: skip
TWO_WIKI = {**HOTPOT, "_id": "w1", "evidences": [["Wren", "made in", "Oslo"]]}
MUSIQUE = {
    "id": "2hop__1", "question": "What is the country where the Wren is made?",
    "answer": "Norway", "answer_aliases": ["Norge"], "answerable": True,
    "paragraphs": [
        {"idx": 0, "title": "Wren", "paragraph_text": "The Wren is made in Oslo.", "is_supporting": True},
        {"idx": 1, "title": "Oslo", "paragraph_text": "Oslo is the capital of Norway.", "is_supporting": True},
        {"idx": 2, "title": "Kite", "paragraph_text": "A kite is no kettle.", "is_supporting": False},
    ],
    "question_decomposition": [
        {"question": "Wren >> made in", "answer": "Oslo"}, {"question": "country of #1", "answer": "Norway"},
    ],
}  # fmt: skip
SQUAD = {"data": [{"title": "Kettles_of_Oslo", "paragraphs": [{
    "context": "The Wren holds 0.8 litres.",
    "qas": [
        {"id": "s1", "question": "How much does the Wren hold?", "answers": [{"text": "0.8 litres"}]},
        {"id": "s2", "question": "How much does the Kite hold?", "answers": [], "is_impossible": True},
    ],
}]}]}  # fmt: skip
BEIR = {
    "corpus.jsonl": '{"_id": "d 1", "title": "Wren", "text": "The Wren is made in Oslo."}\n{"_id": "d2", "text": ""}\n',
    "queries.jsonl": '{"_id": "q1", "text": "Where is the Wren made?", "metadata": {"answer": "Oslo"}}\n'
    '{"_id": "q2", "text": "Nobody judged this."}\n',
    "qrels/test.tsv": "query-id\tcorpus-id\tscore\nq1\td 1\t1\nq1\td2\t1\nq2\td 1\t0\n",
}
TABLE = """question,answer,context,topic
Where is the Wren made?,Oslo,"The Wren, a kettle, is made in Oslo.",kettles
What does the Kite cost?,,,
"""


@pytest.fixture
def imported(tmp_path):
    """Import a file of that content, check the project, and return its questions by id."""

    def run(name, content, format="", **more):
        source = tmp_path / name
        source.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
        import_set(tmp_path / "project", source, format, **more)
        return checked(tmp_path / "project")

    return run


def checked(folder):
    project = Project.open(folder)
    questions, corpus = read_labelled(project.labelled), read_corpus(project)
    report = check_questions(questions, corpus.passages, corpus.tables)
    assert report.passed, report.errors
    return {q.id: q for q in questions}


def test_hotpotqa_is_told_by_its_keys_and_read_in_both_its_layouts(imported, tmp_path):
    found = imported("hotpot.json", [HOTPOT, COLUMNS])
    bridge, comparison = found["h1"], found["h2"]
    assert bridge.evidence == ("hotpotqa/corpus.jsonl#p1", "hotpotqa/corpus.jsonl#p2")
    assert (bridge.route, bridge.outcome, bridge.facts, bridge.tags) == ("complex", "answered", ("Oslo",), ("bridge",))
    assert (comparison.route, comparison.facts, comparison.answer) == ("simple", (), "yes")
    assert bridge.topic == comparison.topic  # they share a passage
    texts = [p.text for p in read_corpus(Project.open(tmp_path / "project")).passages.values()]
    assert texts[0] == "The Merle is a kettle. It holds 1.7 litres." and len(texts) == 3
    assert imported("dev.json", [TWO_WIKI])["w1"].sources == ("twowiki",)


def test_musiques_hops_are_sub_queries_with_the_answers_put_in(imported):
    unanswerable = {**MUSIQUE, "id": "2hop__2", "answerable": False}
    found = imported("musique.jsonl", "\n".join(json.dumps(row) for row in (MUSIQUE, unanswerable)))
    assert found["2hop__1"].sub_queries == ("Wren >> made in", "country of Oslo")
    assert found["2hop__1"].facts == (("Norway", "Norge"),)
    assert (found["2hop__2"].outcome, found["2hop__2"].evidence) == ("abstain", ())


def test_squads_impossible_questions_are_ones_to_abstain_from(imported):
    found = imported("dev-v2.0.json", SQUAD)
    assert (found["s1"].facts, found["s1"].topic) == (("0.8 litres",), "Kettles of Oslo")
    assert (found["s2"].outcome, found["s2"].facts, found["s2"].topic) == ("abstain", (), "Kettles of Oslo")


def test_a_beir_folder_gives_its_judged_questions(tmp_path):
    for name, text in BEIR.items():
        (tmp_path / "beir" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "beir" / name).write_text(text)
    report = import_set(tmp_path / "project", tmp_path / "beir", base="kettles")
    found = checked(tmp_path / "project")
    assert (report.format, report.questions, report.passages, report.unchecked) == ("beir", 1, 1, 0)
    assert found["q1"].evidence == ("kettles/corpus.jsonl#d 1",) and found["q1"].facts == ("Oslo",)


def test_an_import_adds_to_a_project_and_leaves_what_is_there(own_shop, tmp_path):
    before = (own_shop / "labelled.jsonl").read_text()
    source = tmp_path / "faq.csv"
    source.write_text(TABLE)
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
    assert list(imported("dev.json", SQUAD, limit=1)) == ["s1"]
    monkeypatch.setattr("optimize.labelled.imports.MAX_MEGABYTES", 0.0001)
    assert imported("hotpot.json", [HOTPOT])["h1"].evidence[1] == "hotpotqa/corpus.jsonl#p2"
    assert Project.open(tmp_path / "project").settings.knowledge["hotpotqa"].max_megabytes == 1


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
        ("a.csv", TABLE, {"base": "../up"}, "no name for a knowledge base"),
        ("", "", {}, "nothing at"),
    ],
)
def test_what_is_no_set_is_an_error_and_makes_no_project(tmp_path, name, content, more, complaint):
    if name:
        (tmp_path / name).write_text(content)
    with pytest.raises(DataError, match=complaint):
        import_set(tmp_path / "project", tmp_path / (name or "none.json"), **more)
    assert not (tmp_path / "project").exists() and not (tmp_path / "up").exists()
