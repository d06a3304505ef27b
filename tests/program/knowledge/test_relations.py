"""Edges read by a language model while indexing: through the stand-in provider, cached, capped, never fatal."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from word_embedder import WordEmbedder

from program.errors import BudgetStop
from program.extraction import TripleExtractor
from program.kindsettings import GraphSettings
from program.knowledge.bases import BaseSpec
from program.knowledge.index import RELATIONS, IndexReport, build_index
from program.knowledge.library import Library
from program.models.spending import spending
from program.settings import ProviderSettings
from tests.support.provider import Provider, Script, serve

MODEL = "openai/reader"
FILES = {
    "orrin.md": "# Orrin Vale\n\nHe was raised in the grey town by the estuary and later painted ships.",
    "marl.md": "# Port Marl\n\nA harbour whose fish market opens at four.",
    **{f"hall-{n}.md": f"# Hall {n}\n\nA hall of {n} rooms by a lake." for n in range(12)},
}
STATED = [{"subject": "Orrin Vale", "relation": "was raised in", "object": "Port Marl"}]
QUESTION = "When does the fish market open where Orrin Vale was raised?"


def reader(body: Mapping[str, Any]) -> str:
    """Replies as a model would that knows what the grey town is called."""
    user = str(body["messages"][-1]["content"])
    return json.dumps({"relations": STATED if re.search("grey town", user) else []})


@pytest.fixture
def provider() -> Iterator[Provider]:
    with serve(Script(), reader) as served:
        yield served


@pytest.fixture
def knowledge(write: Callable[[str, str], Path]) -> Path:
    for name, text in FILES.items():
        folder = write(name, text)
    return folder


def index(knowledge: Path, folder: Path, url: str = "", usd: float | None = None, **settings: Any) -> IndexReport:
    base = GraphSettings(kind="graph", path=str(knowledge), relations=MODEL, **settings)
    terms = (
        ProviderSettings(model={MODEL: {"api_base": url, "usd_in": usd}}, retries=0, call_seconds=30.0) if url else None
    )
    return build_index(
        [BaseSpec("notes", "graph", knowledge)],
        folder,
        WordEmbedder(),
        extractors={"notes": TripleExtractor(base, terms)} if terms else {},
    )


def graph_score(knowledge: Path, folder: Path) -> float:
    library = Library.open([BaseSpec("notes", "graph", knowledge)], folder, WordEmbedder())
    return next(p.scores["graph"] for p in library.candidates(QUESTION) if p.title == "Port Marl")


def test_what_a_passage_states_joins_passages_that_its_words_do_not(
    knowledge: Path, tmp_path: Path, provider: Provider
) -> None:
    plain = index(knowledge, tmp_path / "plain")
    read = index(knowledge, tmp_path / "read", provider.url)
    assert (plain.relations.asked, plain.relations.calls) == (0, 0)
    assert (read.relations.asked, read.relations.unread) == (len(FILES), 0)
    assert read.relations.calls == provider.calls == len(FILES)
    assert plain.index_digest != read.index_digest
    assert graph_score(knowledge, tmp_path / "read") > graph_score(knowledge, tmp_path / "plain")


def test_only_passages_that_changed_are_read_again(knowledge: Path, tmp_path: Path, provider: Provider) -> None:
    first = index(knowledge, tmp_path / "index", provider.url)
    again = index(knowledge, tmp_path / "index", provider.url)
    assert again.unchanged and again.index_digest == first.index_digest
    assert (again.relations.asked, again.relations.reused) == (0, len(FILES))
    (knowledge / "hall-1.md").write_text("# Hall 1\n\nA hall that was torn down.")
    changed = index(knowledge, tmp_path / "index", provider.url)
    assert (changed.relations.asked, changed.relations.reused) == (1, len(FILES) - 1)
    assert provider.calls == len(FILES) + 1


def test_no_more_is_asked_than_the_cap_allows_and_the_next_run_goes_on(
    knowledge: Path, tmp_path: Path, provider: Provider
) -> None:
    first = index(knowledge, tmp_path / "index", provider.url, max_calls=10)
    assert provider.calls == first.relations.calls == first.relations.asked == 10
    assert first.relations.unread == len(FILES) - 10
    second = index(knowledge, tmp_path / "index", provider.url, max_calls=10)
    assert (second.relations.reused, second.relations.unread) == (10, 0)


class _Cap:
    """A cap that a long prompt would pass and no other."""

    money = True

    def before_call(self, usd: float = 0.0) -> None:
        if usd > 0.0029:
            raise BudgetStop("usd")

    def after_call(self, expected: float, usd: float, sent: bool = True) -> None:
        pass


def test_what_was_read_beside_a_passage_that_a_hard_cap_stops_is_kept(
    knowledge: Path, tmp_path: Path, provider: Provider
) -> None:
    (knowledge / "hall-1.md").write_text("# Hall 1\n\n" + "A hall by a lake of many names. " * 60)
    with pytest.raises(BudgetStop), spending(cap=_Cap()):
        index(knowledge, tmp_path / "index", provider.url, usd=1.0)
    paid = provider.calls
    assert paid
    again = index(knowledge, tmp_path / "index", provider.url)
    assert (again.relations.reused, again.relations.unread) == (paid, 0)


def test_a_model_that_is_away_costs_edges_and_nothing_else(knowledge: Path, tmp_path: Path) -> None:
    with serve() as gone:
        url = gone.url
    report = index(knowledge, tmp_path / "index", url)
    assert report.relations.asked == 0 and report.relations.unread == len(FILES)
    assert report.index_digest == index(knowledge, tmp_path / "plain").index_digest
    assert graph_score(knowledge, tmp_path / "index") >= 0


def test_a_reply_that_is_no_list_of_relations_is_none(knowledge: Path, tmp_path: Path) -> None:
    with serve(brain=lambda _: "I would rather not say.") as provider:
        report = index(knowledge, tmp_path / "index", provider.url)
    assert report.relations.unread == 0
    assert report.index_digest == index(knowledge, tmp_path / "plain").index_digest


@pytest.mark.parametrize("harm", [b"", b"nonsense" * 99])
def test_a_damaged_cache_of_relations_costs_calls_only(
    knowledge: Path, tmp_path: Path, provider: Provider, harm: bytes
) -> None:
    first = index(knowledge, tmp_path / "index", provider.url)
    (tmp_path / "index" / RELATIONS).write_bytes(harm)
    again = index(knowledge, tmp_path / "index", provider.url)
    assert again.index_digest == first.index_digest and again.relations.asked == len(FILES)
