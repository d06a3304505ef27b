"""Sources asked at question time: web search and JSON APIs, over real HTTP on the loopback address."""

import json
import threading
from datetime import date
from urllib.parse import parse_qs, urlsplit

import pytest
from web_server import Reply, web_server
from word_embedder import WordEmbedder

from ragc.errors import KnowledgeError
from ragc.knowledge.guard import Guard
from ragc.knowledge.testing import SourceConformance
from ragc.knowledge.web import JsonApi, WebSearch, has_provider
from ragc.passage import AUTHORITY, SourceCard
from ragc.settings import HttpSettings, WebSettings

QUERY = "when was the remote unlock outage"
ITEMS = [
    dict(zip(("url", "title", "content", "day"), values, strict=True))
    for values in (
        ("/outage", "Remote unlock outage", "Remote unlock was down.", "2026-11-03T08:00:00"),
        ("/status", "Status", "All unlock services run again.", "2025-06-01"),
        ("/gone", "An old outage", "An outage of the past.", ""),
    )
]
PAGES = {
    "/outage": "<title>Outage</title><h1>Remote unlock outage</h1><p>It began on 3 November.</p><h2>Cause</h2>"
    "<p>A hosting fault stopped the remote unlock relay: the outage took two hours.</p>",
    "/status": "<h1>Status</h1><p>Every unlock service is up.</p>",
}


@pytest.fixture
def server():
    with web_server() as served:
        for path, page in PAGES.items():
            served.replies[path] = Reply(page)
        listed = [{**item, "url": f"{served.url}{item['url']}"} for item in ITEMS]
        served.replies["/search"] = Reply({"results": [renamed(item, "publishedDate") for item in listed]})
        served.replies["/tavily/search"] = Reply({"results": [renamed(item, "published_date") for item in listed]})
        brave = [{**renamed(item, "page_age"), "description": item["content"]} for item in listed]
        served.replies["/res/v1/web/search"] = Reply({"web": {"results": brave}})
        served.replies["/api"] = Reply({"data": {"rows": listed}})
        yield served


def renamed(item, dated):
    return {**item, dated: item["day"]}


def card(kind):
    return SourceCard("news", kind, "what happened lately")


def web(server, provider="searxng", url="", **more):
    settings = WebSettings(kind="web", provider=provider, url=url or server.url, allow_private=True, **more)
    assert has_provider(settings)
    source = WebSearch(card("web"), settings, WordEmbedder())
    source.pages = Guard("A page", 5, 1, allow_private=True) if settings.fetch else None
    return source


def api(server, **more):
    pointers = {"items": "/data/rows", "text": "/content", "title": "/title", "date": "/day", "link": "/url"}
    settings = {"url": f"{server.url}/api?q={{query}}&n={{k}}", "allow_private": True, **pointers, **more}
    return JsonApi(card("http"), HttpSettings(kind="http", **settings), WordEmbedder())


class TestLiveSourcesConform(SourceConformance):
    @pytest.fixture(params=[web, api])
    def source(self, server, request):
        return request.param(server)

    @pytest.fixture
    def query(self):
        return QUERY


def test_a_page_found_is_fetched_and_where_it_cannot_be_stands_with_the_providers_words(server):
    found = {p.text: p for p in web(server).candidates(QUERY, 20)}
    cause = found["A hosting fault stopped the remote unlock relay: the outage took two hours."]
    assert (cause.title, cause.link) == ("Remote unlock outage > Cause", f"{server.url}/outage")
    assert (cause.as_of, cause.method) == (date(2026, 11, 3), "web") and "An outage of the past." in found
    server.replies["/status"] = Reply(b"%PDF-1.7", kind="application/pdf")
    assert "All unlock services run again." in [p.text for p in web(server).candidates(QUERY, 20)]
    asked = len(server.asked("/outage"))
    assert {p.text for p in web(server, fetch=False).candidates(QUERY, 20)} == {item["content"] for item in ITEMS}
    assert len(server.asked("/outage")) == asked


def test_nothing_on_a_private_address_is_fetched_unless_allowed(server):
    source = web(server)
    source.pages = Guard("A page", 5, 1)
    assert {p.text for p in source.candidates(QUERY, 20)} == {item["content"] for item in ITEMS}
    assert not server.asked("/outage")
    settings = WebSettings(kind="web", provider="searxng", url=server.url)
    closed = WebSearch(card("web"), settings, WordEmbedder()), api(server, allow_private=False)
    for source, who in zip(closed, ("searxng", "JSON API"), strict=True):
        with pytest.raises(KnowledgeError, match=rf"{who} of news leads to 127\.0\.0\.1, which is not a public"):
            source.search(QUERY, 5)
    assert len(server.requests) == 1


def test_tavily_and_brave_are_asked_in_their_own_way(server, monkeypatch):
    monkeypatch.delenv("TAVILY_API_KEY", raising=False)
    for none in ({}, {"provider": "tavily"}):
        assert not has_provider(WebSettings(kind="web", **none))
    monkeypatch.setenv("TAVILY_API_KEY", "t-key")
    monkeypatch.setenv("BRAVE_API_KEY", "b-key")
    for provider, url in (("tavily", f"{server.url}/tavily"), ("brave", server.url)):
        found = web(server, provider, url, fetch=False, results=3).search(QUERY, 5)
        assert sorted((p.text, p.as_of) for p in found) == sorted(
            (item["content"], date.fromisoformat(item["day"][:10]) if item["day"] else None) for item in ITEMS
        )  # fmt: skip
    (tavily,), (brave,) = server.asked("/tavily/search"), server.asked("/res/v1/web/search")
    assert (tavily.method, tavily.headers["Authorization"]) == ("POST", "Bearer t-key")
    assert json.loads(tavily.body) == {"query": QUERY, "max_results": 3}
    assert brave.headers["X-Subscription-Token"] == "b-key"
    assert parse_qs(urlsplit(brave.path).query) == {"q": [QUERY], "count": ["3"]}
    server.replies["/search"] = Reply({"results": []})
    server.replies["/res/v1/web/search"] = Reply({"type": "search"})
    server.replies["/api"] = Reply({"data": {"rows": []}})
    assert [source.search(QUERY, 5) for source in (web(server), web(server, "brave"), api(server))] == [[], [], []]


HOLD = threading.Event()
BAD = {
    "an error": (Reply("oops", status=500), "status 500"),
    "a page": (Reply("<html>Sign in</html>"), "text/html, not with JSON"),
    "nonsense": (Reply(b"\xff\x00\x17", kind="application/json"), "not with JSON"),
    "another shape": (Reply({"message": "quota"}), "without a list of results|no items at"),
    "a bare list": (Reply([1, 2]), "without a list of results|no items at"),
    "deep nesting": (Reply(b"[" * 200_000, kind="application/json"), "not with JSON"),
    "silence": (Reply({}, before=lambda: HOLD.wait(5)), r"within 0\.3 seconds"),
    "too much": (Reply(b"[" + b" " * 3_000_000 + b"]"), "more than 2 MB"),
}


@pytest.mark.parametrize("make", [web, api])
@pytest.mark.parametrize("answer", BAD)
def test_a_service_that_answers_badly_is_named(server, make, answer):
    HOLD.clear()
    reply, complaint = BAD[answer]
    server.replies["/search"] = server.replies["/api"] = reply
    source = make(server, seconds=0.3 if answer == "silence" else 5.0, max_megabytes=2.0)
    with pytest.raises(KnowledgeError, match=complaint) as raised:
        source.search(QUERY, 5)
    assert "news" in raised.value.what and raised.value.mend
    HOLD.set()


def test_an_api_is_asked_by_its_template_with_headers_from_the_environment(server, monkeypatch):
    monkeypatch.setenv("NEWS_TOKEN", "n-key")
    api(server, headers={"Authorization": "Bearer ${NEWS_TOKEN}"}).search("locks & keys/é?", 2)
    (request,) = server.requests
    assert request.headers["Authorization"] == "Bearer n-key"
    assert parse_qs(urlsplit(request.path).query) == {"q": ["locks & keys/é?"], "n": ["50"]}
    monkeypatch.delenv("NEWS_TOKEN")
    with pytest.raises(KnowledgeError, match=r"header of news needs 'NEWS_TOKEN'"):
        api(server, headers={"Authorization": "Bearer ${NEWS_TOKEN}"})


def test_an_apis_items_are_passages_with_title_date_link_and_authority(server):
    found = api(server, authority="official").search(QUERY, 5)
    outage = next(p for p in found if p.title == "Remote unlock outage")
    assert (outage.text, outage.as_of) == ("Remote unlock was down.", date(2026, 11, 3))
    assert (outage.link, outage.method, outage.authority) == (f"{server.url}/outage", "http", AUTHORITY["official"])
    assert {p.id for p in api(server, id="/title").search(QUERY, 5)} == {f"news/{item['title']}" for item in ITEMS}
    first, second = ([p.id for p in api(server).search(QUERY, 5)] for _ in range(2))
    assert first == second and len(set(first)) == 3
    for pointer, told in (
        ({"items": "/data/list"}, r"no items at '/data/list'; it has the keys data.*`items`"),
        ({"text": "/body"}, r"text at '/body'; the first has the keys url, title.*`text`"),
    ):
        with pytest.raises(KnowledgeError, match=told):
            api(server, **pointer).search(QUERY, 5)


def test_markup_in_an_apis_texts_is_read_and_an_object_is_a_row(server):
    page = "<p>Out of order until <b>Friday</b>.</p><p>Use the stairs &amp; the ramp.</p>"
    items = [{"text": page}, {"text": {"room": "Elm", "open": {"from": 8}, "gone": None}}, {"text": "3 < 4 and a <b"}]
    server.replies["/api"] = Reply({"hits": items})
    found = {p.text for p in api(server, items="/hits", text="/text").candidates(QUERY, 20)}
    assert found == {
        "Out of order until Friday.\n\nUse the stairs & the ramp.", "room: Elm; open from: 8", "3 < 4 and a <b",
    }  # fmt: skip


@pytest.mark.parametrize("rows", [None, []])
def test_an_api_that_has_nothing_finds_nothing(server, rows):
    server.replies["/api"] = Reply({"data": {"rows": rows}})
    assert api(server).candidates(QUERY, 20) == []
