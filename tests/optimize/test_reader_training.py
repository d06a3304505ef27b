"""Training a reader: files read, groups drawn, a teacher's logits aligned, and a training killed and gone on with."""

import hashlib
import json
import multiprocessing
import os
import signal
import sys
from pathlib import Path
from random import Random
from types import SimpleNamespace

import numpy as np
import onnx
import orjson
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from ragc.errors import DataError
from ragc.models.embedded.encoder import minilm_folder
from ragc.models.embedded.reader import FOLDER, Reader
from ragc.optimize.reader import network, train
from ragc.optimize.reader.examples import DataFile, ReadingExample, draw_groups, find_negatives, read_examples

THINGS = ["Wren", "Merle", "Rook", "Finch"]
ROWS = [
    {
        "question": f"How many watts does the {name} draw?",
        "title": f"{name}_lamps",
        "context": f"Here is the {name}. It draws {n + 3} hundred watts! It was made in 19{n + 10}.",
        "answers": [{"text": f"{n + 3} hundred watts"}],
    }
    for n, name in enumerate(THINGS)
]
SILENT = [{**row, "question": "Who painted it?", "answers": [], "answerable": False} for row in ROWS[:2]]


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
    squad, shared = tmp_path / "squad.json", {"title": "Old Ulm", "context": "In Ulm it rained."}
    whole = {"title": "Old_Ulm", "paragraphs": [{"context": "In Ulm it rained.", "qas": asked}]}
    squad.write_text(json.dumps({"data": [whole]}))
    lines = [
        {"question": "Where?", **shared, "answers": ["In Ulm"]},
        {"question": " Why? ", **shared, "answers": ["Ulm"], "answerable": False},
    ]
    read = read_examples(squad)
    assert read == read_examples(write_lines(tmp_path / "lines.jsonl", lines))
    assert [one.answers for one in read] == [("In Ulm",), ()] and read[0].title == "Old Ulm"


def test_a_table_is_read_as_rows_and_an_answer_across_its_cells_is_left_out(tmp_path):
    table = "Prices.\n\n| Pass | Yearly |\n| --- | --- |\n| Home Plus | 45 |"
    rows = [{"question": "How much?", "context": table, "answers": [answer]} for answer in ("45", "Home Plus | 45")]
    (one,) = read_examples(write_lines(tmp_path / "a.jsonl", rows))
    assert one.answers == ("45",) and "|" not in one.text and "Yearly: 45" in one.text


@pytest.mark.parametrize(
    ("line", "told"),
    [
        *(("{", ""), ("3", ""), ("\ufffe\x00", "")),
        ({}, ": context is missing"),
        ({"context": "In Ulm.", "question": 3, "answers": []}, ": question must be text"),
        ({"context": "In Ulm.", "answers": "Ulm"}, ": answers"),
        ({"context": "Ulm.", "answers": [{"texts": "Ulm"}]}, ": answers.0"),
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


@given(st.integers(0, 99), st.integers(1, 4))
def test_a_group_is_a_question_with_its_passage_and_ones_that_do_not_answer(seed, passages):
    given_ = [ReadingExample(r["question"], "", r["context"], (r["answers"][0]["text"],)) for r in ROWS]
    others = [[ReadingExample(one.question, "", f"It rained {n}.") for n in range(3)] for one in given_]
    made = draw_groups(given_, others, passages, Random(seed))
    assert made == draw_groups(given_, others, passages, Random(seed)), "the seed alone decides"
    assert [group[0] for group in made if group[0] in given_] == given_
    for group in made:
        assert len({one.question for one in group}) == 1 and not any(one.answers for one in group[1:])
        assert len(group) == (passages if group[0].answers else 1)
        assert group[0].answers or all(one.answers[0] not in group[0].text for one in given_)


def test_a_passage_that_answers_is_no_negative():
    nearest = SimpleNamespace(encode=lambda texts: np.ones((len(texts), 1), np.float32))
    asked = ReadingExample("What?", "", "A finch.", ("finch",))
    rest = [ReadingExample("what?", "", "A wren.", ("wren",)), ReadingExample("Who?", "", "One finch, too.")]
    found, *_, none = find_negatives([asked, *rest], nearest)
    assert (found, none) == ([], []), "one is labelled as answering the same words, one holds the answer"


def test_all_spans_of_a_group_compete_in_one_softmax():
    group = [
        ReadingExample("What?", "", "A finch sang.", ("finch",)),
        ReadingExample("What?", "", "A long day it was."),
    ]
    batch = network.Collator()([group, [ReadingExample("Why?", "", "A day.")]])
    shape = batch["reader"]["open"].shape
    zero = (torch.zeros(shape), torch.zeros(shape), torch.zeros(shape[0]))
    places = [int(open.sum()) - 1 for open in batch["reader"]["open"]]  # of the text
    wanted = np.mean([2 * np.log(1 + places[0] + places[1]), 2 * np.log(1 + places[2])]) + np.log(2)
    assert network.compute_loss(zero, batch).item() == pytest.approx(wanted, abs=1e-4)
    sure = zero[0].clone()
    sure[0, batch["spans"][0, 0, 0] - 1] = 9
    assert network.compute_loss((sure, sure, zero[2]), batch) < network.compute_loss(zero, batch)
    assert network.compute_soft_loss(zero, (sure, sure, zero[2]), batch) > network.compute_soft_loss(zero, zero, batch)


def test_a_teacher_of_another_tokenizer_is_read_off_at_the_students_tokens():
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = ["[UNK]", "[PAD]", *"who is it the title a finch unbelievably sang".split()]
    plain = Tokenizer(models.WordLevel({word: n for n, word in enumerate(words)}, "[UNK]"))
    plain.pre_tokenizer = pre_tokenizers.Whitespace()
    other = PreTrainedTokenizerFast(tokenizer_object=plain, unk_token="[UNK]", pad_token="[PAD]")
    net = network.HeadedEncoder(network.load_reader().bert, "teacher")
    one = ReadingExample("who is it", "the title", "a finch unbelievably sang", ("unbelievably",))
    batch = network.Collator(net, other)([[one]])
    ids, at = batch["teacher"]["input_ids"][0], batch["teacher"]["at"][0]
    text = batch["reader"]["open"][0].bool().index_fill(0, torch.tensor(0), False)
    read = [words[n] for n in ids[at[text][:, 0]]]
    assert read[:2] + read[-1:] == ["a", "finch", "sang"] and set(read[2:-1]) == {"unbelievably"}
    assert len(read) > 4, "the student has several tokens for that word"


def test_what_cannot_be_trained_is_refused_before_anything_is_written(ragc, tmp_path, monkeypatch):
    many, silent = write_lines(tmp_path / "many.jsonl", ROWS), write_lines(tmp_path / "silent.jsonl", SILENT)
    save_file({"other": torch.zeros(2)}, tmp_path / "weights.safetensors")
    wrong = [
        ([silent], "data", "no question with an answer"),
        ([many, "--dev", silent], "data", "no question with an answer"),
        *(([f"{many}:{share}"], "data", "no share") for share in ("0", "1.01", "-1", "nan", "half", "")),
        ([tmp_path], "data", ""),
        ([many, "--start", tmp_path], "model", "not those of a reader"),
        ([many, "--teacher", tmp_path / "none"], "model", "none"),
    ]
    for n, (arguments, kind, told) in enumerate(wrong):
        code, out, err = ragc("reader", "train", *arguments, "--out", tmp_path / f"out{n}", "--json")
        assert (code, out, json.loads(err)["code"]) == (2, "", kind) and told in json.loads(err)["what"]
        assert not (tmp_path / f"out{n}").exists()
    for arguments in (["--learning-rate", "nan"], ["--keep", "0.5"], ["--out", many]):
        assert ragc("reader", "train", many, "--out", tmp_path / "out", *arguments)[0] == 2
    monkeypatch.setitem(sys.modules, "onnx", None)
    code, _, err = ragc("reader", "train", many, "--out", tmp_path / "out")
    assert code == 2 and '".[train]"' in err and not (tmp_path / "out").exists()


def test_the_packaged_card_is_written_from_its_data():
    card = orjson.loads((FOLDER / "reader.json").read_bytes())
    assert (FOLDER / "README.md").read_text() == train.render_card(card)


def largest_sum(folder):
    """The largest sum of two products of a reader's weights and activations, of which a processor may hold 16 bits."""
    kept = onnx.load(folder / "reader.onnx").graph.initializer
    weights = [onnx.numpy_helper.to_array(one) for one in kept if one.data_type == onnx.TensorProto.INT8]
    return 2 * 255 * max(int(np.abs(one.astype(int)).max()) for one in weights)


def test_the_packaged_reader_reads_alike_on_every_processor():
    assert 0 < largest_sum(FOLDER) < 2**15, "what saturates on one, as without VNNI, does not on another"


@pytest.mark.slow
def test_a_training_through_the_command_line_ends_in_a_reader_that_opens(ragc, tmp_path):
    data = write_lines(tmp_path / "a.jsonl", [*ROWS, *SILENT])
    first, out = tmp_path / "first", tmp_path / "made" / "reader"
    given_ = f"reader train {data}:0.5 --dev {data} --epochs 1 --seed 7 --licence CC0".split()
    code, shown, err = ragc(*given_, "--out", first, "--json")
    card = json.loads(shown)
    assert (code, err) == (0, "") and card == json.loads((first / "reader.json").read_text())
    files = "README.md reader.json reader.onnx weights.safetensors"
    assert sorted(path.name for path in first.iterdir()) == files.split()
    assert Reader(first).digest == f"sha256:{card['sha256']}" == f"sha256:{digest(first / 'reader.onnx')}"
    assert 0 < largest_sum(first) < 2**15
    counts = {"file": "a.jsonl", "sha256": digest(data), "questions": 6, "answered": 4}
    assert card["data"] == [{**counts, "share": 0.5}]
    assert card["held_out"][0].items() >= {**counts, "seen": 6}.items(), "all that is held out was trained on"
    assert set(card["held_out"][0]["figures"]) == {"questions", "exact", "auc_answers", "auc_margin", "auc_sum"}
    text = ROWS[0]["context"]
    (read,) = Reader(first).read(ROWS[0]["question"], [("Wren lamps", text)])
    assert 0 <= read.span[0] < read.span[1] <= len(text)
    code, _, err = ragc(*given_, "--out", first)
    assert code == 2 and "new folder" in err, "a finished one is not made again"

    teacher = minilm_folder()
    more = [*given_, "--teacher", teacher, "--start", first, "--keep", "1"]
    assert ragc(*more, "--out", out)[0] == 0
    begun, ended = (load_file(folder / "weights.safetensors") for folder in (first, out))
    assert all(torch.equal(begun[name], ended[name]) for name in begun), "all of the start was to stay"
    told = (out / "README.md").read_text()
    command = "ragc reader train a.jsonl:0.5 --dev a.jsonl --epochs 1 --seed 7 --learning-rate 0.0001 --batch 8"
    command += f" --passages 4 --keep 1.0 --start first --teacher {Path(teacher).name} --licence CC0 --out FOLDER"
    assert command in told and "softened logits" in told and str(tmp_path) not in told, "no path of this machine"


def make(folder, stop, teacher=None):
    """Train in this process, killed by itself before that step."""

    def advance(done, of):
        if of > 1 and done == stop:
            os.kill(os.getpid(), signal.SIGKILL)

    file = DataFile.read(str(folder.parent / "a.jsonl"))
    train.make_reader([file], [], folder, train.Training(epochs=2, seed=1, batch=4, teacher=teacher), "", advance)


@pytest.mark.slow
def test_a_training_that_was_killed_goes_on_to_the_same_weights_and_a_teacher_changes_them(ragc, tmp_path):
    data = write_lines(tmp_path / "a.jsonl", [*ROWS, *SILENT])
    process = multiprocessing.get_context("spawn").Process(target=make, args=(tmp_path / "cut", 2))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    code, _, err = ragc("reader", "train", data, "--out", tmp_path / "cut")
    assert code == 2 and "other data or settings" in err
    make(tmp_path / "cut", 99)
    make(tmp_path / "whole", 99)
    make(tmp_path / "taught", 99, Path(minilm_folder()))
    whole, cut, taught = (digest(tmp_path / name / "weights.safetensors") for name in ("whole", "cut", "taught"))
    assert whole == cut != taught
