"""What a server outlasts: clients that say too much, too little or nothing, and its own end."""

import gc
import json
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from types import SimpleNamespace

import httpx
import psutil
import pytest

from ragc.server import access, work
from tests.conftest import write_shop
from tests.serving import QUESTION, serving

resource = pytest.importorskip("resource")  # limits of files, and signals, as POSIX has them
KEY = "a-key-of-the-tests-1"
ASKED = {"model": "shop", "messages": [{"role": "user", "content": QUESTION}]}
IDLE = 1000


@contextmanager
def serving_apart(folder, largest=resource.RLIM_INFINITY):
    """A server in a process of its own, that begins with the limit of files of most shells.

    None of its files may have more bytes than the `largest`.
    """
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "ragc.optimize.cli.main", "serve", str(folder), "--port", str(port)]

    def limit_files():
        resource.setrlimit(resource.RLIMIT_NOFILE, (1024, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest, largest))

    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, preexec_fn=limit_files) as process:
        try:
            assert f"http://127.0.0.1:{port}" in process.stderr.readline()
            found = SimpleNamespace(process=process, port=port, address=f"http://127.0.0.1:{port}")
            wait_until(lambda: answers(found))
            yield found
        finally:
            process.kill()


def answers(server):
    with suppress(httpx.TransportError):
        return httpx.get(f"{server.address}/readyz").status_code == 200
    return False


def wait_until(true, seconds=60):
    ends = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < ends
        time.sleep(0.05)


def is_idle(server):
    return "ragc_questions_at_work 0" in httpx.get(f"{server.address}/metrics").text


def count_connections(process, port):
    connections = process.net_connections("tcp")
    return sum(one.laddr.port == port and one.status == psutil.CONN_ESTABLISHED for one in connections)


def connect(server):
    return socket.create_connection(("127.0.0.1", server.port), timeout=60)


def write_request(body, *headers):
    content = json.dumps(body).encode()
    head = ["POST /v1/chat/completions HTTP/1.1", "Host: localhost", "Content-Type: application/json", *headers]
    return "\r\n".join([*head, f"Content-Length: {len(content)}", "", ""]).encode() + content


def read_reply(connection):
    """What comes until the server closes the connection."""
    parts = []
    with suppress(ConnectionError):
        while part := connection.recv(65_536):
            parts.append(part)
    return b"".join(parts)


@pytest.fixture(scope="module")
def server(shop_folder):
    with serving_apart(shop_folder) as found:
        yield found


@pytest.fixture
def files():
    """Leave to open as many files as the test needs."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2 * IDLE:
        pytest.skip("this process may not open enough files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2 * IDLE) if soft >= 0 else soft, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_question_is_answered_beside_a_thousand_idle_connections_and_none_of_them_stays(server, files):
    process = psutil.Process(server.process.pid)
    before = process.num_fds()
    with ExitStack() as stack:
        for _ in range(IDLE):
            stack.enter_context(connect(server))
        wait_until(lambda: count_connections(process, server.port) >= IDLE)
        reply = httpx.post(f"{server.address}/v1/chat/completions", json=ASKED, timeout=60)
        assert "1.7 litres" in reply.json()["choices"][0]["message"]["content"]
    wait_until(lambda: process.num_fds() < before + IDLE / 10)


def test_more_questions_than_may_wait_are_told_when_to_come_again_and_the_others_are_answered(server):
    with ExitStack() as stack:
        places = [stack.enter_context(connect(server)) for _ in range(3 * (work.AT_WORK + work.WAITING))]
        for place in places:
            place.sendall(write_request(ASKED, "Connection: close"))
        replies = [read_reply(place).decode() for place in places]
    turned_away = [reply for reply in replies if " 429 " in reply.splitlines()[0]]
    answered = [reply for reply in replies if " 200 " in reply.splitlines()[0]]
    assert turned_away and len(answered) >= work.AT_WORK + work.WAITING
    assert len(turned_away) + len(answered) == len(replies)
    assert all(f"retry-after: {work.RETRY_AFTER}" in reply for reply in turned_away)
    assert all("1.7 litres" in reply for reply in answered) and is_idle(server)


def test_clients_that_leave_midway_or_never_read_leave_nothing_at_work(server):
    for _ in range(5):
        with httpx.stream("POST", f"{server.address}/v1/chat/completions", json={**ASKED, "stream": True}) as reply:
            next(reply.iter_lines())
    with ExitStack() as stack:
        for _ in range(40):
            place = stack.enter_context(connect(server))
            place.sendall(write_request({**ASKED, "stream": True}))
        wait_until(lambda: is_idle(server))
        assert httpx.post(f"{server.address}/v1/chat/completions", json=ASKED, timeout=60).status_code == 200


def test_a_head_of_ten_thousand_lines_is_refused(server):
    with connect(server) as place:
        place.sendall(write_request(ASKED, *("Connection: close", *(f"X-{n}: 1" for n in range(10_000)))))
        assert read_reply(place).split()[1] in (b"400", b"431")
    headers = {f"x-{n}": "1" for n in range(200)}
    reply = httpx.get(f"{server.address}/healthz", headers=headers)
    assert reply.status_code == 431 and "100 headers" in reply.json()["error"]["message"]


def test_a_body_of_two_megabytes_is_refused_and_the_next_question_answered(server):
    assert httpx.post(f"{server.address}/v1/chat/completions", content=b" " * 2_000_000).status_code == 413
    assert httpx.post(f"{server.address}/v1/chat/completions", json=ASKED).status_code == 200


def test_a_head_or_body_that_does_not_come_is_not_waited_for(shop_folder, monkeypatch):
    monkeypatch.setattr("ragc.server.app.SECONDS", 0.2)
    with serving(shop_folder) as address:
        port = int(address.rpartition(":")[2])
        for sent, status in ((b"", b""), (b"GET / HT", b""), (write_request(ASKED)[:-1], b" 408 ")):
            with socket.create_connection(("127.0.0.1", port), timeout=20) as slow:
                slow.sendall(sent)
                assert status in read_reply(slow).partition(b"\r\n")[0]


def test_what_was_open_before_a_server_began_is_searched_for_garbage_only_when_it_has_ended(shop_folder):
    with serving(shop_folder) as address:
        assert httpx.get(f"{address}/healthz").status_code == 200 and gc.get_freeze_count()
    assert not gc.get_freeze_count()


def test_a_key_that_posts_too_often_is_told_when_to_come_again(shop_folder, monkeypatch):
    monkeypatch.setenv(access.KEYS, f"{KEY} {KEY}-of-another")
    monkeypatch.setattr(access, "POSTS", 3)
    with serving(shop_folder) as address, httpx.Client(base_url=address, auth=("", KEY)) as client:
        replies = [client.post("/v1/chat/completions", content=b"{") for _ in range(5)]
        assert [reply.status_code for reply in replies[:3]] == [400] * 3 and replies[-1].status_code == 429
        assert int(replies[-1].headers["retry-after"]) > 0 and client.get("/v1/models").status_code == 200
        other = client.post("/v1/chat/completions", json=ASKED, auth=("", f"{KEY}-of-another"), timeout=60)
        assert other.status_code == 200


def test_on_a_full_disk_it_goes_on_answering_and_says_what_was_not_recorded(tmp_path):
    folder = write_shop(tmp_path / "shop")
    with serving(folder) as address:
        trace = httpx.post(f"{address}/v1/chat/completions", json=ASKED, timeout=60).json()["trace_id"]
    with serving_apart(folder, largest=0) as server:
        for n in range(3):
            asked = {"model": "shop", "messages": [{"role": "user", "content": f"{QUESTION} {n}"}]}
            told = httpx.post(f"{server.address}/v1/chat/completions", json=asked, timeout=60)
            assert told.status_code == 200
        verdict = {"trace_id": told.json()["trace_id"], "verdict": "right"}
        review = {"trace_id": trace, "verdict": "should_abstain"}
        html = {"Accept": "text/html"}
        for reply in (
            httpx.post(f"{server.address}/v1/feedback", json=verdict),
            httpx.post(f"{server.address}/review", data=review, headers=html),
        ):
            assert reply.status_code == 500 and "It was not recorded: File too large." in reply.text
        server.process.terminate()
        lines = server.process.stderr.read().splitlines()
    assert not (folder / ".ragc" / "feedback.jsonl").read_bytes() + (folder / "reviewed.jsonl").read_bytes()
    assert len([line for line in lines if "ragc.server: not recorded" in line and ".jsonl" in line]) == 2
    assert len([line for line in lines if "Traces cannot be written" in line]) == 1 and len(lines) <= 4


@pytest.mark.parametrize("host, shown", [("127.0.0.1", "127.0.0.1"), ("::1", "[::1]"), ("localhost", "localhost")])
def test_the_address_that_it_tells_is_one_at_which_it_listens(shop_folder, host, shown):
    try:
        socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET).close()
    except OSError:
        pytest.skip(f"this machine has no {host}")
    command = [sys.executable, "-m", "ragc.optimize.cli.main", "serve", str(shop_folder), "--host", host, "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        line = process.stderr.readline()
        address = line.split()[-1]
        assert address.startswith(f"http://{shown}:") and httpx.get(f"{address}/readyz").status_code == 200
        process.terminate()


def test_an_address_that_is_taken_is_an_error_and_never_told(shop_folder):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        command = [sys.executable, "-m", "ragc.optimize.cli.main", "serve", str(shop_folder), "--port", port]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and f"port {port}: Address already in use. Choose another" in done.stderr
    assert "Serving" not in done.stderr and "Traceback" not in done.stderr


def test_a_signal_ends_the_server_once_what_it_answers_is_told(shop_folder):
    with serving_apart(shop_folder) as server:

        def ask(n):
            """Ask until the server is gone; return what came of every question that it took."""
            texts = []
            gone = (httpx.ConnectError, httpx.RemoteProtocolError, httpx.ReadError)
            with suppress(*gone), httpx.Client(timeout=60) as client:
                while len(texts) < 500:
                    body = {**ASKED, "stream": n % 2 == 0}
                    with client.stream("POST", f"{server.address}/v1/chat/completions", json=body) as reply:
                        texts.append((reply.status_code, ""))
                        texts[-1] = (reply.status_code, reply.read().decode())
            return texts

        with ThreadPoolExecutor(8) as pool:
            asking = [pool.submit(ask, n) for n in range(8)]
            wait_until(lambda: "_count 0\n" not in httpx.get(f"{server.address}/metrics").text)
            server.process.send_signal(signal.SIGTERM)
            replies = [reply for one in asking for reply in one.result()]
        assert server.process.wait(40) in (0, -signal.SIGTERM)
        assert "Traceback" not in server.process.stderr.read()
    assert {status for status, _ in replies} == {200} and all("1.7 litres" in text for _, text in replies)
