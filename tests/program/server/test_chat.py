"""The routes as clients of OpenAI's and of MCP see them, and what they refuse."""

import asyncio
import json
import threading
import time
from importlib import metadata

import httpx
import openai
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mcp import Client

from ragc.loop.rag import AgenticRAG
from ragc.optimize.abtest.online import report_experiment, start_experiment
from ragc.optimize.registry.aliases import promote_version
from ragc.server import work
from ragc.server.programs import Programs
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
    assert [model.id for model in client.models.list()] == ["shop"] and client.models.retrieve("shop").id == "shop"


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
        ({"n": 2}, openai.BadRequestError),
    ],
)
def test_what_cannot_be_asked_is_an_error_of_the_openai_client(client, changes, error):
    with pytest.raises(error) as found:
        client.chat.completions.create(**{**ASKED, **changes})
    assert found.value.body["message"]


def say(content, role="user"):
    return {"role": role, "content": content}


IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,"}}
FILE = {"type": "file", "file": {"file_id": "f1"}}
TEXT = {"type": "text", "text": QUESTION}


@pytest.mark.parametrize(
    "messages",
    [
        [say([TEXT])],
        [say([IMAGE, TEXT])],
        [say([{"type": "input_text", "text": QUESTION}])],
        [say([IMAGE]), say([{"type": "refusal", "refusal": "No."}], "assistant"), say(QUESTION)],
        [say(None, "system"), say([FILE, IMAGE]), {**say(None, "assistant"), "tool_calls": None, "name": None}, say([TEXT])],
        [say("Be brief.", "developer"), {**say("42", "tool"), "tool_call_id": "1"}, say(QUESTION)],
        [say([None], "assistant"), say([None, QUESTION, None])],
    ],
    ids=["a part", "beside an image", "input_text", "an earlier image", "nulls", "instructions and tools", "bare parts"],
)  # fmt: skip
def test_the_text_of_any_message_is_read_whatever_stands_beside_it(address, messages):
    reply = httpx.post(f"{address}/v1/chat/completions", json={**ASKED, "messages": messages}, timeout=60)
    assert reply.status_code == 200 and "1.7 litres" in reply.json()["choices"][0]["message"]["content"]


@pytest.mark.parametrize(
    "changes, says",
    [
        ({"messages": [say([IMAGE])]}, "Only text is read; message 1 holds image_url."),
        ({"messages": [say(QUESTION), say("It is.", "assistant"), say([FILE, IMAGE])]}, "message 3 holds file, image_url"),
        ({"messages": [say([])]}, "The question is empty."),
        ({"messages": [say(" ")]}, "The question is empty."),
        ({"messages": [say(42)]}, "The content of a message is text or a list of parts."),
        ({"messages": [say([{"type": "text"}])]}, "A part of the type text holds no text."),
        ({"messages": [say(QUESTION), say("Hello.", "assistant")]}, "must be the user's: that of message 2 is assistant."),
        ({"messages": [say("Be brief.", "system")]}, "must be the user's: that of message 1 is system."),
        ({"messages": []}, "must be the user's: there is none."),
        ({"messages": [say([42])]}, "The content of a message is text or a list of parts."),
        ({"messages": None}, "messages is missing."),
        ({"messages": 7}, "messages must be a list."),
        ({"stream": "perhaps"}, "stream must be true or false."),
        ({"user": 7}, "user must be text."),
        ({"metadata": "x"}, "metadata must be an object."),
        ({"messages": [say("x" * 10_001)]}, "at most 10,000 are read."),
        ({"response_format": {"type": "json_object"}}, "response_format json_object is not supported"),
        ({"response_format": {"type": "json_schema", "json_schema": {}}}, "response_format json_schema"),
        ({"tool_choice": "required"}, "tool_choice required is not supported"),
        ({"tool_choice": {"type": "function", "function": {"name": "f"}}}, "tool_choice function"),
        ({"function_call": {"name": "f"}}, "function_call"),
        ({"n": 2}, "n 2 is not supported"),
        ({"logprobs": True}, "logprobs true is not supported"),
        ({"top_logprobs": 3}, "top_logprobs 3 is not supported"),
        ({"modalities": ["text", "audio"]}, 'modalities ["text","audio"] is not supported'),
        ({"audio": {"voice": "alloy", "format": "wav"}}, "audio {"),
        ({"web_search_options": {}}, "web_search_options {} is not supported"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_request_is_said_in_words(address, changes, says):
    reply = httpx.post(f"{address}/v1/chat/completions", json={**ASKED, **changes})
    error = reply.json()["error"]
    assert reply.status_code == 400 and says in error["message"] and error["type"] == "invalid_request_error"
    assert error["param"] in (*changes, "messages.0")


@pytest.mark.parametrize("body", [b"", b"{", b"[" * 5000, "\ufeff{}".encode(), b'{"model": "\xe9"}'])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/feedback", "/compare", "/compare/vote"])
def test_a_body_that_is_no_json_is_called_so(address, path, body):
    reply = httpx.post(address + path, content=body)
    assert reply.status_code == 400 and reply.json()["error"]["message"].startswith("Invalid JSON: ")


def test_embedded_models_answer_in_threads_of_their_own_behind_the_event_loop(client, monkeypatch):
    seen = []
    begin = AgenticRAG.forward

    def note(self, *args, **more):
        seen.append(threading.current_thread().name)
        return begin(self, *args, **more)

    monkeypatch.setattr(AgenticRAG, "forward", note)
    client.chat.completions.create(**ASKED)
    assert [name.rpartition("_")[0] for name in seen] == ["ragc answers"]


def test_a_web_base_of_pages_on_disk_is_answered_by_the_embedded_models_alone(own_shop):
    kettles = '[knowledge.pages]\nkind = "web"\npath = "knowledge/product"\n'
    (own_shop / "ragc.toml").write_text((own_shop / "ragc.toml").read_text() + kettles)
    assert Programs(str(own_shop)).is_embedded


KEYS = (
    "stream stream_options user n metadata response_format tool_choice function_call tools temperature max_tokens stop"
    " seed top_p logit_bias parallel_tool_calls service_tier store"
).split()


@given(st.sets(st.sampled_from(KEYS)))
@settings(max_examples=10)
def test_a_key_that_is_null_counts_as_absent(address, keys):
    reply = httpx.post(f"{address}/v1/chat/completions", json={**ASKED, **dict.fromkeys(keys)}, timeout=60)
    assert reply.status_code == 200 and "1.7 litres" in reply.json()["choices"][0]["message"]["content"]


@pytest.mark.parametrize(
    "changes",
    [
        {"response_format": {"type": "text"}},
        {"tool_choice": "auto", "tools": [{"type": "function", "function": {"name": "f"}}]},
        {"tool_choice": "none"},
        {"n": 1, "logprobs": False, "top_logprobs": 0, "modalities": ["text"]},
        {"metadata": {"task": "support", "customer": "7"}},
    ],
)
def test_what_changes_nothing_of_an_answer_is_passed_over(address, changes):
    assert httpx.post(f"{address}/v1/chat/completions", json={**ASKED, **changes}).status_code == 200


HISTORY = "### Chat History:\n<chat_history>\nUSER: {}\nASSISTANT: It holds 1.7 litres.\n</chat_history>"


def write_task(form, asked=QUESTION):
    return f"### Task:\nGenerate what is wanted.\n### Output:\n{form}\n{HISTORY.format(asked)}"


TITLE = 'JSON format: { "title": "your concise title here" }\n### Examples:\n- { "title": "Cookies" }'


@pytest.mark.parametrize(
    "text, metadata, told",
    [
        (write_task(TITLE), None, {"title": QUESTION}),
        (write_task(TITLE, f"{QUESTION} " * 40), None, {"title": f"{QUESTION} {QUESTION} How …"}),
        (write_task('JSON format: { "tags": ["tag1", "tag2", "tag3"] }'), None, {"tags": []}),
        (write_task('JSON format: { "follow_ups": ["Question 1?"] }'), None, {"follow_ups": []}),
        (write_task('{\n  "queries": ["query1", "query2"]\n}'), None, {"queries": []}),
        (
            write_task('{ "text": "<your_completion>" }') + "\n<type>General</type>\n<text>How</text>",
            None,
            {"text": ""},
        ),
        (write_task(TITLE, "x " * 9000), None, {"title": f"{'x ' * 39}…"}),
        (write_task("A few words."), None, QUESTION),
        (QUESTION, {"task": "title_generation"}, QUESTION),
        (QUESTION, {"task": "emoji_generation"}, ""),
    ],
    ids="title long tags follow-ups queries completion longest plain by-name emoji".split(),
)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_a_task_that_a_chat_window_sets_is_answered_without_a_question_of_the_knowledge(
    client, shop_folder, text, metadata, told, stream
):
    before = count_traces(shop_folder)
    asked = {"model": "shop", "messages": [say("Hello", "system"), say(text)], "metadata": metadata}
    reply = client.chat.completions.create(**asked, stream=stream)
    if stream:
        content = "".join(chunk.choices[0].delta.content or "" for chunk in reply)
    else:
        content = reply.choices[0].message.content
    assert (json.loads(content) if isinstance(told, dict) else content) == told
    assert count_traces(shop_folder) == before
    with pytest.raises(openai.NotFoundError):
        client.chat.completions.create(**{**asked, "model": "gpt-4"})


@pytest.mark.parametrize(
    "text",
    [
        "### Task:\nRespond to the user query using the context.\n<context>\n<source>A page.</source>\n</context>\n"
        f"<user_query>\n{QUESTION}\n</user_query>",
        f"What does <chat_history> mean? {QUESTION}",
        f"### Task:\n{QUESTION}",
        QUESTION,
    ],
    ids=["over files", "about the tag", "a heading", "plain"],
)
def test_a_question_that_looks_like_such_a_task_is_asked(client, shop_folder, text):
    before = count_traces(shop_folder)
    client.chat.completions.create(model="shop", messages=[say(text)], metadata={"task": "support"})
    assert count_traces(shop_folder) == before + 1


def count_traces(folder):
    file = folder / ".ragc" / "traces.jsonl"
    return len(file.read_bytes().splitlines()) if file.is_file() else 0


def test_a_model_is_retrieved_by_each_name_that_answers(client):
    assert client.models.retrieve("shop").id == "shop"
    for model in ("gpt-4", "shop@v9", "../shop", "a/b"):
        with pytest.raises(openai.NotFoundError) as found:
            client.models.retrieve(model)
        assert found.value.body["code"] == "model_not_found"


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/completions", "/v1/embeddings", "/chat/completions", "/v2/x"])
def test_an_unknown_route_names_the_one_that_is_there(address, path):
    error = httpx.post(address + path, json=ASKED).json()["error"]
    assert f"POST {path} is not served" in error["message"] and "POST /v1/chat/completions" in error["message"]


def test_a_slash_at_the_end_changes_nothing_and_redirects_nowhere(address):
    for path in ("/v1/models/", "/healthz/", "/compare//"):
        assert httpx.get(address + path).status_code == 200


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
        ("GET", "/v1/models", {"host": "evil.example"}, b"", 400),
        ("GET", "/v1/models", {"host": "127.0.0.1.evil.example"}, b"", 400),
        ("GET", "/v1/models", {"host": "localhost@evil.example"}, b"", 400),
        ("GET", "/v1/models", {"host": "[::1]:80"}, b"", 200),
        ("GET", "/healthz", {}, b"", 200),
        ("GET", "/healthz", {"host": "10.0.0.7:8000"}, b"", 200),
        ("GET", "/readyz", {}, b"", 200),
    ],
)
def test_every_response_is_guarded_and_tells_no_more_than_the_client_can_mend(
    address, method, path, headers, content, status
):
    reply = httpx.request(method, address + path, headers={**HEADERS, **headers}, content=content)
    assert reply.status_code == status and "script-src 'self'" in reply.headers["content-security-policy"]
    assert "Traceback" not in reply.text and (status == 200 or reply.json()["error"]["message"])


def test_a_body_that_is_too_long_is_refused_in_openai_s_shape_however_it_is_sent(address):
    whole = httpx.post(f"{address}/v1/chat/completions", content=b" " * 1_000_001)
    parts = httpx.post(f"{address}/v1/chat/completions", content=(b" " * 300_000 for _ in range(4)))
    for reply in (whole, parts):
        assert reply.status_code == 413 and reply.json()["error"]["type"] == "invalid_request_error"
    assert "1,000,000 bytes" in whole.text


def test_the_metrics_count_answers_errors_and_what_is_at_work(address):
    httpx.post(f"{address}/v1/chat/completions", json=ASKED)
    httpx.post(f"{address}/v1/chat/completions", content=b"{")
    lines = dict(line.rsplit(" ", 1) for line in httpx.get(f"{address}/metrics").text.splitlines() if line[0] != "#")
    assert float(lines['ragc_questions_total{version="",outcome="answered"}']) >= 1
    assert lines['ragc_question_seconds_bucket{le="+Inf"}'] == lines["ragc_question_seconds_count"]
    assert float(lines['ragc_events_total{kind="error",value="400"}']) >= 1 and lines["ragc_questions_at_work"] == "0"


def use_tools(address, *calls):
    """What a client lists, who the server says it is, and the result of each call."""

    async def use():
        async with Client(f"{address}/mcp") as tools:
            listed = (await tools.list_tools()).tools
            return listed, tools.server_info, [await tools.call_tool(*call) for call in calls]

    return asyncio.run(use())


def test_an_mcp_client_lists_the_tools_and_is_told_each_thing_once(address):
    calls = [("ask_knowledge", {"question": QUESTION}), ("search_knowledge", {"query": QUESTION, "k": 2})]
    listed, server, replies = use_tools(address, *calls)
    assert [tool.name for tool in listed] == [
        "ask_knowledge",
        "search_knowledge",
    ] and server.version == metadata.version("ragc")
    assert all(tool.annotations.read_only_hint and tool.output_schema is None for tool in listed)
    assert all(reply.structured_content is None and len(reply.content) == 1 for reply in replies)
    asked, found = (json.loads(reply.content[0].text) for reply in replies)
    assert "1.7 litres" in asked["text"] and asked["citations"][0]["title"] == "Kettles > Capacity"
    assert len(asked["trace_id"]) == 16 and found[0]["id"] == "product/kettles.md#capacity"


@pytest.mark.parametrize(
    "tool, given, says",
    [
        ("ask_knowledge", {"question": ""}, "The question is empty."),
        ("ask_knowledge", {"question": "x" * 22_000}, "at most 10,000 are read."),
        ("search_knowledge", {"query": " "}, "The question is empty."),
        ("ask_knowledge", {}, "question is missing."),
        ("ask_knowledge", {"question": 7}, "question must be text."),
        ("search_knowledge", {"query": QUESTION, "k": "many"}, "k must be a whole number."),
        ("look_up", {}, "Unknown tool: look_up"),
    ],
)
def test_a_tool_that_cannot_answer_says_why_and_logs_a_line(address, caplog, tool, given, says):
    _, _, (reply,) = use_tools(address, (tool, given))
    assert reply.is_error and says in reply.content[0].text and "x" * 20 not in reply.content[0].text
    (record,) = (one for one in caplog.records if one.name == "ragc.server")
    assert says in record.getMessage() and record.exc_info is None and "\n" not in record.getMessage()


def test_a_tool_is_told_when_too_many_questions_wait(address, monkeypatch):
    monkeypatch.setattr(work, "WAITING", -work.AT_WORK)
    _, _, (reply,) = use_tools(address, ("ask_knowledge", {"question": QUESTION}))
    assert reply.is_error and "Too many questions are waiting" in reply.content[0].text


@pytest.mark.parametrize("method", ["GET", "DELETE", "PUT"])
def test_nothing_is_streamed_unasked_over_mcp(address, method):
    reply = httpx.request(method, f"{address}/mcp", headers={"Accept": "text/event-stream"}, timeout=20)
    assert reply.status_code == 405


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


def test_an_experiment_serves_its_arms_and_its_report_shows_thumbs(compiled, monkeypatch):
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
            browser.get(address)
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
    assert report.accounting.unusable == report.accounting.crossed == report.accounting.unmatched == 0


WHO = {
    "user": lambda name: {"json": {"user": name}},
    "safety_identifier": lambda name: {"json": {"safety_identifier": name}},
    "metadata": lambda name: {"json": {"metadata": {"user_id": name}}},
    "open webui": lambda name: {"headers": {"X-OpenWebUI-User-Id": name}},
}


@pytest.fixture(scope="module")
def tried(compiled):
    """The address of an experiment, and the folder of its artifacts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAGC_UNIT_KEY", KEY)
        root = compiled / "artifacts"
        arms = {"A": "shop@v1", "B": "shop@v2"}
        start_experiment("units", arms, primary="solved", guards=["error<=0"], max_units=1000, artifacts=root)
        with serving("exp-units", artifacts=root) as address:
            yield address, root


def ask_arm(address, client=httpx, model="exp-units", **more):
    body = {**ASKED, "model": model, **more.pop("json", {})}
    return client.post(f"{address}/v1/chat/completions", json=body, timeout=60, **more)


def count_units(root):
    return sum(arm.units for arm in report_experiment("units", root).arms)


@pytest.mark.parametrize("who", WHO)
def test_a_user_is_one_unit_however_a_client_names_them(tried, who):
    address, root = tried
    before = count_units(root)
    names = [f"{who} {n}" for n in range(6)]
    versions = {name: {ask_arm(address, **WHO[who](name)).json()["version"] for _ in range(3)} for name in names}
    assert all(len(found) == 1 for found in versions.values()) and count_units(root) == before + len(names)


def test_who_says_nothing_gets_the_control_unlogged_and_stays_with_it_and_the_log_says_so_once(tried, caplog):
    address, root = tried
    before = count_units(root)
    assert {ask_arm(address).json()["version"] for _ in range(12)} == {"shop@v1"}
    with httpx.Client() as browser:
        assert {ask_arm(address, browser).json()["version"] for _ in range(4)} == {"shop@v1"}
        assert len(browser.cookies) == 1
    assert count_units(root) == before
    assert sum("takes no part" in record.getMessage() for record in caplog.records) == 1
    units = set()
    for _ in range(3):
        with httpx.Client() as browser:
            browser.get(address)
            units.add(browser.cookies["ragc_unit"])
            assert len({ask_arm(address, browser).json()["version"] for _ in range(3)}) == 1
    assert count_units(root) == before + len(units) == before + 3


def test_an_arm_that_is_asked_by_its_letter_answers_unlogged_whoever_asks(tried):
    address, root = tried
    before = count_units(root)
    for model, version in (("A", "shop@v1"), ("B", "shop@v2")):
        replies = [ask_arm(address, model=model, json={"user": f"user-{n}"}).json() for n in range(4)]
        assert {reply["version"] for reply in replies} == {version}
        said = {"trace_id": replies[0]["trace_id"], "outcome": "solved"}
        assert httpx.post(f"{address}/v1/feedback", json=said).json() == {"recorded": False}
    assert count_units(root) == before and report_experiment("units", root).accounting.unmatched == 0


REFUSED = [
    *({"outcome": name} for name in ("error", "latency_s", "usd", "answered", "a b", "a\nb", "../../x", "x" * 41)),
    *({"outcome": "solved", "value": value} for value in (1e10, -1e308, "much")),
    *({"verdict": "wrong", "correction": "up to 90"}, {"verdict": "skip"}, {}, {"verdict": "right", "trace_id": "?"}),
]


@pytest.mark.parametrize("said", REFUSED, ids=str)
def test_feedback_that_could_bend_an_experiment_or_would_be_lost_is_refused(tried, said):
    address, root = tried
    trace = ask_arm(address, json={"user": "ann"}).json()["trace_id"]
    before = report_experiment("units", root).accounting.rows
    reply = httpx.post(f"{address}/v1/feedback", json={"trace_id": trace, **said})
    assert reply.status_code == 400 and reply.json()["error"]["message"]
    assert report_experiment("units", root).accounting.rows == before


def test_only_who_asked_may_judge_an_answer(tried):
    address, root = tried

    def judge(trace, client=httpx, **more):
        said = {"trace_id": trace, "verdict": "wrong", "outcome": "solved", **more}
        return client.post(f"{address}/v1/feedback", json=said).status_code

    before = report_experiment("units", root).accounting.rows
    assert judge("0" * 16) == 404
    named = ask_arm(address, json={"user": "ann"}).json()["trace_id"]
    assert (judge(named, user="bob"), judge(named, user="ann"), judge(named)) == (404, 200, 200)
    with httpx.Client() as one, httpx.Client() as other:
        for browser in (one, other):
            browser.get(address)
        kept = ask_arm(address, one).json()["trace_id"]
        assert (judge(kept, other), judge(kept), judge(kept, user="ann"), judge(kept, one)) == (404, 404, 404, 200)
    assert report_experiment("units", root).accounting.rows == before + 2 * 2 + 3  # two answers, three outcomes


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
