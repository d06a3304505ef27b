"""What is the same in every prompt is marked for providers that keep it only then."""

import json
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from program.models.language.gateway import EndpointTerms, Gateway
from program.models.language.spending import ModelSpending
from program.models.language.transport import Call
from tests.loopback import serving
from tests.support.provider import Script, serve

MESSAGES = [{"role": "system", "content": "Decide."}, {"role": "user", "content": "Hello."}]
REPLY = {
    "id": "1",
    "type": "message",
    "role": "assistant",
    "model": "claude",
    "content": [{"type": "text", "text": "Good day."}],
    "stop_reason": "end_turn",
    "usage": {"input_tokens": 10, "output_tokens": 3},
}


@contextmanager
def anthropic():
    """A server of Anthropic's protocol on loopback, and the bodies that it is sent."""
    bodies = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            told = json.dumps(REPLY).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(told)))
            self.end_headers()
            self.wfile.write(told)

        def log_message(self, *_):
            """Nothing is told."""

    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as address:
        yield f"http://{address}", bodies


@pytest.fixture(scope="module")
def gateway():
    return Gateway()


def test_the_instructions_are_marked_for_claude_and_the_question_is_not(gateway):
    model = "anthropic/claude-sonnet-4-5"
    with anthropic() as (url, bodies):
        reply = gateway.ask(
            gateway.endpoint(model, url, EndpointTerms()), Call(model, MESSAGES, {}, url), ModelSpending()
        )
    assert (reply.text, reply.tokens_in, reply.tokens_out) == ("Good day.", 10, 3)
    assert bodies[-1]["system"][0]["cache_control"] == {"type": "ephemeral"}
    assert "cache_control" not in json.dumps(bodies[-1]["messages"])


def test_nothing_is_marked_for_a_server_that_would_not_know_the_mark(gateway):
    bodies = []

    def brain(body):
        bodies.append(body)
        return "Good day."

    with serve(Script(), brain) as provider:
        model = "openai/stand-in"
        gateway.ask(
            gateway.endpoint(model, provider.url, EndpointTerms()),
            Call(model, MESSAGES, {}, provider.url),
            ModelSpending(),
        )
    assert bodies[0]["messages"] == MESSAGES
