"""The command line: stable JSON, exit codes, and one sentence for every mistake."""

import io
import json
import os
import re
import shutil
import subprocess
import sys

import pytest

from optimize.cli.main import main
from program import load
from program.project import Project
from tests.support.provider import serve

WREN = "How many watts does the Wren draw?"
MERLE = "How much water does the Merle hold?"


@pytest.fixture
def ragc(monkeypatch, capsys):
    """Runs a command line in this process; returns exit code, stdout and stderr."""

    def run(*arguments: str, stdin: str = "") -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["ragc", *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        with pytest.raises(SystemExit) as stop:
            main()
        out, err = capsys.readouterr()
        return int(stop.value.code or 0), out, err

    return run


def test_ask_json_has_the_promised_shape(ragc, compiled):
    code, out, _ = ragc(
        "ask",
        "shop@latest",
        WREN,
        "--artifacts",
        compiled / "artifacts",
        "--json",
    )
    answer = json.loads(out)
    assert code == 0
    assert set(answer) == {
        "text",
        "outcome",
        "confidence",
        "stopped_by",
        "citations",
        "path",
        "trace_id",
        "version",
        "usage",
    }
    assert {"calls", "tokens_in", "tokens_out", "usd", "seconds"} <= set(answer["usage"])
    assert all(set(citation) - {"reason"} == {"n", "source", "id", "title"} for citation in answer["citations"])
    assert answer["text"] == load("shop@latest", artifacts=compiled / "artifacts")(WREN).text


def test_ask_reads_questions_line_by_line(ragc, compiled):
    code, out, _ = ragc(
        "ask",
        compiled,
        "--json",
        stdin=f"{WREN}\n\n{MERLE}\n",
    )
    answers = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    rag = load("shop@latest", artifacts=compiled / "artifacts")
    assert [answer["text"] for answer in answers] == [rag(WREN).text, rag(MERLE).text]


def test_a_line_that_is_not_utf_8_is_refused_and_the_next_is_answered(compiled):
    asked = ["-m", "optimize.cli.main", "ask", str(compiled), "--json"]
    lines = b"How many watts does the \xff draw?\n" + WREN.encode()
    done = subprocess.run([sys.executable, *asked], input=lines, capture_output=True, check=False)
    assert done.returncode == 2
    assert b"UTF-8" in done.stderr and b"Traceback" not in done.stderr
    assert json.loads(done.stdout)["outcome"] in {"answered", "abstain"}


def test_ask_on_a_project_folder_uses_its_latest_version(ragc, compiled):
    _, out, _ = ragc("ask", compiled, WREN, "--json")
    assert json.loads(out)["version"] == "shop@v2"


def test_a_trace_can_be_shown(ragc, compiled):
    _, out, _ = ragc("ask", compiled, WREN, "--trace")
    assert "  path: " in out
    assert "ms  search: " in out


def test_the_streamed_answer_is_the_answer(ragc, compiled):
    _, out, _ = ragc("ask", compiled, WREN, "--stream")
    assert load("shop@latest", artifacts=compiled / "artifacts")(WREN).text in out


def test_eval_json_has_the_promised_shape(ragc, compiled):
    code, out, _ = ragc("eval", compiled, "--json")
    found = json.loads(out)
    assert code == 0
    assert set(found) == {"version", "split", "n", "metrics", "plain", "by_tag", "plain_by_tag", "looks"}
    for name in (
        "correct",
        "wrong",
        "outcome_accuracy",
        "retrieval_recall",
        "model_calls",
        "seconds_p50",
        "seconds_p95",
    ):
        assert set(found["metrics"][name]) == {"value", "ci", "n"}
        assert name in found["plain"]


def test_eval_tells_of_each_tag_what_plain_rag_does_beside_it(ragc, own_shop):
    lines = (own_shop / "labelled.jsonl").read_text().splitlines()
    tagged = [{**json.loads(line), "tags": ["money" if "refunds" in line else "kettle"]} for line in lines]
    (own_shop / "tagged.jsonl").write_text("".join(json.dumps(q) + "\n" for q in tagged))
    found = json.loads(ragc("eval", own_shop, "--questions", own_shop / "tagged.jsonl", "--json")[1])
    assert set(found["by_tag"]) == set(found["plain_by_tag"]) == {"money", "kettle"}
    of_plain = found["plain_by_tag"]
    assert sum(tag["n"] * tag["correct"] for tag in of_plain.values()) == pytest.approx(
        6 * found["plain"]["correct"]["value"]
    )


def test_offline_comparison_reads_the_stored_scores(ragc, compiled):
    code, out, _ = ragc("ab", "offline", "shop@v1", "shop@v2", "--artifacts", compiled / "artifacts", "--json")
    found = json.loads(out)
    assert {"verdict", "metric", "difference", "ci", "p", "n", "topics", "mde", "others", "flipped"} <= set(found)
    assert code == {"better": 0, "worse": 1, "no_detectable_difference": 3}[found["verdict"]]


def test_compile_says_what_it_made_and_exits_3_without_a_detectable_gain(ragc, own_shop):
    code, out, _ = ragc("compile", own_shop, "--trials", "2", "--json")
    found = json.loads(out)
    assert found["version"] == "shop@v2"
    assert code == (0 if found["verdict"] == "better" else 3)
    for gain, other in (("gain", "before"), ("gain_over_plain", "plain")):
        means = [found[side]["utility"]["value"] for side in ("metrics", other)]
        assert found[gain]["difference"] == pytest.approx(means[0] - means[1])
        assert {"ci", "p", "n", "topics"} <= set(found[gain])
    assert set(found["points"]) == {"quality", "balanced", "economy"}


def test_the_help_of_trials_says_how_many_settings_are_tried_besides(ragc, own_shop):
    _, told, _ = ragc("compile", "--help")
    besides = int(re.search(r"the (\d+) that every search begins with are tried besides", " ".join(told.split()))[1])
    _, out, _ = ragc("compile", own_shop, "--trials", "2", "--json")
    assert json.loads(out)["trials"] == 2 + besides


def test_search_finds_without_writing(ragc, shop):
    code, out, _ = ragc("search", shop, "descale the kettle", "-k", "2", "--json")
    assert code == 0
    assert json.loads(out)[0]["id"] == "product/kettles.md#descaling"


def test_a_fresh_project_can_be_asked_at_once(ragc, tmp_path):
    assert ragc("init", tmp_path / "new")[0] == 0
    code, out, _ = ragc("ask", tmp_path / "new", "What hours is the shop open on working days?", "--json")
    assert code == 0
    assert json.loads(out)["outcome"] in {"answered", "clarify", "abstain"}


def test_a_project_may_be_made_in_a_folder_of_any_name(ragc, tmp_path):
    code, out, _ = ragc("init", tmp_path / "mein Büro")
    assert code == 0
    assert Project.open(tmp_path / "mein Büro").name == "mein-buro"
    assert f"""ragc ask '{tmp_path / "mein Büro"}' "your question\"""" in out


def test_ls_says_where_it_looked_in_vain(ragc, tmp_path):
    code, _, err = ragc("ls", "--artifacts", tmp_path / "none")
    assert code == 0
    assert f"no version in {tmp_path / 'none'}" in err.replace("\n", " ")
    code, out, err = ragc("ls", "--artifacts", tmp_path / "none", "--json")
    assert (code, json.loads(out), err) == (0, [], "")


def test_index_tells_what_it_did_and_then_that_nothing_changed(ragc, own_shop):
    assert json.loads(ragc("index", own_shop, "--json")[1])["passages"] == 6
    assert json.loads(ragc("index", own_shop, "--json")[1])["unchanged"] is True


def test_doctor_finds_nothing_wrong_with_a_good_project_and_names_what_is(ragc, own_shop):
    assert ragc("doctor", own_shop)[0] == 0
    (own_shop / "labelled.jsonl").unlink()
    code, out, _ = ragc("doctor", own_shop, "--json")
    assert code == 1
    found = json.loads(out)
    assert any("labelled" in one["what"] and not one["good"] for one in found)
    assert all(bool(one["mend"]) != one["good"] for one in found)  # a remedy beside problems alone


@pytest.mark.parametrize(
    "wrong", ['decide = "local/foo"', 'write = "local/foo"', 'propose = "local/extract"', 'judge = "local/x"']
)
def test_doctor_names_a_local_model_that_does_not_exist_in_the_words_of_compile(ragc, own_shop, wrong):
    with (own_shop / "ragc.toml").open("a") as file:
        file.write(f"\n[models]\n{wrong}\n")
    code, out, _ = ragc("doctor", own_shop, "--json")
    assert code == 1
    (bad,) = (finding for finding in json.loads(out) if not finding["good"])
    assert f"{bad['what'].partition(': ')[2]} {bad['mend']}" in ragc("compile", own_shop)[2]


def test_ask_says_on_stderr_who_stood_in_for_a_model_that_could_not_be_reached(ragc, own_shop, monkeypatch):
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # else it is looked for on the network
    with serve() as provider:
        provider.stop()
        with (own_shop / "ragc.toml").open("a") as file:
            file.write('\n[models]\nwrite = "openai/x"\n[provider]\nretries = 0\n[provider.model."openai/x"]\n')
            file.write(f'api_base = "{provider.url}"\nusd_in = 0\nusd_out = 0\n')
        code, _, err = ragc("ask", own_shop, WREN)
        assert code == 0
        assert err.count("openai/x cannot be reached: local/extract-v1 wrote") == 1
        assert "cannot be reached" not in ragc("ask", own_shop, WREN, "--json")[2]


def test_a_version_whose_project_moved_is_asked_and_evaluated_over_the_folder_named(ragc, compiled, tmp_path):
    moved = shutil.copytree(compiled, tmp_path / "moved" / "there", ignore=shutil.ignore_patterns("artifacts"))
    kept = shutil.copytree(compiled / "artifacts", tmp_path / "artifacts")
    code, _, err = ragc("ask", "shop@v2", WREN, "--artifacts", kept)
    assert code == 2 and "--project FOLDER" in err
    code, out, _ = ragc("ask", "shop@v2", WREN, "--artifacts", kept, "--project", moved, "--json")
    assert code == 0 and json.loads(out)["version"] == "shop@v2"
    code, out, _ = ragc("eval", "shop@v2", "--artifacts", kept, "--project", moved, "--json")
    assert code == 0 and json.loads(out)["version"] == "shop@v2"
    assert ragc("ask", moved, WREN, "--project", moved)[0] == 2


def test_versions_whose_project_moved_are_compared_anew_over_the_folder_named(ragc, compiled, tmp_path):
    moved = shutil.copytree(compiled, tmp_path / "moved" / "there", ignore=shutil.ignore_patterns("artifacts"))
    kept = shutil.copytree(compiled / "artifacts", tmp_path / "artifacts")
    compared = ["ab", "offline", "shop@v1", "shop@v2", "--artifacts", kept]
    code, _, err = ragc(*compared, "--repeats", "2")
    assert code == 2 and "--project FOLDER" in err
    assert ragc(*compared, "--repeats", "2", "--project", moved)[0] == 3
    code, _, err = ragc(*compared, "--project", moved)
    assert code == 2 and "sealed scores" in err


def test_rolling_back_what_is_not_there_says_where_was_looked(ragc, tmp_path):
    code, _, err = ragc("rollback", "shop", "--artifacts", tmp_path)
    assert code == 2 and f"There is no version of shop in the artifacts folder {tmp_path}" in err


def test_a_project_folder_that_is_not_there_is_told_as_one(ragc, tmp_path):
    for target in (tmp_path / "nowhere", "nowhere"):
        code, _, err = ragc("ask", target, WREN, "--artifacts", tmp_path)
        assert code == 2 and "There is no project folder" in err


def test_a_line_that_cannot_be_read_is_told_with_the_verb_that_lists_them_all(ragc, own_shop, monkeypatch):
    monkeypatch.chdir(own_shop.parent)
    with (own_shop / "labelled.jsonl").open("a") as file:
        file.write("{not json}\n{nor this}\n")
    for verb in (["compile"], ["data", "stats"], ["data", "split"], ["eval"]):
        code, _, err = ragc(*verb, "shop")
        assert code == 2
        assert "line 7" in err and "ragc data check shop lists all such lines." in err


def test_the_file_in_place_of_its_folder_is_told_so(ragc, own_shop):
    for verb, rest in ((["compile"], []), (["index"], []), (["data", "check"], []), (["ask"], [WREN])):
        code, _, err = ragc(*verb, own_shop / "ragc.toml", *rest)
        assert code == 2
        assert f"{own_shop / 'ragc.toml'} is a file" in err and "Name its folder" in err and "init" not in err


def test_a_file_of_no_project_is_not_told_to_be_in_one(ragc, tmp_path):
    (tmp_path / "notes.md").write_text("Notes.")
    code, _, err = ragc("compile", tmp_path / "notes.md")
    assert code == 2 and "is a file" in err and "Name a folder that holds a ragc.toml." in err


MISTAKES = {
    "no project": (["ask", "{tmp}/nowhere", "Q?"], 2),
    "no toml": (["compile", "{tmp}"], 2),
    "init over a project": (["init", "{shop}"], 2),
    "unknown reference": (["ask", "shop@v99", "Q?", "--artifacts", "{shop}/artifacts"], 2),
    "odd reference": (["show", "../../etc@v1"], 2),
    "empty question": (["ask", "{shop}", "  "], 2),
    "no question at all": (["ask", "{shop}", ""], 2),
    "question of other bytes": (["ask", "{shop}", "When do you open \udcff?"], 2),
    "endless question": (["ask", "{shop}", "x" * 100_000], 2),
    "not English": (["ask", "{shop}", "Wie viel Wasser passt in den großen Kessel hinein?"], 2),
    "unknown split": (["eval", "{shop}", "--split", "holdout"], 2),
    "missing questions": (["eval", "{shop}", "--questions", "{tmp}/none.jsonl"], 2),
    "search for nothing": (["search", "{shop}", " "], 2),
    "point of no version": (["ask", "{shop}", "Q?", "--point", "fastest"], 2),
    "wish of no version": (["eval", "{shop}", "--point", "quality"], 2),
    "traces of nothing": (["trace", "stats", "{tmp}/nosuch"], 2),
    "unknown strategy": (["search", "{shop}", "kettle", "--strategy", "psychic"], 2),
    "unknown option": (["ask", "{shop}", "Q?", "--colour"], 2),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_told_in_a_sentence_with_its_exit_code_and_no_traceback(ragc, shop, tmp_path, mistake):
    arguments, expected = MISTAKES[mistake]
    code, _, err = ragc(*(a.format(tmp=tmp_path, shop=shop) for a in arguments))
    assert code == expected
    assert "rror" in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("break_it", "told"),
    [
        (lambda p: (p / "labelled.jsonl").open("a").write("{not json}\n"), "line 7"),
        (
            lambda p: (p / "labelled.jsonl").write_text((p / "labelled.jsonl").read_text().replace("#power", "#poewr")),
            "#poewr",
        ),
        (
            lambda p: (p / "ragc.toml").write_text((p / "ragc.toml").read_text().replace("path =", "paht =")),
            "'path'",
        ),
        (lambda p: [f.unlink() for f in (p / "knowledge/product").iterdir()], "product"),
    ],
    ids=[
        "a line that is not JSON",
        "evidence that does not exist",
        "an unknown key",
        "an empty knowledge folder",
    ],
)
def test_a_project_that_is_not_in_order_is_not_compiled_and_nothing_is_half_written(ragc, own_shop, break_it, told):
    break_it(own_shop)
    code, _, err = ragc("compile", own_shop, "--trials", "1")
    assert code == 2
    assert told in err
    assert "Traceback" not in err
    assert not (own_shop / "artifacts").exists()


def test_a_changed_artifact_exits_with_4(ragc, compiled, tmp_path):
    shutil.copytree(compiled, tmp_path / "copy")
    (path,) = (tmp_path / "copy/artifacts/shop/versions").glob("v2-*/program.json")
    path.write_bytes(path.read_bytes().replace(b"question", b"quostion", 1))
    code, _, err = ragc("ask", "shop@v2", "Q?", "--artifacts", tmp_path / "copy/artifacts")
    assert code == 4
    assert "Traceback" not in err


@pytest.mark.parametrize("printed_by_rich", [False, True])
def test_output_that_nobody_reads_to_its_end_is_no_verdict(compiled, printed_by_rich):
    unread, written = os.pipe()
    os.close(unread)
    verb = ["ls", "--artifacts", str(compiled / "artifacts")] if printed_by_rich else ["--help"]
    with os.fdopen(written, "wb") as output:
        done = subprocess.run(
            [sys.executable, "-m", "optimize.cli.main", *verb], stdout=output, stderr=subprocess.PIPE, check=False
        )
    assert (done.returncode, done.stderr) == (141, b"")


def test_help_loads_no_model_library():
    script = "import sys, optimize.cli.main; print([m for m in ('torch', 'dspy', 'optuna', 'scipy', 'numpy') if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, env=dict(os.environ)
    )
    assert done.stdout.strip() == "[]"


def test_importing_program_costs_no_torch():
    script = "import sys, program; from program import load; print('torch' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, env=dict(os.environ)
    )
    assert done.stdout.strip() == "False"


def test_what_the_system_refuses_is_bad_input_and_no_fault_of_ragc(ragc, tmp_path):
    (tmp_path / "taken").write_text("a file")
    code, out, err = ragc("init", tmp_path / "taken")
    assert (code, out) == (2, "")
    assert "exists" in err and "fault" not in err
