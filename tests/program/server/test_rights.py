"""Who is told what: no group's page, row or count reaches an asker outside it, by whichever door and strategy."""

import asyncio
import csv
import json
import os
import pickle
import sqlite3
import unicodedata

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.requests import HTTPConnection

from ragc import open_program
from ragc.knowledge.index.fusion import STRATEGIES
from ragc.knowledge.ingest.metadata import read_groups
from ragc.passage import Filters
from ragc.server import access
from tests.serving import serving

ASKERS = int(os.environ.get("RAGC_RIGHTS", "50"))  # 2,000 take some minutes
KEY = "a-key-of-the-tests-1"
GROUPS = (
    *("Finance", "finance", "Finance Interns", "Finance, Interns", "Finance; Interns", "Finance | Interns"),
    *("Not in Finance", "not in", "Not in", "in", "Interns", "board,", ",board", "board", "BOARD", "board.", "b"),
    *("Zürich", "Zu\u0308rich", "Zurich", "ZÜRICH", "財務", "財務 部", "ﬁnance", "Фин", "ẞ", "ss", "O'Brien", "C=1"),
    *("a\\b", "*", "%", "_", "{}", "[board]", "('board')", "' OR 1=1 --", "null", "None", "true", "reviewers-x"),
)
CODES = {group: f"zq{n:02}kx" for n, group in enumerate(GROUPS)}
OPEN = "zqopenkx"
SELECTS = (
    "SELECT item, code FROM vaults",
    "SELECT MIN(code) AS low, MAX(code) AS high FROM vaults",
    "SELECT COUNT(*) AS n FROM vaults",
)
TOML = """name = "vaults"
[knowledge.pages]
path = "pages"
about = "vaults"
[knowledge.rows]
kind = "tables"
path = "rows"
[knowledge.held]
kind = "tables"
url = "sqlite:///held.db"
"""


def quote_group(group):
    return f'"{group}"' if {*group} & {*",;|"} else group


@pytest.fixture(scope="module")
def vaults(tmp_path_factory):
    """A project in which each group has a page, a row of a file and a row of a database of its own."""
    folder = tmp_path_factory.mktemp("vaults")
    (folder / "ragc.toml").write_text(TOML)
    for name in ("pages", "rows"):
        (folder / name).mkdir()
    (folder / "pages" / "open.md").write_text(f"# Vault for all\nThe vault for all opens with {OPEN}.\n")
    for n, (group, code) in enumerate(CODES.items()):
        head = f"---\nreaders: [{json.dumps(group, ensure_ascii=False)}]\n---\n"
        (folder / "pages" / f"{n}.md").write_text(
            f"{head}# Vault number {n}\nThe vault number {n} opens with {code}.\n"
        )
    cells = [(f"vault {n}", code, quote_group(group)) for n, (group, code) in enumerate(CODES.items())]
    with (folder / "rows" / "vaults.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("item", "code", "readers"), ("vault for all", OPEN, ""), *cells])
    with sqlite3.connect(folder / "held.db") as connection:
        connection.execute("CREATE TABLE vaults (item TEXT, code TEXT, readers TEXT COLLATE NOCASE)")
        connection.executemany("INSERT INTO vaults VALUES (?, ?, ?)", [("vault for all", OPEN, None), *cells])
    return folder


@pytest.fixture(scope="module")
def program(vaults):
    return open_program(vaults)


def bend(group):
    """Yield names that are not the group's, yet like it."""
    return [
        group.swapcase(),
        unicodedata.normalize("NFD", group),
        f"{group} x",
        f"not {group}",
        group[:-1],
        f'"{group}"',
        *group.split(),
        *group.split(","),
    ]


names = st.sampled_from(GROUPS)
likenesses = names.flatmap(lambda group: st.sampled_from(bend(group))).map(str.strip)
others = st.text(st.characters(exclude_categories=["C", "Z"]), max_size=6)
groups = st.lists(st.one_of(names, likenesses, others), max_size=3).map(
    lambda found: [one for one in found if one.strip() == one != "" and '"' not in one]
)
targets = st.sampled_from([*CODES])


def find_leaks(shown, asker):
    """The groups whose code is shown to somebody who is in none of them."""
    return [group for group, code in CODES.items() if code in shown and group not in asker]


def ask_python(program, question, asker):
    return program(question, readers=asker)


def ask_restricted(program, question, asker):
    return program.readable_by(asker)(question, readers=[*GROUPS])


def ask_narrowed(program, question, asker):
    return program.readable_by([*GROUPS])(question, readers=asker) if asker else program.readable_by()(question)


def ask_copied(program, question, asker):
    return pickle.loads(pickle.dumps(program.readable_by(asker)))(question, readers=GROUPS)


PYTHON = [ask_python, ask_restricted, ask_narrowed, ask_copied]


@settings(max_examples=ASKERS)
@given(groups, targets, st.sampled_from(PYTHON))
def test_no_way_of_asking_in_python_tells_what_is_for_others(program, asker, target, ask):
    answer = ask(program, f"What does vault number {[*CODES].index(target)} open with?", asker)
    assert find_leaks(str(answer.toDict()), asker) == []
    assert target not in asker or CODES[target] in answer.text


@settings(max_examples=ASKERS)
@given(groups, targets, st.sampled_from([*STRATEGIES]), st.sampled_from([(), GROUPS]))
def test_no_strategy_finds_and_no_select_reads_what_is_for_others(program, asker, target, strategy, before):
    restricted = program.readable_by(before) if before and asker else program
    library = restricted.readable_by(asker).runtime.library
    weight, graph = STRATEGIES[strategy]
    query = f"vault number {[*CODES].index(target)} {CODES[target]}"
    found = library.search(query, k=9, weight=weight, graph=graph)
    assert find_leaks(str(found), asker) == [] and (target not in asker or CODES[target] in str(found))
    mine = sorted({OPEN, *(CODES[one] for one in asker if one in CODES)})
    for base in ("rows", "held"):
        assert find_leaks(library.describe_tables(base), asker) == []
        listed, ends, counted = (
            "".join(p.text for p in library.candidates("vault", [base], filters=Filters(sql=sql))) for sql in SELECTS
        )
        assert sorted(line.rpartition(" ")[2] for line in listed.splitlines()) == mine
        assert ends == f"low: {mine[0]}; high: {mine[-1]}" and counted == f"n: {len(mine)}"


@given(st.sampled_from([*GROUPS]), st.sampled_from([",", ";", "|"]))
def test_a_name_in_quotes_is_the_same_group_in_a_document_and_in_a_header_however_it_is_parted(group, separator):
    proxy = access.Access(header="X-Groups", separator=separator)
    headers = [(b"x-groups", f"{quote_group(group)}{separator}others".encode())]
    connection = HTTPConnection({"type": "http", "path": "/", "method": "GET", "headers": headers})
    known, _ = asyncio.run(proxy.authenticate(connection))
    assert {*known.scopes} == {group, "others"} == {*read_groups(f"{quote_group(group)}{separator}others")[0]}


@pytest.fixture(scope="module")
def doors(vaults):
    """A server behind a proxy that tells groups in a header."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(access.GROUPS_HEADER, "X-Groups")
        with serving(vaults) as found:
            yield found


def post_chat(address, question, headers, **more):
    body = {"model": "vaults", "messages": [{"role": "user", "content": question}], **more}
    return httpx.post(f"{address}/v1/chat/completions", json=body, headers=headers, timeout=60)


def post_stream(address, question, headers):
    return post_chat(address, question, headers, stream=True, stream_options={"include_drafts": True})


def call_tool(name, **arguments):
    def call(address, question, headers):
        asked = {"question" if name == "ask_knowledge" else "query": question, **arguments}
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name, "arguments": asked}}
        accept = {"Accept": "application/json, text/event-stream"}
        return httpx.post(f"{address}/mcp", json=body, headers={**headers, **accept}, timeout=60)

    return call


def get_page(path):
    return lambda address, question, headers: httpx.get(address + path, headers=headers)


DOORS = {
    "route": post_chat,
    "stream": post_stream,
    "ask_knowledge": call_tool("ask_knowledge"),
    "search_knowledge": call_tool("search_knowledge", k=20),
    "page": get_page("/"),
    "review": get_page("/review"),
    "metrics": get_page("/metrics"),
    "models": get_page("/v1/models"),
}


@settings(max_examples=ASKERS)
@given(groups, targets, st.sampled_from([*DOORS]))
def test_no_door_of_the_server_tells_what_is_for_others(doors, asker, target, door):
    header = {"X-Groups": ", ".join(map(quote_group, asker)).encode()} if asker else {}
    if door == "review":
        header = {"X-Groups": header.get("X-Groups", b"") + b", reviewers"}
    reply = DOORS[door](doors, f"What does vault number {[*CODES].index(target)} open with?", header)
    assert reply.status_code == 200 and find_leaks(reply.text, asker) == []
    asks = door in ("route", "stream", "ask_knowledge", "search_knowledge")
    assert not asks or target not in asker or CODES[target] in reply.text
