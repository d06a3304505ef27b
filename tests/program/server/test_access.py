"""Who comes in: holders of keys, a proxy's users, and reviewers."""

import asyncio

import httpx
import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from starlette.requests import HTTPConnection

from ragc.errors import SettingsError
from ragc.server import access
from tests.conftest import write_shop
from tests.serving import serving

PLAIN, REVIEWER = "a-key-of-the-tests-1", "a-key-of-the-tests-2"


@pytest.fixture(scope="module")
def locked(shop_folder):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(access.KEYS, f"{PLAIN} {REVIEWER}=finance,{access.REVIEWERS}")
        with serving(shop_folder) as found:
            yield found


@pytest.mark.parametrize(
    "path, auth, status",
    [
        ("/", None, 401),
        ("/", "wrong-key-of-the-tests", 401),
        ("/", ("any", PLAIN), 200),
        ("/v1/models", PLAIN, 200),
        ("/review", PLAIN, 403),
        ("/review/draft", PLAIN, 403),
        ("/review/draft", REVIEWER, 200),
        ("/review", REVIEWER, 200),
        ("/healthz", None, 200),
        ("/mcp", None, 401),
        ("/static/app.js", None, 401),
    ],
)
def test_a_key_opens_all_but_the_reviews(locked, path, auth, status):
    bearer = {"Authorization": f"Bearer {auth}"} if isinstance(auth, str) else {}
    reply = httpx.get(locked + path, headers=bearer, auth=auth if isinstance(auth, tuple) else None)
    assert reply.status_code == status and PLAIN not in reply.text


def test_a_browser_is_shown_a_page_that_says_why_and_no_link_that_it_may_not_follow(locked):
    html = {"Accept": "text/html,*/*;q=0.8"}
    for key, path, status, says in (
        ("wrong", "/", 401, "Give a key"),
        (PLAIN, "/review", 403, "Reviews are for the group"),
        (PLAIN, "/nowhere", 404, "Not Found"),
        (PLAIN, "/", 200, "Question"),
        (REVIEWER, "/nowhere", 404, "Not Found"),
    ):
        reply = httpx.get(locked + path, headers=html, auth=("", key))
        assert reply.status_code == status and says in reply.text and reply.text.startswith("<!doctype html>")
        assert ('href="/review"' in reply.text) == (key == REVIEWER) and ("www-authenticate" in reply.headers) == (
            status == 401
        )
    reply = httpx.post(f"{locked}/review", data={"trace_id": "1"}, headers=html, auth=("", REVIEWER))
    assert reply.status_code == 400 and "Traceback" not in reply.text and "This did not work" in reply.text


def test_the_answer_of_one_key_is_judged_by_no_other_whatever_server_it_came_from(shop_folder, monkeypatch):
    monkeypatch.setenv(access.KEYS, f"{PLAIN} {REVIEWER}")
    body = {"model": "shop", "messages": [{"role": "user", "content": "How much water does the Merle hold?"}]}
    with serving(shop_folder) as address:
        asked = httpx.post(f"{address}/v1/chat/completions", json=body, auth=("", PLAIN), timeout=60).json()
    said = {"trace_id": asked["trace_id"], "verdict": "wrong", "corrected": "FORGED"}
    with serving(shop_folder) as address:  # another process, or the same one begun anew
        statuses = [
            httpx.post(f"{address}/v1/feedback", json=said, auth=("", key)).status_code for key in (REVIEWER, PLAIN)
        ]
    assert statuses == [404, 200]


def test_a_key_may_post_so_many_times_a_minute():
    key = access.Key(b"", [])
    assert [key.take_post() for _ in range(access.POSTS + 1)] == [True] * access.POSTS + [False]
    key.at -= 1.0  # a second later
    assert [key.take_post() for _ in range(3)] == [True, True, False]


def test_an_address_that_others_reach_needs_a_key_that_cannot_be_guessed(shop_folder, monkeypatch):
    monkeypatch.delenv(access.KEYS, raising=False)
    with pytest.raises(SettingsError, match=access.KEYS), serving(shop_folder, host="0.0.0.0"):
        pass
    monkeypatch.setenv(access.KEYS, "short")
    with pytest.raises(SettingsError, match="fewer than 16"), serving(shop_folder):
        pass


@pytest.mark.parametrize(
    "keys, separator, groups",
    [
        (f"{PLAIN}=board,audit", "", ["board", "audit"]),
        (f'{PLAIN}="Finance Interns, board"', "", ["Finance Interns", "board"]),
        (f"{PLAIN}='\"Sales, EMEA\",board'", "", ["Sales, EMEA", "board"]),
        (f'{PLAIN}="Sales, EMEA|board"', "|", ["Sales, EMEA", "board"]),
        (f"{PLAIN}", "", []),
        (f"{PLAIN}=Zürich;財務", ";", ["Zürich", "財務"]),
    ],
)
def test_a_key_names_groups_of_several_words_in_quotes(keys, separator, groups, monkeypatch):
    monkeypatch.setenv(access.KEYS, keys)
    monkeypatch.setenv(access.SEPARATOR, separator)
    scope = {"type": "http", "path": "/", "method": "GET", "headers": [(b"authorization", b"Bearer " + PLAIN.encode())]}
    known, _ = asyncio.run(access.Access.from_environment().authenticate(HTTPConnection(scope)))
    assert known.scopes == groups
    monkeypatch.setenv(access.KEYS, f'{PLAIN}="Finance Interns')
    with pytest.raises(SettingsError, match="quote"):
        access.Access.from_environment()


def test_a_header_of_groups_is_taken_once_and_no_cache_keeps_what_is_told(shop_folder, monkeypatch):
    monkeypatch.delenv(access.KEYS, raising=False)
    monkeypatch.setenv(access.GROUPS_HEADER, "X-Groups")
    with serving(shop_folder) as address:
        for path, stored in (("/", False), ("/review", False), ("/v1/models", False), ("/static/app.js", True)):
            reply = httpx.get(address + path, headers={"X-Groups": access.REVIEWERS})
            assert reply.status_code == 200 and (reply.headers.get("cache-control") != "no-store") == stored
        twice = httpx.get(f"{address}/", headers=[("X-Groups", "board"), ("X-Groups", "finance")])
        assert twice.status_code == 400 and "X-Groups is there 2 times" in twice.json()["error"]["message"]
        assert httpx.get(f"{address}/v1/models/").status_code == 200


def test_a_key_s_groups_read_what_is_kept_for_them_and_nobody_else_learns_of_it(tmp_path, monkeypatch):
    folder = write_shop(tmp_path / "kept")
    (folder / "knowledge" / "product" / "plans.md").write_text(
        "---\nreaders: [finance]\n---\n# Plans\n\n## Heron\nThe Heron kettle will cost 950 pounds and is made in Gdansk.\n"
    )
    monkeypatch.setenv(access.KEYS, f"{PLAIN}={access.REVIEWERS} {REVIEWER}=finance,{access.REVIEWERS}")
    question = "Where is the Heron kettle made?"
    body = {"model": "shop", "messages": [{"role": "user", "content": question}]}
    with serving(folder) as address:

        def ask(key, **more):
            reply = httpx.post(f"{address}/v1/chat/completions", json={**body, **more}, auth=("", key), timeout=60)
            return reply.text

        def tell(key):
            async def call():
                client = httpx2.AsyncClient(auth=("", key))
                async with client, Client(streamable_http_client(f"{address}/mcp", http_client=client)) as tools:
                    found = await tools.call_tool("search_knowledge", {"query": question})
                    asked = await tools.call_tool("ask_knowledge", {"question": question})
                    return str(found.content) + str(asked.content)

            return asyncio.run(call())

        for asked in (ask, tell, lambda key: ask(key, stream=True)):
            assert "Gdansk" not in (kept := asked(PLAIN)) and "plans.md" not in kept
            assert "Gdansk" in asked(REVIEWER)
        shown = {key: httpx.get(f"{address}/review", auth=("", key)).text for key in (PLAIN, REVIEWER)}
        assert "Gdansk" in shown[REVIEWER] and "Gdansk" not in shown[PLAIN]
