"""Training a reader: files read, examples varied, a training through the command line, killed and gone on with."""

import hashlib
import json
import multiprocessing
import os
import signal
import sys
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optimize.reader.data import LEAST_ANSWERED, DataFile, TrainingData
from optimize.reader.examples import ReadingExample, read_examples, vary
from program.errors import DataError
from program.models.embedded.reader import Reader

THINGS = ["Wren", "Merle", "Rook", "Finch", "Robin", "Crane"]
ROWS = [
    {
        "question": f"How many watts does the {name} draw?",
        "title": f"{name}_lamps",
        "context": f"Here is the {name}. It draws {n + 3} hundred watts! It was made in 19{n + 10}.",
        "answers": [{"text": f"{n + 3} hundred watts"}],
    }
    for n, name in enumerate(THINGS)
]
ROWS += [{**row, "question": "When was it made?", "answers": [f"19{n + 10}"]} for n, row in enumerate(ROWS)]
SILENT = [{**row, "question": "Who painted it?", "answers": [], "answerable": False} for row in ROWS[:2]]
STEPS = 4  # of the slow training, in two epochs


def write_lines(path, rows):
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return path


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_squad_and_lines_are_read_alike(tmp_path):
    asked = [
        {"id": "a", "question": "Where?", "answers": [{"text": "In Ulm", "answer_start": 0}]},
        {"id": "b", "question": "Why?", "answers": [], "is_impossible": True, "plausible_answers": [{"text": "Ulm"}]},
    ]
    paragraphs = [{"context": "In Ulm it rained.", "qas": asked}]
    squad = tmp_path / "squad.json"
    squad.write_text(json.dumps({"data": [{"title": "Old_Ulm", "paragraphs": paragraphs}]}))
    shared = {"title": "Old Ulm", "context": "In Ulm it rained."}
    lines = [
        {"question": "Where?", **shared, "answers": ["In Ulm"]},
        {"question": " Why? ", **shared, "answers": ["Ulm"], "answerable": False},
    ]
    read = read_examples(squad)
    assert read == read_examples(write_lines(tmp_path / "lines.jsonl", lines))
    assert [one.answers for one in read] == [("In Ulm",), ()] and read[0].title == "Old Ulm"


@pytest.mark.parametrize(
    ("line", "told"),
    [
        *(("{", ""), ("3", ""), ("\ufffe\x00", "")),
        ({}, ": 'context' is missing"),
        ({"context": "In Ulm.", "question": 3, "answers": []}, ": question and context must be texts"),
        ({"context": "In Ulm.", "answers": "Ulm"}, ": question and context"),
        ({"context": "Ulm.", "answers": {"text": ["Ulm"]}}, ""),
        ({"context": "In Ulm.", "answers": ["Bonn"]}, ": the answer 'Bonn' is not"),
    ],
)
def test_a_line_that_cannot_be_read_is_named(tmp_path, line, told):
    line = line if isinstance(line, str) else json.dumps({"question": "Where?", **line})
    path = tmp_path / "bad.jsonl"
    path.write_text(f"{json.dumps(ROWS[0])}\n{line}\n", encoding="utf-8")
    with pytest.raises(DataError, match=f"line 2{told}") as stop:
        read_examples(path)
    assert str(path) in stop.value.what and stop.value.mend


@pytest.mark.parametrize("content", ["", "\n\n", None])
def test_a_file_without_a_question_is_refused(tmp_path, content):
    for name in ("none.jsonl", "none.json"):
        if content is not None:
            (tmp_path / name).write_text(content)
        with pytest.raises(DataError):
            read_examples(tmp_path / name)


words = st.text(st.sampled_from("aab. \nB7é🙂"), min_size=1, max_size=30)


@st.composite
def examples(draw):
    name, other = draw(st.sampled_from(THINGS)), draw(st.sampled_from(THINGS))
    parts = draw(
        st.lists(st.sampled_from([f"The {name} is red.", f"A {other} draws 7 watts.", "It rained."]), min_size=1)
    )
    text = draw(st.sampled_from([" ", "\n"])).join(parts)
    answers = tuple(
        a for a in draw(st.lists(st.sampled_from(["red", "7 watts", "rained. The"]), unique=True)) if a in text
    )
    return ReadingExample(f"What of the {name}?", draw(words), text, answers)


@given(st.lists(examples(), max_size=8), st.integers(0, 99))
def test_variations_keep_what_they_promise(given_, seed):
    others = [[ReadingExample(one.question, "", "It rained.")] if one.answers else [] for one in given_]
    made = vary(given_, others, Random(seed))
    assert made == vary(given_, others, Random(seed)), "the seed alone decides"
    assert [one for one in made if one in given_][: len(given_)] or not given_
    assert len(made) <= 5 * len(given_)
    for one in made:
        assert all(answer in one.text for answer in one.answers)
        assert bool(one.spans()) == bool(one.answers)
        if one.answers or one in given_ or any(one in some for some in others):
            continue
        same = [whole for whole in given_ if whole.question == one.question and whole.title == one.title]
        removed = any(not any(a.casefold() in one.text.casefold() for a in whole.answers) for whole in same)
        altered = any(whole.text == one.text and whole.question != one.question for whole in given_)
        assert removed or altered


def test_a_share_is_above_nothing_and_at_most_all(tmp_path):
    assert DataFile.parse("a.jsonl:0.25") == DataFile(Path("a.jsonl"), 0.25)
    (tmp_path / "a:1.5").touch()
    assert DataFile.parse(f"{tmp_path}/a:1.5").share == 1.0, "a file of that name"
    for wrong in ("0", "1.01", "-1", "nan", "half", ""):
        with pytest.raises(DataError, match="no share"):
            DataFile.parse(f"a.jsonl:{wrong}")


def test_too_little_to_learn_or_measure_is_refused_before_anything_is_written(ragc, tmp_path):
    few = write_lines(tmp_path / "few.jsonl", [*ROWS[: LEAST_ANSWERED - 1], *SILENT])
    many, silent = write_lines(tmp_path / "many.jsonl", ROWS), write_lines(tmp_path / "silent.jsonl", SILENT)
    wrong = [
        ([few], "7 questions"),
        ([many, "--dev", silent], "No question"),
        ([f"{many}:2"], "share"),
        ([few.parent], ""),
    ]
    for arguments, told in wrong:
        code, out, err = ragc("reader", "train", *arguments, "--out", tmp_path / "out", "--json")
        assert (code, out, json.loads(err)["code"]) == (2, "", "data") and told in json.loads(err)["what"]
    assert ragc("reader", "train", many, "--out", tmp_path / "out", "--learning-rate", "nan")[0] == 2
    assert ragc("reader", "train", many, "--out", many)[0] == 2
    assert not (tmp_path / "out").exists()


def test_without_the_package_onnx_nothing_is_begun(ragc, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    code, _, err = ragc("reader", "train", write_lines(tmp_path / "a.jsonl", ROWS), "--out", tmp_path / "out")
    assert code == 2 and "ragc[train]" in err and not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_training_through_the_command_line_ends_in_a_reader_that_opens(ragc, tmp_path):
    data = write_lines(tmp_path / "a.jsonl", [*ROWS, *SILENT])
    out = tmp_path / "made" / "reader"
    given_ = f"reader train {data}:0.5 --dev {data} --epochs 1 --seed 7 --bfloat16 --licence CC0 --out {out}".split()
    code, shown, err = ragc(*given_, "--json")
    card = json.loads(shown)
    assert (code, err) == (0, "") and card == json.loads((out / "reader.json").read_text())
    files = "README.md reader.json reader.onnx weights.safetensors"
    assert sorted(path.name for path in out.iterdir()) == files.split()
    assert Reader(out).digest == f"sha256:{card['sha256']}" == f"sha256:{digest(out / 'reader.onnx')}"
    (file,) = card["data"]
    assert file == {"file": "a.jsonl", "sha256": digest(data), "questions": 14, "answered": 12, "share": 0.5}
    assert card["dev"]["seen"] == 14, "all that is held out was trained on, and the card says so"
    assert set(card["figures"]) == {"exact", "auc_answers", "auc_margin", "auc_sum"} and card["training"]["steps"] >= 1
    assert card["command"] == (
        "ragc reader train a.jsonl:0.5 --out FOLDER --dev a.jsonl --epochs 1 --seed 7 --learning-rate 0.0001 --licence CC0"
        " --bfloat16"
    )
    told = (out / "README.md").read_text()
    assert all(part in told for part in (card["sha256"], card["command"], "CC0", digest(data)))
    assert str(tmp_path) not in told + shown, "no path of this machine"
    text = ROWS[0]["context"]
    (read,) = Reader(out).read(ROWS[0]["question"], [("Wren lamps", text)])
    assert 0 <= read.span[0] < read.span[1] <= len(text)
    code, _, err = ragc(*given_)
    assert code == 2 and "new folder" in err, "a finished one is not made again"


def train(folder, stop):
    """Train in this process, killed by itself at that step."""
    from optimize.reader.network import Training
    from optimize.reader.train import train_reader

    def advance(done, of):
        if of == STEPS and done == abs(stop):
            if stop > 0:
                os.kill(os.getpid(), signal.SIGKILL)
            raise KeyboardInterrupt

    data = TrainingData.read([DataFile(folder / "a.jsonl")], folder / "a.jsonl")
    training = Training(epochs=2, seed=1, batch_tokens=600)
    assert train_reader(data, folder / "out", training, advance) == STEPS


def train_killed(folder, stop):
    import optimize.reader.train

    optimize.reader.train.SAVE_SECONDS = 0.0
    train(folder, stop)


@pytest.mark.slow
def test_a_training_that_was_killed_and_stopped_goes_on_to_the_same_weights(ragc, tmp_path):
    rows = [*ROWS, *SILENT]
    for folder in ("whole", "cut"):
        (tmp_path / folder).mkdir()
        write_lines(tmp_path / folder / "a.jsonl", rows)
    train(tmp_path / "whole", 99)
    process = multiprocessing.get_context("spawn").Process(target=train_killed, args=(tmp_path / "cut", 1))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "cut", -3)
    code, _, err = ragc("reader", "train", tmp_path / "cut" / "a.jsonl", "--out", tmp_path / "cut" / "out")
    assert code == 2 and "other data or settings" in err
    train(tmp_path / "cut", 99)
    whole, cut = (tmp_path / name / "out" / "weights.safetensors" for name in ("whole", "cut"))
    assert digest(whole) == digest(cut)
    (cut.parent / "checkpoint.pt").write_bytes(b"none")
    code, _, err = ragc("reader", "train", tmp_path / "cut" / "a.jsonl", "--out", cut.parent)
    assert code == 2 and "cannot be read" in err
