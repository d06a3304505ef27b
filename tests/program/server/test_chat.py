"""The routes as clients of OpenAI's and of MCP see them, and what they refuse."""

import asyncio
import json
import threading
import time

import httpx
import openai
import pytest

from optimize.abtest.online import report_experiment, start_experiment
from optimize.registry.aliases import promote_version
from tests.experiments import KEY
from tests.serving import QUESTION, serving

ASKED = {"model": "shop", "messages": [{"role": "user", "content": QUESTION}]}


@pytest.fixture(scope="session")
def client(address):
    with openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0) as found:
        yield found


def test_the_openai_client_gets_an_answer_with_its_citations(client):
    reply = client.chat.completions.create(**ASKED)
    message, more = reply.choices[0].message, reply.model_extra
    assert "1.7 litres" in message.content and more["outcome"] == "answered" and len(more["trace_id"]) == 16
    (mark,), (citation,) = message.annotations, more["citations"]
    place = mark.url_citation
    assert message.content[place.start_index : place.end_index] == "[1]" and citation["n"] == 1
    assert any("1.7" in citation["text"][start:end] for start, end in citation["quotes"])
    assert [model.id for model in client.models.list()] == ["shop"]


@pytest.mark.parametrize("options", [{}, {"include_drafts": True}], ids=["what counts", "drafts"])
def test_a_stream_ends_with_the_text_that_a_single_reply_has(client, options):
    whole = client.chat.completions.create(**ASKED).choices[0].message.content
    asked = {"stream": True, "stream_options": {"include_usage": True, **options}}
    chunks, text = list(client.chat.completions.create(**ASKED, **asked)), ""
    for chunk in chunks:
        text = "" if (chunk.model_extra or {}).get("withdrawn") else text
        text += (chunk.choices[0].delta.content or "") if chunk.choices else ""
    assert text == whole and chunks[-1].usage.total_tokens == 0
    (end,) = (chunk for chunk in chunks if chunk.choices and chunk.choices[0].finish_reason)
    assert end.model_extra["citations"] and end.model_extra["path"][0] == "classify->simple[product]"
    told = [
        chunk.choices[0].delta.model_extra.get("reasoning_content", "").strip() for chunk in chunks if chunk.choices
    ]
    assert end.model_extra["way"] == [*filter(None, told)] and told[1] == "It is a simple question, for: product."


@pytest.mark.parametrize(
    "changes, error",
    [
        ({"model": "gpt-4"}, openai.NotFoundError),
        ({"model": "../../etc"}, openai.NotFoundError),
        ({"messages": []}, openai.BadRequestError),
        ({"messages": [{"role": "user", "content": " "}]}, openai.BadRequestError),
        ({"messages": [{"role": "assistant", "content": "Hello."}]}, openai.BadRequestError),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, openai.BadRequestError),
        ({"messages": [{"role": "user", "content": "x" * 10_001}]}, openai.BadRequestError),
        ({"n": 2}, openai.BadRequestError),
    ],
)
def test_what_cannot_be_asked_is_an_error_of_the_openai_client(client, changes, error):
    with pytest.raises(error) as found:
        client.chat.completions.create(**{**ASKED, **changes})
    assert found.value.body["message"]


HEADERS = {"content-type": "application/json"}


@pytest.mark.parametrize(
    "method, path, headers, content, status",
    [
        ("POST", "/v1/chat/completions", {}, b"{bad", 400),
        ("POST", "/v1/chat/completions", {}, b" " * 1_000_001, 413),
        ("POST", "/v1/chat/completions", {}, b'{"model": "\xff"}', 400),
        ("POST", "/v1/chat/completions", {"origin": "https://evil.example"}, json.dumps(ASKED).encode(), 403),
        ("POST", "/review", {"sec-fetch-site": "cross-site"}, b"trace_id=1", 403),
        ("POST", "/review", {"content-type": "application/x-www-form-urlencoded"}, b"trace_id=1", 400),
        ("POST", "/v1/feedback", {}, b'{"trace_id": "0123456789abcdef"}', 400),
        ("POST", "/compare", {}, b'{"question": "Why?", "versions": ["shop", "shop"]}', 400),
        ("POST", "/compare/vote", {}, b'{"pair": "none", "preferred": 0}', 404),
        ("DELETE", "/v1/models", {}, b"", 405),
        ("GET", "/static/../app.py", {}, b"", 404),
        ("GET", "/healthz", {"host": "evil.example"}, b"", 400),
        ("GET", "/healthz", {}, b"", 200),
        ("GET", "/readyz", {}, b"", 200),
    ],
)
def test_every_response_is_guarded_and_tells_no_more_than_the_client_can_mend(
    address, method, path, headers, content, status
):
    reply = httpx.request(method, address + path, headers={**HEADERS, **headers}, content=content)
    assert reply.status_code == status and "script-src 'self'" in reply.headers["content-security-policy"]
    assert "Traceback" not in reply.text and (
        status == 413 or "host" in headers or status == 200 or reply.json()["error"]
    )


def test_the_metrics_count_answers_errors_and_what_is_at_work(address):
    httpx.post(f"{address}/v1/chat/completions", json=ASKED)
    httpx.post(f"{address}/v1/chat/completions", content=b"{")
    lines = dict(line.rsplit(" ", 1) for line in httpx.get(f"{address}/metrics").text.splitlines() if line[0] != "#")
    assert float(lines['ragc_questions_total{version="",outcome="answered"}']) >= 1
    assert lines['ragc_question_seconds_bucket{le="+Inf"}'] == lines["ragc_question_seconds_count"]
    assert float(lines['ragc_events_total{kind="error",value="400"}']) >= 1 and lines["ragc_questions_at_work"] == "0"


def test_an_mcp_client_lists_the_tools_and_calls_them(address):
    from mcp import Client

    async def call():
        async with Client(f"{address}/mcp") as tools:
            names = [tool.name for tool in (await tools.list_tools()).tools]
            asked = await tools.call_tool("ask_knowledge", {"question": QUESTION})
            found = await tools.call_tool("search_knowledge", {"query": QUESTION, "k": 2})
            return names, asked.structured_content, found.structured_content

    names, asked, found = asyncio.run(call())
    assert names == ["ask_knowledge", "search_knowledge"] and "1.7 litres" in asked["text"] and asked["citations"]
    assert found["result"][0]["id"] == "product/kettles.md#capacity"


def test_an_alias_is_followed_without_a_request_that_fails(compiled, monkeypatch):
    root = compiled / "artifacts"
    promote_version("shop@v1", "production", root=root)
    with serving("shop@production", artifacts=root) as address:
        seen, stop = [], threading.Event()

        def ask():
            while not stop.is_set():
                reply = httpx.post(
                    f"{address}/v1/chat/completions", json={**ASKED, "model": "shop@production"}, timeout=60
                )
                seen.append((reply.status_code, reply.json()["version"]))

        threads = [threading.Thread(target=ask) for _ in range(3)]
        for thread in threads:
            thread.start()
        for version in ("v2", "v1", "v2"):
            promote_version(f"shop@{version}", "production", root=root)
            before = len(seen)
            while (200, f"shop@{version}") not in seen[before:]:
                time.sleep(0.02)
        stop.set()
        for thread in threads:
            thread.join()
        assert {status for status, _ in seen} == {200} and {version for _, version in seen} == {"shop@v1", "shop@v2"}
        models = [model["id"] for model in httpx.get(f"{address}/v1/models").json()["data"]]
        assert models == ["shop@production", "shop@v2", "shop@v1"]
        other = httpx.post(f"{address}/v1/chat/completions", json={**ASKED, "model": "shop@v1"})
        assert other.json()["version"] == "shop@v1"


def test_an_experiment_serves_its_arms_and_its_report_shows_thumbs_and_votes(compiled, monkeypatch):
    monkeypatch.setenv("RAGC_UNIT_KEY", KEY)
    root = compiled / "artifacts"
    arms = {"A": "shop@v1", "B": "shop@v2"}
    start_experiment("served", arms, primary="thumb_up", max_units=1000, artifacts=root)
    with serving("exp-served", artifacts=root) as address:
        path, asked = f"{address}/v1/chat/completions", {**ASKED, "model": "exp-served"}
        replies = {user: httpx.post(path, json={**asked, "user": user}, timeout=60).json() for user in "abcdefgh"}
        again = httpx.post(path, json={**asked, "user": "a"}).json()
        assert again["version"] == replies["a"]["version"] and len({one["version"] for one in replies.values()}) == 2
        with httpx.Client() as browser:
            versions = {browser.post(path, json=asked).json()["version"] for _ in range(4)}
            assert len(versions) == 1 and len(browser.cookies) == 1
            browser.cookies.set("ragc_unit", "somebody.else", domain="127.0.0.1")
            assert "set-cookie" in browser.post(path, json=asked).headers
        for user, reply in replies.items():
            said = {"trace_id": reply["trace_id"], "verdict": "right" if user < "d" else "wrong", "outcome": "solved"}
            assert httpx.post(f"{address}/v1/feedback", json=said).json() == {"recorded": True}
        pair = httpx.post(f"{address}/compare", json={"question": QUESTION, "versions": ["A", "B"]}, timeout=60).json()
        assert "version" not in json.dumps(pair)
        told = httpx.post(f"{address}/compare/vote", json={"pair": pair["pair"], "preferred": 0}).json()
        assert sorted(told["versions"]) == ["A (shop@v1)", "B (shop@v2)"]
        assert httpx.post(f"{address}/compare/vote", json={"pair": pair["pair"], "preferred": 0}).status_code == 404
    report = report_experiment("served", root)
    assert sum(arm.measured for arm in report.arms) == 8 and set(report.measures["solved"].values()) == {1.0}
    (votes,) = report.votes
    assert (votes.preferred, votes.other) == ((0, 1) if told["versions"][0][0] == "A" else (1, 0))
    assert report.accounting.unusable == report.accounting.crossed == report.accounting.unmatched == 0


def test_a_question_is_read_behind_the_messages_before_it(client):
    said = [{"role": "system", "content": "Be brief."}]
    for n in range(10):
        said += [
            {"role": "user", "content": f"Is kettle {n} red?"},
            {"role": "assistant", "content": "I could not find this."},
        ]
    said[-2:] = [
        ASKED["messages"][0],
        {"role": "assistant", "content": [{"type": "text", "text": "The Merle holds 1.7 litres."}]},
    ]
    reply = client.chat.completions.create(model="shop", messages=[*said, {"role": "user", "content": "And the Wren?"}])
    assert "0.8 litres" in reply.choices[0].message.content


def test_without_the_extra_the_verb_says_how_to_install_it(monkeypatch):
    from optimize.cli import serve
    from program.errors import RagcError

    monkeypatch.setattr(serve, "find_spec", lambda name: None)
    with pytest.raises(RagcError, match=r"ragc\[serve\]"):
        serve.run_serve("shop")
