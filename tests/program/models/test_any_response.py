"""Whatever bytes a provider sends, with whatever status and headers, a question ends in an outcome."""

import asyncio
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ragc import Outcome
from tests.program.models.responder import responding
from tests.support.goods import program_at
from tests.support.provider import Served, chunk, completion, ending
from tests.support.replies import obliging

NEVER_REPEATED = "retries = 0\ncall_seconds = 5\nbreaker_after = 1000000"
TYPES = ["application/json", "text/event-stream", "text/html", "application/json; charset=utf-16", "x", "", "é/\x7f"]
values = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
things = st.recursive(
    values, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
)
headers = st.dictionaries(
    st.sampled_from(["Retry-After", "Content-Encoding", "Location", "Content-Length", "Transfer-Encoding", "X-A"]),
    st.sampled_from(["nan", "inf", "-1", "1e400", "gzip", "br", "chunked", "/", "//", "http://[", "Thu, 99", "2"]),
    max_size=2,
)
wholes = st.sampled_from(["", "id", "choices", "choices.0", "choices.0.message", "choices.0.message.content", "usage"])
chunks = st.sampled_from(["", "choices", "choices.0", "choices.0.delta", "choices.0.delta.content", "usage", "model"])
statuses = st.sampled_from([200, 200, 200, 201, 204, 206, 302, 304, 400, 401, 404, 413, 429, 500, 503, 529, 600, 999])


def changed(value, way, to):
    """The value with another at the place that `way` leads to, as far as it can be gone."""
    key, _, rest = way.partition(".")
    if isinstance(value, dict) and key in value:
        return {**value, key: changed(value[key], rest, to)}
    if isinstance(value, list) and value and key == "0":
        return [changed(value[0], rest, to), *value[1:]]
    return value if way else to


@st.composite
def responses(draw):
    """A function from the body of a request to status, headers, content type and bytes."""
    status, extra, kind = draw(statuses), draw(headers), draw(st.sampled_from(TYPES))
    of, where, to = draw(st.sampled_from(["bytes", "thing", "whole", "stream"])), draw(wholes), draw(things)
    raw, piece, end = (
        draw(st.binary(max_size=60)),
        draw(chunks),
        draw(st.sampled_from([b"data: [DONE]\n\n", b"", b"\r"])),
    )

    def respond(body):
        if of == "stream" and body.get("stream"):
            told = [chunk(body, Served(""), obliging(body), True), *ending(body, Served(""))]
            told = [json.dumps(changed(json.loads(one), piece, to)).encode() for one in told]
            return status, extra, "text/event-stream", b"".join(b"data: " + one + b"\n\n" for one in told) + end
        whole = changed(completion(body, Served(""), obliging(body)), where, to) if of in ("whole", "stream") else to
        return status, extra, kind, raw if of == "bytes" else json.dumps(whole).encode()

    return respond


@pytest.fixture(scope="module")
def server():
    with responding() as running:
        yield running


@pytest.fixture(scope="module")
def rag(server, tmp_path_factory):
    return program_at(f"{server.url}/v1", tmp_path_factory.mktemp("goods"), provider=NEVER_REPEATED)


@settings(max_examples=15, suppress_health_check=list(HealthCheck))
@given(responses(), st.booleans())
def test_whatever_comes_back_a_question_ends_in_an_outcome(server, rag, respond, streamed):
    async def ask():
        if not streamed:
            return await rag.aask("What does the lamp cost?")
        return [event async for event in rag.stream("What does the lamp cost?")][-1]

    server.respond = respond
    answer = asyncio.run(ask())
    assert isinstance(answer.outcome, Outcome)
    assert json.dumps(answer.as_dict()).encode()
