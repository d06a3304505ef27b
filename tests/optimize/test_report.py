"""The report: one page, whole in itself, in which nothing a document says can run."""

import re
from html.parser import HTMLParser

import pytest

from program import load
from program.errors import VersionError
from program.reference import resolve


class _Page(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.addresses = set(), []

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.addresses += [value for name, value in attrs if name in {"src", "href", "data", "action"}]


@pytest.fixture(scope="module")
def page(compiled):
    return (resolve("shop@v2", compiled / "artifacts").path / "report.html").read_text()


def test_the_page_needs_nothing_but_itself(page):
    parsed = _Page()
    parsed.feed(page)
    assert not parsed.tags & {"script", "link", "img", "iframe"}
    assert not parsed.addresses
    assert "url(" not in page and "@import" not in page
    assert len(page) < 500_000
    assert 'name="viewport"' in page and "svg" in parsed.tags


def test_the_page_tells_the_gain_the_frontier_and_the_spend(page):
    for told in (
        "over shop@v1",
        "over plain RAG on the same questions",
        "Utility against model calls",
        "settings tried",
        "looked at 1 time",
        "What moved",
    ):
        assert told in page


def test_the_page_shows_every_decision_that_has_labels_its_cut_and_its_calibration(page):
    for decision in ("classifier.route:route", "classifier.route:vague", "classifier.route:base_product"):
        assert f"{decision}: probability said" in page
    for decision in ("judge.relevance:relevant", "judge.sufficiency:sufficient", "grounder.responsive:responsive"):
        assert f"{decision}: probability said" in page
        assert re.search(decision + r": \d+ cases; no above, yes\s+below; dashed the cut before", page)


def test_the_page_names_the_points_on_the_frontier_the_oracle_the_tags_and_the_answers_that_changed(page):
    named = re.findall(r'class="named".*?<text[^>]*>([^<]*)</text>', page, re.DOTALL)
    assert {point for names in named for point in names.split(", ")} == {"quality", "balanced", "economy"}
    for told in ("question by question would reach", "By tag", "Won:", "Lost:", "model calls, $"):
        assert told in page


def test_choosing_by_question_can_only_add_to_what_the_chosen_setting_reaches_on_the_same_questions(page):
    oracle, reached = map(
        float, re.search(r"would reach (-?[\d.]+); the one chosen reaches (-?[\d.]+)\.", page).groups()
    )
    assert oracle >= reached


def test_what_an_answer_says_is_text_not_markup():
    from optimize import charts

    assert "<b>" not in charts.bars([("<b>name</b>", 1.0)])
    assert "<b>" not in charts.scatter([charts.Mark(0, 0, "<b>")], "<b>", "<b>")


def test_a_point_can_be_chosen_by_what_it_may_cost_or_must_reach(compiled):
    root = compiled / "artifacts"
    frugal = load("shop@v2", artifacts=root, calls_per_question=99)
    assert frugal("How much water does the Merle hold?").text
    with pytest.raises(VersionError, match="frontier"):
        load("shop@v2", artifacts=root, min_utility=2.0)
    with pytest.raises(VersionError, match="Both"):
        load("shop@v2", artifacts=root, point="quality", calls_per_question=1)
