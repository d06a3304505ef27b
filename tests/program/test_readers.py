"""Who may read what: whoever asks gets what they would of a project without the documents that are kept from them."""

import asyncio
import csv
import os
import sqlite3
import tempfile
from pathlib import Path

import dspy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragc import Outcome, open_program
from ragc.knowledge.index.build import build_index
from ragc.knowledge.index.fusion import STRATEGIES
from ragc.knowledge.index.qdrant import QdrantVectors
from ragc.knowledge.ingest.folder import list_bases, read_base
from ragc.knowledge.library import Library
from ragc.knowledge.project import Project
from ragc.knowledge.tables import Database
from ragc.passage import Filters, may_read
from ragc.settings import DocumentsSettings, TablesSettings
from tests.program.knowledge.word_embedder import WordEmbedder

PROJECTS = int(os.environ.get("RAGC_PROJECTS", "6"))  # that are generated; two hundred take minutes
NAMES = ("Merle kettle", "Wren lamp", "Robin fan", "Alder House")
GROUPS = ("board", "finance")
QUESTIONS = ("What does the Merle kettle cost?", "Who sells the Wren lamp at Alder House?", "cost of the fan in 2024")
TOML = 'name = "goods"\n[trace]\nenabled = false\n'
readers = st.sampled_from((None, None, {"board"}, {"finance"}, {*GROUPS}))
group_sets = st.sampled_from([(), *((group,) for group in GROUPS), GROUPS])
document = st.tuples(
    st.sampled_from("ab"), readers, st.sampled_from(NAMES), st.sampled_from(NAMES), st.integers(1, 40),
    st.none() | st.integers(0, 5), st.sampled_from(("", "as_of: 2024-03-01\n", "as_of: 2025-03-01\nauthority: official\n")),
)  # fmt: skip
rows = st.lists(st.tuples(readers, st.sampled_from(NAMES), st.integers(1, 40)), min_size=2, max_size=4)
project = st.tuples(st.lists(document, min_size=2, max_size=6), rows, readers)


def write_project(folder, made, groups):
    """Write what these groups may read of a project, None for all of it."""
    documents, table, of_b = made
    admits = lambda *needed: groups is None or may_read(tuple(map(tuple, filter(None, needed))), groups)  # noqa: E731
    files = {"a/all.md": "# Alder House\nAlder House sells the Merle kettle and the Robin fan.\n"}
    for n, (base, kept, name, other, price, old, more) in enumerate(documents):
        head = more + (f"readers: [{', '.join(sorted(kept))}]\n" if kept else "")
        head += f"supersedes: {documents[old][0]}/{old}.md\n" if old is not None and old < n else ""
        text = (
            f"---\n{head}---\n# {name}\n## Price\nThe {name} costs {price} EUR at the {other}.\n## Colour\nIt is red.\n"
        )
        if admits(kept, of_b if base == "b" else None):
            files[f"{base}/{n}.md"] = text
    lines = [f'{name},{price},"{", ".join(sorted(kept or ()))}"' for kept, name, price in table if admits(kept)]
    files |= {"t/prices.csv": "\n".join(["item,price,readers", *lines])} if lines else {}
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    toml = TOML + "".join(
        f'[knowledge.{base}]\npath = "{base}"\nabout = "prices of {base}"\n' + more
        for base, more in (("a", ""), ("b", f"readers = {sorted(of_b)}\n" if of_b else ""), ("t", 'kind = "tables"\n'))
        if (folder / base).exists()
    )
    (folder / "ragc.toml").write_text(toml)
    return Project.open(folder)


def open_words(project):
    bases, place = list_bases(project), project.folder / "index"
    build_index(bases, place, WordEmbedder())
    return Library.open(bases, place, WordEmbedder(), settings=project.settings)


@settings(max_examples=30)
@given(project, group_sets)
def test_a_search_finds_what_it_would_without_what_its_reader_may_not_see(made, groups):
    with tempfile.TemporaryDirectory() as folder:
        whole = open_words(write_project(Path(folder) / "whole", made, None))
        less = open_words(write_project(Path(folder) / "less", made, frozenset(groups)))
    part = whole.readable_by(groups)
    assert part.describe() == less.describe() and part.index_digest == less.index_digest
    for query in QUESTIONS:
        assert part.find_known_words(query) == less.find_known_words(query)
        for weight, graph in STRATEGIES.values():
            assert part.search(query, weight=weight, graph=graph) == less.search(query, weight=weight, graph=graph)


@settings(max_examples=PROJECTS)
@given(project, group_sets)
def test_an_answer_is_what_it_would_be_without_what_its_reader_may_not_see(made, groups):
    with tempfile.TemporaryDirectory() as folder:
        whole = open_program(write_project(Path(folder) / "whole", made, None))
        less = open_program(write_project(Path(folder) / "less", made, frozenset(groups)))
        for question in QUESTIONS:
            assert show(whole(question, readers=groups)) == show(less(question, readers=groups))


def show(answer):
    """All of an answer that does not depend on the clock."""
    shown = answer.toDict()
    steps = [{k: v for k, v in step.items() if k not in ("milliseconds", "began")} for step in shown["trace"]["steps"]]
    return {**shown, "trace": (shown["trace"]["path"], steps), "usage": {**shown["usage"], "seconds": 0}}


FRONT = "---\n{}\n---\n# Pay\nThe pay is 7 EUR.\n"
KINDS = {
    "a list": ("a.md", FRONT.format("readers: [board, finance]"), (("board", "finance"),)),
    "a text": ("a.txt", FRONT.format("readers: finance, board"), (("board", "finance"),)),
    "no key": ("a.md", FRONT.format("title: x"), ()),
    "no group": ("a.md", FRONT.format("readers:"), ((),)),
    "a misspelt key": ("a.md", FRONT.format("Reader: board"), ((),)),
    "a key that is like it": ("a.md", FRONT.format("leaders: board"), ()),
    "broken YAML": ("a.md", FRONT.format("title: a: b\nreaders: board"), ((),)),
    "front matter without an end": ("a.md", "---\nreaders: board\n# Pay\nIt is 7.\n", ((),)),
    "front matter that is no first line": ("a.md", "\n" + FRONT.format("readers: board"), ((),)),
    "a page's head": ("a.html", '<head><meta name="readers" content="board"></head><p>It is 7.</p>', (("board",),)),
    "a record": ("a.jsonl", '{"text": "It is 7.", "readers": ["board"]}', (("board",),)),
    "a record's metadata": ("a.jsonl", '{"text": "It is 7.", "metadata": {"readers": "board"}}', (("board",),)),
    "a row": ("a.csv", "item,pay,Readers\nclerk,7,board", (("board",),)),
    "a row for all": ("a.csv", "item,pay,readers\nclerk,7,", ()),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_document_says_who_may_read_it_and_nobody_may_where_that_cannot_be_told(kind, tmp_path):
    name, content, needed = KINDS[kind]
    (tmp_path / name).write_text(content)
    contents = read_base("pay", DocumentsSettings(path=str(tmp_path)))
    assert {passage.readers for passage in contents.passages} == {needed}
    assert bool(contents.flaws) == (needed == ((),))
    assert "board" not in "".join(passage.text for passage in contents.passages) or needed == ((),)


PAY = [("clerk", 7, ""), ("clerk", 9, "board"), ("chair", 50, "board, finance"), ("guard", 8, None)]
SELECTS = {
    "SELECT SUM(pay) AS total FROM staff": {"": "total: 15", "finance": "total: 65", "board": "total: 74"},
    "SELECT s.name FROM staff s WHERE EXISTS (SELECT 1 FROM staff WHERE pay > 9) AND s.pay = 7": {
        "": "",
        "board": "name: clerk",
    },
    "SELECT readers FROM staff": {"": "", "board": ""},
    "SELECT name FROM seen": {"": "", "board": ""},
    "SELECT * FROM staff ORDER BY pay DESC LIMIT 1": {"": "name: guard; pay: 8", "board": "name: chair; pay: 50"},
}


@pytest.mark.parametrize("kind", ["csv", "sqlite"])
def test_a_select_and_the_schema_know_no_row_that_its_reader_may_not_see(kind, tmp_path):
    if kind == "csv":
        with (tmp_path / "staff.csv").open("w") as file:
            csv.writer(file).writerows([("name", "pay", "readers"), *PAY])
    else:
        with sqlite3.connect(tmp_path / "pay.db") as connection:
            connection.execute("CREATE TABLE staff (name TEXT, pay INTEGER, readers TEXT)")
            connection.execute("CREATE VIEW seen AS SELECT name, pay FROM staff")
            connection.executemany("INSERT INTO staff VALUES (?, ?, ?)", PAY)
    place = {"path": str(tmp_path)} if kind == "csv" else {"url": f"sqlite:///{tmp_path / 'pay.db'}"}
    base = TablesSettings(kind="tables", **place)
    build_index({"pay": base}, tmp_path / "index", WordEmbedder())
    library = Library.open({"pay": base}, tmp_path / "index", WordEmbedder())
    for sql, texts in SELECTS.items():
        for group, text in texts.items():
            found = library.readable_by(filter(None, [group])).candidates("pay", filters=Filters(sql=sql))
            assert [p.text for p in found] == ([text] if text else []), (sql, group)
    told = library.readable_by().describe_tables("pay")
    assert "chair" not in told and "50" not in told and "50" in library.readable_by("board").describe_tables("pay")
    assert len(library.readable_by().passages()) == 2
    assert Database("pay", base, frozenset([()])).columns == {"staff": ["name", "pay"]}


@pytest.fixture(scope="module")
def office(tmp_path_factory):
    """A project with a page for all, one for the board, and a base for finance."""
    folder = tmp_path_factory.mktemp("office")
    for path, text in {
        "house/hours.md": "# Hours\nThe office opens at 8:30.\n",
        "house/merger.md": "---\nreaders: board\nsupersedes: house/hours.md\n---\n# Merger\nThe merger with Wren closes in May.\n",
        "money/pay.md": "# Pay\nThe chair is paid 50,000 EUR.\n",
    }.items():
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_text(text)
    bases = '[knowledge.house]\npath = "house"\n[knowledge.money]\npath = "money"\nreaders = ["finance"]\n'
    (folder / "ragc.toml").write_text(TOML + bases)
    return open_program(folder)


MERGER, HOURS = "When does the merger with Wren close?", "When does the office open?"


def test_without_readers_an_answer_is_of_what_all_may_read_however_it_is_asked(office):
    async def streamed(**asked):
        return [event async for event in office.stream(MERGER, **asked)][-1]

    ways = office, lambda q, **a: asyncio.run(office.aask(q, **a)), lambda q, **a: asyncio.run(streamed(**a))
    for ask in ways:
        assert "May" not in ask(MERGER).text and "May" in ask(MERGER, readers={"board"}).text
        assert "merger" not in str(ask(MERGER, readers="finance").toDict()).replace(MERGER, "")
    assert "8:30" in office(HOURS).text and "8:30" not in office(HOURS, readers={"board"}).text
    restricted = office.readable_by({"board"})
    assert (
        "May" in restricted(MERGER).text
        and "50,000" not in restricted("What is the chair paid?", readers="finance").text
    )


def test_a_base_that_is_kept_from_its_reader_is_no_choice_of_the_router_and_no_model_says_who_asks(office):
    assert office.readable_by().sources == ("house",) and office.readable_by("finance").sources == ("house", "money")
    route = office.readable_by().predictor("classifier.route").signature
    assert "base_house" in route.output_fields and "base_money" not in route.output_fields
    assert "readers" not in dspy.Tool(office).args


def test_who_may_read_nothing_is_told_that_it_is_not_known(tmp_path):
    (tmp_path / "pay.md").write_text(FRONT.format("readers: board"))
    (tmp_path / "ragc.toml").write_text(f'{TOML}[knowledge.pay]\npath = "pay.md"\n')
    program = open_program(tmp_path)
    answer = program("What is the pay?")
    assert answer.outcome is Outcome.ABSTAIN and answer.found == () and not answer.trace.steps
    assert "7 EUR" in program("What is the pay?", readers={"board"}).text


def test_a_part_is_read_from_its_file_and_searched_on_a_server_by_a_payload(tmp_path):
    from qdrant_client import QdrantClient

    made = ([("a", {"board"}, *NAMES[:2], 7, None, ""), ("b", None, *NAMES[1:3], 9, None, "")], [], None)
    library = open_words(write_project(tmp_path, made, None))
    part, files = library.readable_by().index, [*(tmp_path / "index").glob("gen-*-gen-*")]
    again = open_words(Project.open(tmp_path)).readable_by().index
    assert len(files) == 1 and again.file == files[0] and again.passages == part.passages
    whole, admitted = library.index, frozenset([()])
    server = QdrantVectors(QdrantClient(":memory:"), "whole")
    server.write_rows(whole.matrix, whole.passages)
    held = [row for row, passage in enumerate(whole.passages) if not passage.readers]
    vector = WordEmbedder().encode(["Merle kettle"])[0]
    for base in (None, "a", "b"):
        found = server.take_rows(held, admitted).search(vector, 9, base)
        assert found == part.search(vector, 9, base)
    assert server.take_rows(held, admitted).similarities(vector, [1, 0]) == pytest.approx(
        part.similarities(vector, [1, 0]), abs=1e-5
    )


def test_a_labelled_question_is_asked_by_its_readers_and_teaches_nobody_else(office):
    from ragc.optimize.compiler.candidates.demonstrations import Demonstrator
    from ragc.optimize.compiler.record import Record
    from ragc.optimize.compiler.runs.replay import Replay
    from ragc.optimize.evaluation.evaluate import evaluate
    from ragc.optimize.labelled.dataset import LabelledQuestion

    label = {"question": MERGER, "evidence": ("house/merger.md#merger",), "facts": ("May",), "route": "simple"}
    questions = [LabelledQuestion(id="all", **label), LabelledQuestion(id="board", readers=("board",), **label)]
    grades = evaluate(office, questions).grades
    assert [grade.correct for grade in grades] == [False, True]
    assert grades[0].answer and grades[0].path and not (grades[1].answer or grades[1].path)  # for versions are copied
    replay = Replay(office, Record())
    answers = replay.answer_all([question.asked for question in questions])
    assert ["May" in answer.text for answer in answers] == [False, True]
    assert "closes in May" not in str(Demonstrator(office, replay, questions).make(questions))
