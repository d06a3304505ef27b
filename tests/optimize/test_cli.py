"""The command line: stable JSON, exit codes, and one sentence for every mistake."""

import errno
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from ragc import load
from ragc.knowledge.project import Project
from ragc.optimize.report.doctor import examine_setup
from tests.conftest import add_toml
from tests.optimize.conftest import compile_, invoke, invoke_json
from tests.support.provider import Script, serve
from tests.support.replies import obliging

WREN = "How many watts does the Wren draw?"
MERLE = "How much water does the Merle hold?"
GERMAN = "Wie viel Wasser passt in den großen Kessel hinein?"
RAGC = [sys.executable, "-m", "ragc.optimize.cli.main"]


@pytest.fixture
def moved(compiled, tmp_path):
    """The compiled project and its versions, each in another place than where they were compiled."""
    there = shutil.copytree(compiled, tmp_path / "moved" / "there", ignore=shutil.ignore_patterns("artifacts"))
    return there, shutil.copytree(compiled / "artifacts", tmp_path / "artifacts")


def test_the_version_is_that_of_the_package(ragc):
    assert ragc("--version") == (0, f"ragc {version('ragc')}\n", "")


SHAPES = {
    "ask shop@latest 'How much?'": (
        "text outcome confidence stopped_by citations degraded path trace_id version usage",
        {"usage": "calls tokens_in tokens_out usd seconds"},
    ),
    "eval shop@latest": (
        "version split n metrics plain by_tag plain_by_tag looks",
        {
            "metrics": "correct wrong outcome_accuracy route_accuracy seconds_p50 seconds_p95 model_calls tokens usd",
            "metrics correct": "value ci n",
            "plain utility": "value ci n",
        },
    ),
    "compare shop@v1 shop@v2": (
        "verdict metric difference ci p n topics mde others flipped guardrails by_tag a b warnings",
        {
            "others correct": "verdict difference ci p n",
            "guardrails 0": "metric margin relative state worse_by limit n",
        },
    ),
    "ls": ("", {"0": "name version digest created_at aliases parent metrics"}),
    "diff shop@v1 shop@v2": (
        "a b point wording demonstrations settings data knowledge models optimizer env git scores unscored same_program",
        {"scores": "verdict metric difference ci p n"},
    ),
    "promote shop@v2 --to tried": ("name alias from to gate against", {"gate": "verdict metric difference ci p n"}),
    "gc --keep 1": ("", {"0": "name version size reason broken goes removed"}),
    "verify --all": ("", {"0": "reference digest problems mend note ok"}),
}


@pytest.mark.parametrize("line", SHAPES)
def test_json_has_the_keys_that_programs_rely_on(ragc, moved, line):
    whole, parts = SHAPES[line]
    folder, kept = moved
    over = ["--project", folder] if line.startswith(("ask", "eval")) else []
    code, out, _ = ragc(*shlex.split(line), *over, "--artifacts", kept, "--json")
    found = json.loads(out)
    assert code in (0, 3) and (not whole or set(found) >= set(whole.split()))
    for path, keys in parts.items():
        part = found
        for step in path.split():
            part = part[int(step)] if isinstance(part, list) else part[step]
        assert set(part) >= set(keys.split()), path


def test_ask_reads_questions_line_by_line_and_streams_and_traces_with_the_answers_of_python(ragc, compiled):
    rag = load("shop@latest", artifacts=compiled / "artifacts")
    code, out, _ = ragc("ask", compiled, "--json", stdin=f"{WREN}\n\n{MERLE}\n")
    told = [json.loads(line) for line in out.splitlines()]
    assert code == 0 and [one["text"] for one in told] == [rag(WREN).text, rag(MERLE).text]
    assert {one["version"] for one in told} == {"shop@v2"}
    assert all(set(citation) - {"reason"} == {"n", "source", "id", "title"} for citation in told[0]["citations"])
    unreviewed = "Does the Wren draw 1000 watts?"
    out = ragc("ask", compiled, unreviewed, "--stream", "--trace")[1]
    assert rag(unreviewed).text in out and "  path: " in out and "ms  search: " in out


def test_a_line_that_is_not_utf_8_is_refused_and_the_next_is_answered(compiled):
    lines = b"How many watts does the \xff draw?\n" + WREN.encode()
    done = subprocess.run([*RAGC, "ask", str(compiled), "--json"], input=lines, capture_output=True, check=False)
    assert done.returncode == 2
    assert json.loads(done.stderr)["code"] == "question" and b"UTF-8" in done.stderr
    assert json.loads(done.stdout)["outcome"] in {"answered", "abstain"}


def test_each_of_several_questions_is_repeated_above_its_answer_or_error(compiled):
    lines = [WREN.encode(), b"", b"How many watts does the \xff draw?", MERLE.encode()]
    done = subprocess.run([*RAGC, "ask", str(compiled)], input=b"\n".join(lines), capture_output=True, check=False)
    shown = done.stdout.decode().splitlines()
    heads = [number for number, line in enumerate(shown) if line.startswith("> ")]
    assert [shown[head] for head in heads] == [f"> {WREN}", "> How many watts does the ? draw?", f"> {MERLE}"]
    followed = [after - head > 1 for head, after in zip(heads, [*heads[1:], len(shown)], strict=True)]
    assert followed == [True, False, True]


def test_a_dash_in_the_place_of_a_question_has_one_a_line_read(ragc, own_shop):
    asked = ["How many watts does the Wren draw?", "How much water does the Merle hold?"]
    lines = ragc("ask", own_shop, "-", "--json", stdin="\n".join(asked))[1].splitlines()
    traces = map(json.loads, (own_shop / ".ragc" / "traces.jsonl").read_text().splitlines())
    assert len(lines) == 2 and [trace["question"] for trace in traces] == asked


def test_what_the_way_through_the_graph_under_a_citation_is_is_said(ragc, own_shop):
    shown = ragc("ask", own_shop, "Within how many days are refunds paid back?")[1]
    assert '      reached by question > "refunds" > Refunds > Money back\n' in shown


def test_eval_tells_the_figures_of_each_tag_and_plain_rag_beside_them(ragc, own_shop):
    lines = (own_shop / "labelled.jsonl").read_text().splitlines()
    tagged = [{**json.loads(line), "tags": ["money" if "refunds" in line else "kettle"]} for line in lines]
    (own_shop / "tagged.jsonl").write_text("".join(json.dumps(q) + "\n" for q in tagged))
    code, out, _ = ragc("eval", own_shop, "--questions", own_shop / "tagged.jsonl", "--json")
    found = json.loads(out)
    assert code == 0 and set(found["metrics"]) - {"helped"} == set(found["plain"])
    assert set(found["by_tag"]) == set(found["plain_by_tag"]) == {"money", "kettle"}
    by_tag = sum(tag["n"] * tag["correct"] for tag in found["plain_by_tag"].values())
    assert by_tag == pytest.approx(6 * found["plain"]["correct"]["value"])


def test_eval_tells_in_a_sentence_what_the_program_is_worth_and_asks_both_in_turns(ragc, own_shop):
    labels = [
        {"id": f"n{n}", "question": f"How long is the guarantee on kettle {n}?", "outcome": "abstain"} for n in range(4)
    ]
    (own_shop / "more.jsonl").write_text("".join(json.dumps(one) + "\n" for one in labels))
    code, shown, _ = ragc("eval", own_shop, "--questions", own_shop / "more.jsonl")
    first, *table = shown.splitlines()
    assert code == 0 and first.startswith("shop (uncompiled) on more.jsonl: against plain RAG: ")
    assert [line.split()[0] for line in table[3:6]] == ["correct", "wrong", "model_calls"] and len(table) == 7
    assert "Everything else: --all" in table[-1]
    traces = map(json.loads, (own_shop / ".ragc" / "traces.jsonl").read_text().splitlines())
    asked = [trace["preset"] == "plain" for trace in traces]
    assert asked == [False, True, True, False] * 2, "each is first in its turn"
    whole = ragc("eval", own_shop, "--questions", own_shop / "more.jsonl", "--all")[1]
    assert "outcome_accuracy" in whole and "seconds_p50" in whole and first in whole and "--all" not in whole


def test_a_compile_ends_with_its_sentence_then_three_metrics_no_line_wrapped_and_all_of_them_only_where_asked(
    ragc, own_shop
):
    shown = ragc("compile", own_shop)[1].splitlines()
    assert shown[0].startswith("shop@v2 is sealed. It ") and "every metric: --all" in shown[1]
    assert [line.split()[0] for line in shown[4:7]] == ["correct", "wrong", "utility"]
    assert "[" in shown[6] and not any("AURC" in line or "selective_risk" in line for line in shown)
    whole = ragc("compile", own_shop, "--all")[1]
    again = shown[0].replace("is sealed", "was sealed before, and the same compile comes to it again")
    assert whole.startswith(again) and "outcome_accuracy" in whole and "--all" not in whole


def test_a_compile_that_seals_a_version_ends_with_0_and_with_3_where_better_is_required_of_no_gain(ragc, own_shop):
    code, out, _ = ragc("compile", own_shop, "--trials", "2", "--json")
    found = json.loads(out)
    assert found["version"] == "shop@v2" and code == 0 and found["trials"] >= 2
    code, out, _ = ragc("compile", own_shop, "--trials", "2", "--json", "--require", "better")
    assert json.loads(out)["version"] == "shop@v2"
    assert code == (0 if found["verdict"] == "better" else 3)
    means = [found[side]["utility"]["value"] for side in ("metrics", "plain")]
    assert found["gain_over_plain"]["difference"] == pytest.approx(means[0] - means[1], abs=2e-6)
    assert found["gain"]["n"] > found["metrics"]["utility"]["n"], "dev has a say, too"
    assert {"ci", "p", "n", "topics"} <= set(found["gain"])
    assert set(found["points"]) == {"quality", "balanced", "economy"}


def test_a_fresh_project_in_a_folder_of_any_name_can_be_asked_at_once(ragc, tmp_path):
    folder = tmp_path / "mein Büro"
    code, out, _ = ragc("init", folder)
    assert code == 0 and Project.open(folder).name == "mein-buro"
    assert f"""ragc ask '{folder}' "your question\"""" in out
    code, out, _ = ragc("ask", folder, "What hours is the shop open on working days?", "--json")
    assert code == 0 and json.loads(out)["outcome"] in {"answered", "clarify", "abstain"}


@pytest.mark.parametrize("place", ["lamp.md", "manuals/lamp.md", "notice-board.md", "Readme first.md"])
def test_a_project_in_a_folder_of_documents_reads_them_where_they_lie_but_not_its_own_files(ragc, tmp_path, place):
    file = tmp_path / "desk" / place
    file.parent.mkdir(parents=True)
    file.write_text("# Lamp\n\nThe lamp costs 40 euros.\n")
    (tmp_path / "desk/README.md").write_text("# Of the folder\n\nText.\n")
    code, out, _ = ragc("init", tmp_path / "desk")
    assert code == 0 and "Documents are read where they lie" in out and not (tmp_path / "desk/knowledge").exists()
    code, out, _ = ragc("ask", tmp_path / "desk", "What does the lamp cost?")
    assert code == 0 and "40 euros" in out
    out = ragc("index", tmp_path / "desk", "--list")[1]
    assert f"docs/{place}#lamp" in out and "ragc.toml" not in out and "labelled" not in out


def test_a_project_beside_documents_names_the_command_that_reads_them_and_the_check_tells_of_strays(ragc, tmp_path):
    (tmp_path / "lamp.md").write_text("# Lamp\n\nThe lamp costs 40 euros.\n")
    assert f"ragc init {tmp_path}" in ragc("init", tmp_path / "help")[1]
    (tmp_path / "help/lamp.md").write_text("# Lamp\n\nThe lamp costs 40 euros.\n")
    (tmp_path / "help/package.json").write_text("{}")
    out = " ".join(ragc("data", "check", tmp_path / "help")[1].split())
    assert "1 document lies in no knowledge base: lamp.md" in out


def test_ls_says_where_it_looked_in_vain(ragc, tmp_path):
    code, _, err = ragc("ls", "--artifacts", tmp_path / "none")
    assert code == 0 and f"no version in {tmp_path / 'none'}" in err.replace("\n", " ")
    assert ragc("ls", "--artifacts", tmp_path / "none", "--json") == (0, "[]\n", "")


@pytest.mark.parametrize("wrong", ["", 'decide = "local/foo"', 'propose = "local/reader"'])
def test_doctor_names_what_is_wrong_with_a_project_and_its_models_in_the_words_of_compile(ragc, own_shop, wrong):
    assert ragc("doctor", own_shop)[0] == 0
    add_toml(own_shop, f"[models]\n{wrong}")
    if not wrong:
        (own_shop / "labelled.jsonl").unlink()
    code, out, _ = ragc("doctor", own_shop, "--json")
    found = json.loads(out)
    assert code == 1 and all(bool(one["mend"]) != one["good"] for one in found)  # a remedy beside problems alone
    ranks = [(one["good"], one["warning"]) for one in found]
    assert ranks == sorted(ranks), "problems come first"
    assert sum("package" in one["what"] for one in found) == 1, "what is installed is one line"
    bad = next(finding for finding in found if not finding["good"])
    assert (
        f"{bad['what'].partition(': ')[2]} {bad['mend']}" in ragc("compile", own_shop)[2]
        if wrong
        else "labelled" in bad["what"]
    )


CLOSED = (
    '[knowledge.{}]\nkind = "http"\nabout = "what is in stock"\nurl = "http://127.0.0.1:9/{{query}}"\ntext = "/t"\n'
    "allow_private = true\n"
)


def test_a_question_that_no_source_could_be_asked_is_answered_by_what_failed_with_exit_code_5(ragc, tmp_path):
    (tmp_path / "ragc.toml").write_text('name = "stock"\n' + CLOSED.format("stock"))
    for options in ([], ["--stream"]):
        code, out, err = ragc("ask", tmp_path, "How many lamps are there?", *options)
        assert code == 5 and out.startswith("The search failed: The JSON API of stock cannot be reached (")
        assert "Check its url" in out and "failed | confidence 0.00" in err and "not searched: stock (" in err
    code, out, _ = ragc("ask", tmp_path, "--json", stdin=f"{WREN}\n{'x' * 100_000}\n{GERMAN}\n")
    assert code == 5 and [json.loads(line)["outcome"] for line in out.splitlines()] == ["failed", "abstain"]


def test_a_source_that_fails_beside_others_is_told_and_the_answer_is_there(ragc, own_shop):
    add_toml(own_shop, CLOSED.format("stock"))
    code, out, err = ragc("ask", own_shop, WREN)
    assert (code, out.splitlines()[0]) == (0, ragc("ask", own_shop, WREN)[1].splitlines()[0])
    assert "1000 watts" in out and err.count("not searched: stock (The JSON API of stock cannot be reached (") == 1
    code, out, err = ragc("search", own_shop, "How often is the kettle descaled?", "--json")
    assert (code, json.loads(out)[0]["id"]) == (0, "product/kettles.md#descaling") and "without stock: The JSON" in err
    found = json.loads(ragc("ask", own_shop, WREN, "--json")[1])
    assert [note.partition(" (")[0] for note in found["degraded"]] == ["not searched: stock"]
    (own_shop / "one.jsonl").write_text((own_shop / "labelled.jsonl").read_text().splitlines()[0] + "\n")
    text = (own_shop / "ragc.toml").read_text()
    (own_shop / "ragc.toml").write_text('name = "shop"\n' + text[text.index("[knowledge.stock]") :])
    code, _, err = ragc("eval", own_shop, "--questions", own_shop / "one.jsonl", "--json")
    assert code == 0 and "1 of 1 answers failed and count as not answered. The first: The search failed: " in err


def test_the_first_commands_of_the_readme_answer_their_question(ragc, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    (line,) = re.findall(r"^(ragc init .*? && ragc ask .*?)(?:\s+#.*)?$", readme, re.MULTILINE)
    told = [ragc(*shlex.split(command)[1:]) for command in line.split(" && ")]
    assert [code for code, *_ in told] == [0, 0]
    (label,) = map(json.loads, (tmp_path / "help/labelled.jsonl").read_text().splitlines())
    assert label["question"] == shlex.split(line)[-1]
    assert all(fact in told[1][1] for fact in label["facts"]) and "docs/hours.md" in told[1][1]


def test_ask_says_on_stderr_who_stood_in_for_a_model_that_could_not_be_reached(ragc, own_shop):
    with serve() as provider:
        provider.stop()
        models = '[models]\nwrite = "openai/x"\n[provider]\nretries = 0\n[provider.model."openai/x"]\n'
        add_toml(own_shop, f'{models}api_base = "{provider.url}"\nusd_in = 0\nusd_out = 0')
        code, _, err = ragc("ask", own_shop, WREN)
        assert code == 0 and err.count("openai/x cannot be reached: local/reader wrote") == 1
        assert "cannot be reached" not in ragc("ask", own_shop, WREN, "--json")[2]


def test_a_version_whose_project_moved_is_asked_evaluated_and_compared_over_the_folder_named(ragc, moved):
    folder, kept = moved
    ask, evaluate, compare = (
        [*verb.split(), "--artifacts", kept] for verb in ("ask shop@v2", "eval shop@v2", "compare shop@v1 shop@v2")
    )
    for verb in ([*ask, WREN], [*compare, "--repeats", "2"]):
        code, _, err = ragc(*verb)
        assert code == 2 and "--project FOLDER" in err
    for verb in ([*ask, WREN], evaluate):
        code, out, _ = ragc(*verb, "--project", folder, "--json")
        assert code == 0 and json.loads(out)["version"] == "shop@v2"
    assert ragc(*compare, "--repeats", "2", "--project", folder)[0] == 3
    assert "sealed scores" in ragc(*compare, "--project", folder)[2]
    assert ragc("ask", folder, WREN, "--project", folder)[0] == 2


def test_a_line_that_cannot_be_read_is_told_with_the_verb_that_lists_them_all(ragc, own_shop, monkeypatch):
    monkeypatch.chdir(own_shop.parent)
    with (own_shop / "labelled.jsonl").open("a") as file:
        file.write("{not json}\n{nor this}\n")
    for verb in (["compile"], ["data", "split"], ["eval"]):
        code, _, err = ragc(*verb, "shop")
        assert code == 2
        assert "line 7" in err and "ragc data check shop lists all such lines." in err


@pytest.mark.parametrize("lines", ["\xff\n", '{"id": "a"\n', "[1]\n"])
def test_labels_of_which_no_line_can_be_read_are_told_line_by_line_and_are_a_problem_to_doctor(ragc, own_shop, lines):
    (own_shop / "labelled.jsonl").write_bytes(lines.encode("latin-1"))
    code, out, err = ragc("data", "check", own_shop)
    assert code == 2 and "labelled.jsonl line 1" in out and "cannot be read" in err
    found = json.loads(ragc("doctor", own_shop, "--json")[1])
    assert any("line 1" in one["what"] and not one["good"] for one in found)


def test_what_may_not_be_read_is_named_and_never_taken_for_an_index_that_cannot_be_written(ragc, own_shop, monkeypatch):
    kept = own_shop / "knowledge" / "billing"

    def refuse(*_):
        raise PermissionError(errno.EACCES, "Permission denied", str(kept))

    monkeypatch.setattr("ragc.knowledge.index.build._fingerprint_bases", refuse)
    code, _, err = ragc("index", own_shop)
    assert code == 2 and f"{kept} cannot be read: Permission denied." in err and "written" not in err
    monkeypatch.setattr("ragc.knowledge.project.Project.open", refuse)
    assert any(str(kept) in one["what"] for one in json.loads(ragc("doctor", own_shop, "--json")[1]))


MISTAKES = {
    "no project": (["ask", "{tmp}/nowhere", "Q?"], "There is no project folder"),
    "project of another name": (["ask", "{shop}x", "Q?"], "Nearest: {shop}. To make another"),
    "no toml": (["compile", "{tmp}"], "ragc.toml"),
    "compile of a file": (["compile", "{shop}/ragc.toml"], "ragc.toml is a file"),
    "check of a file": (["data", "check", "{shop}/knowledge/product/kettles.md"], "Name a folder that holds"),
    "question to a file": (["ask", "{shop}/ragc.toml", "Q?"], "Name its folder"),
    "init over a project": (["init", "{shop}"], "is a project already"),
    "init over a file": (["init", "{shop}/ragc.toml"], "exists"),
    "unknown reference": (["ask", "shop@v99", "Q?", "--artifacts", "{shop}/artifacts"], "shop"),
    "nothing to roll back": (["rollback", "shop", "--artifacts", "{tmp}"], "no version of shop in the artifacts"),
    "odd reference": (["show", "../../etc@v1"], "etc@v1"),
    "empty question": (["ask", "{shop}", "  "], "empty"),
    "question of other bytes": (["ask", "{shop}", "When do you open \udcff?"], "UTF-8"),
    "endless question": (["ask", "{shop}", "x" * 100_000], "characters"),
    "unknown split": (["eval", "{shop}", "--split", "holdout"], "holdout"),
    "missing questions": (["eval", "{shop}", "--questions", "{tmp}/none.jsonl"], "none.jsonl"),
    "search for nothing": (["search", "{shop}", " "], "empty"),
    "point of no version": (["ask", "{shop}", "Q?", "--point", "fastest"], "point"),
    "traces of nothing": (["trace", "{tmp}/nosuch"], "nosuch"),
    "traces of nobody": (["trace", "{tmp}"], "no traces"),
    "metric without a program": (["eval", "{shop}", "--metric", "json:loads"], "--metric with --program"),
    "calls without a record": (["eval", "{shop}", "--max-calls", "9"], "--max-calls goes with --record"),
    "recorded and replayed": (["eval", "{shop}", "--record", "a", "--replay", "b"], "--replay does not go together"),
    "unknown strategy": (["search", "{shop}", "kettle", "--strategy", "psychic"], "psychic"),
    "no ranks": (["eval", "{shop}", "--search", "-k", "0"], "ranks"),
    "arms without names": (["experiment", "start", "x", "shop@v1", "--primary", "p", "--max-units", "9"], "name arms"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_told_in_two_sentences_or_as_json_with_exit_code_2(ragc, shop, tmp_path, mistake):
    arguments, told = MISTAKES[mistake]
    *arguments, told = (a.format(tmp=tmp_path, shop=shop) for a in (*arguments, told))
    code, out, err = ragc(*arguments)
    assert (code, out, err.startswith("error: "), "Traceback" in err) == (2, "", True, False)
    assert told in err
    code, out, line = ragc(*arguments, "--json")
    found = json.loads(line)
    assert (code, out) == (2, "")
    assert found["code"] and found["mend"] and err == f"error: {found['what']} {found['mend']}\n"


@pytest.mark.parametrize(
    ("file", "old", "new", "told"),
    [
        ("labelled.jsonl", "#power", "#poewr", "#poewr"),
        ("labelled.jsonl", '"facts":["144"]', '"facts":144', "'facts' cannot be 144"),
        ("ragc.toml", "path =", "paht =", "'path'"),
        ("ragc.toml", "knowledge/product", "knowledge/nothing", "product"),
    ],
)
def test_a_project_that_is_not_in_order_is_not_compiled_and_nothing_is_half_written(
    ragc, own_shop, file, old, new, told
):
    (own_shop / file).write_text((own_shop / file).read_text().replace(old, new))
    code, _, err = ragc("compile", own_shop, "--trials", "1")
    assert code == 2 and told in err and "Traceback" not in err
    assert not (own_shop / "artifacts").exists()


@pytest.mark.parametrize("printed_by_a_table", [False, True])
def test_output_that_nobody_reads_to_its_end_is_no_verdict(compiled, printed_by_a_table):
    unread, written = os.pipe()
    os.close(unread)
    verb = ["ls", "--artifacts", str(compiled / "artifacts")] if printed_by_a_table else ["--help"]
    with os.fdopen(written, "wb") as output:
        done = subprocess.run([*RAGC, *verb], stdout=output, stderr=subprocess.PIPE, check=False)
    assert (done.returncode, done.stderr) == (141, b"")


def test_an_imported_set_is_counted_checked_and_searched(tmp_path):
    source, project = tmp_path / "faq.csv", tmp_path / "project"
    source.write_text("question,answer,context\nWhere is the Wren made?,Oslo,The Wren kettle is made in Oslo.\n")
    assert invoke("data", "import", project, source).stdout.startswith("1 question and 1 passage of csv into ")
    checked = invoke("data", "check", project)
    assert checked.exit_code == 0 and "1 question: 0 errors, " in checked.stdout
    assert [p["id"] for p in invoke_json("search", project, "Where is the Wren made?")] == ["csv/corpus.jsonl#p1"]
    report = invoke_json("data", "import", tmp_path / "again", source)
    assert (report["format"], report["base"], report["questions"], report["passages"]) == ("csv", "csv", 1, 1)


MODEL = "openai/stand-in"


def test_doctor_calls_the_model_of_every_role_and_tells_its_price_or_how_to_mend_it(own_shop):
    def told():
        return [finding for finding in examine_setup(own_shop) if MODEL in finding.what]

    with serve(Script(), obliging) as provider:
        models = (
            f'[models]\nwrite = "{MODEL}"\njudge = "{MODEL}"\n[provider]\nretries = 0\n[provider.model."{MODEL}"]\n'
        )
        add_toml(own_shop, f'{models}api_base = "{provider.url}"\nusd_in = 0.5\nusd_out = 2.0\nstructured = true')
        found = told()
        assert provider.calls == 4  # a decision, and a text to take the time of
        answers = rf"{MODEL} answers, \d+\.\d s a call; US\$ 0.5 in, 2 out a million"
        assert len(found) == 2 and all(one.good and re.search(answers, one.what) for one in found)
        provider.follow(Script(refuses={"response_format": 400}))
        assert all("answered 400" in one.what and "set structured = false" in one.mend for one in told())
    assert all("cannot be reached" in gone.what and "its server runs" in gone.mend for gone in told())


def test_doctor_tries_the_model_that_embeds(own_shop):
    add_toml(own_shop, '[models]\nembed = "nobody/knows-this-model"')
    failed = [found.what for found in examine_setup(own_shop) if "cannot be loaded" in found.what and not found.good]
    assert len(failed) == 1 and "nobody/knows-this-model" in failed[0]


def test_each_stage_tells_how_far_it_is_and_never_goes_back(own_shop):
    counts = {}

    def watch(live):
        counts.setdefault(live.stage, []).append((live.done, live.of))

    compile_(own_shop, trials=4, watch=watch)
    fits = "fitting thresholds: labels and thresholds"
    for stage in ("making demonstrations", "trying whole ways", fits):
        done = [at for at, _ in counts[stage][1:]]
        assert done == sorted(done) and (len(set(done)) > 1 or done == [counts[stage][-1][1]]), stage
        assert 0 <= counts[stage][-1][1] - done[-1] <= 1


@pytest.mark.parametrize(
    ("verb", "option", "value"),
    [
        *(("compile", option, "9" * 20) for option in ("--trials", "--seed", "--max-calls")),
        *(("compile", option, "0") for option in ("--trials", "--max-calls", "--max-seconds")),
        *(("compile", option, "inf") for option in ("--max-usd", "--max-seconds")),
        *(("compile", option, "") for option in ("--from", "--promote")),
    ],
)
def test_a_number_beyond_all_use_and_an_empty_name_are_refused_and_nothing_is_begun(
    ragc, own_shop, verb, option, value
):
    code, _, told = ragc(verb, own_shop, option, value)
    assert code == 2 and option.strip("-") in told.replace("_", "-") and (value or "empty" in told)
    assert not (own_shop / ".ragc").exists()


def relabel(folder, **changes):
    file = folder / "labelled.jsonl"
    rows = [{**json.loads(line), **changes} for line in file.read_text().splitlines()]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))


def lose_index(folder):
    assert invoke("index", folder).exit_code == 0
    for generation in (folder / ".ragc" / "index").glob("gen-*"):
        generation.unlink()


NAMING = {
    "Run: ragc index": (lose_index, ["ask"], ["Why?"]),
    "ragc data split": (lambda folder: relabel(folder, split="train"), ["data", "check"], []),
    "ragc index": (lambda folder: relabel(folder, evidence=[]), ["eval"], ["--search", "--split", "train,dev,test"]),
    "ragc index PROJECT --list": (None, ["answers"], ["--pin", "Why?", "--says", "So."]),
    "ragc data draft": (None, ["data", "draft"], ["--keep", "nothing"]),
}


@pytest.mark.parametrize("command", NAMING)
def test_a_command_that_is_told_to_be_given_next_names_the_projects_folder(ragc, own_shop, command):
    spoil, verb, options = NAMING[command]
    if spoil:
        spoil(own_shop)
    _, out, err = ragc(*verb, own_shop, *options)
    named = command.replace(" PROJECT --list", "")
    assert f"{named} {shlex.quote(str(own_shop))}" in out + err and "PROJECT" not in out + err
