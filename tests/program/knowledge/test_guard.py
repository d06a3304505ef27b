"""Requests go to public addresses only, to the address that was checked, and end in time."""

import socket
import time
from datetime import UTC, datetime, timedelta
from threading import Event, Thread

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from web_server import Reply, web_server

from ragc.errors import KnowledgeError
from ragc.knowledge.guard import Guard, is_public


@pytest.fixture
def server():
    with web_server() as served:
        yield served


@pytest.fixture
def names(monkeypatch):
    """Addresses by host name, each look-up taking the next; other names are looked up as ever."""
    known = {}
    ask = socket.getaddrinfo

    def look_up(host, *rest, **more):
        if host in known:
            host = known[host].pop(0) if len(known[host]) > 1 else known[host][0]
        return ask(host, *rest, **more)

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    return known


def open_guard(seconds=5.0, megabytes=1.0):
    return Guard("The service", seconds, megabytes, allow_private=True)


PRIVATE = """127.0.0.1 10.1.2.3 172.16.0.1 192.168.1.1 169.254.169.254 100.64.0.1 0.0.0.0 224.0.0.1 255.255.255.255 ::1 ::
fe80::1 fe80::1%eth0 fc00::1 ::ffff:127.0.0.1 ::ffff:10.0.0.1 64:ff9b::7f00:1 2002:7f00:1:: ff02::1 192.0.2.1"""


def test_private_reserved_and_wrapped_addresses_are_not_public():
    assert [address for address in PRIVATE.split() if is_public(address)] == []
    assert all(map(is_public, ("1.1.1.1", "93.184.216.34", "2606:4700::1111", "64:ff9b::101:101")))


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "2130706433", "intranet.example"])
def test_a_private_address_is_refused_however_it_is_written(server, names, host):
    names["intranet.example"] = ["127.0.0.1"]
    url = f"http://{host}:{server.url.rpartition(':')[2]}/"
    with pytest.raises(KnowledgeError, match=r"not a public address.*allow_private"):
        Guard("The service", 5, 1).fetch(url)
    assert not server.requests


def test_a_redirect_to_a_private_address_is_refused(server, names, monkeypatch):
    port = server.url.rpartition(":")[2]
    # 127.0.0.2 stands for the public internet here.
    monkeypatch.setattr("ragc.knowledge.guard.is_public", lambda address: address == "127.0.0.2")
    names["public.example"] = ["127.0.0.2"]
    server.replies["/go"] = Reply(status=302, location=f"http://127.0.0.1:{port}/secret")
    server.replies["/secret"] = Reply("secret")
    with web_server("127.0.0.2", server) as outside:
        url = outside.url.replace("127.0.0.2", "public.example")
        with pytest.raises(KnowledgeError, match=r"leads to 127\.0\.0\.1, which is not a public address"):
            Guard("The service", 5, 1).fetch(f"{url}/go")
    assert server.asked("/go")
    assert not server.asked("/secret")


def test_the_connection_goes_to_the_address_that_was_checked(server, names, monkeypatch):
    monkeypatch.setattr("ragc.knowledge.guard.is_public", lambda address: address == "127.0.0.1")
    names["rebinding.example"] = ["127.0.0.1", "127.0.0.9"]  # a second look-up would name another
    server.replies["/"] = Reply("checked")
    url = f"http://rebinding.example:{server.url.rpartition(':')[2]}/"
    assert Guard("The service", 5, 1).fetch(url).content == b"checked"
    assert server.requests[0].headers["Host"].startswith("rebinding.example")
    assert len(names["rebinding.example"]) == 1


@pytest.mark.parametrize(("certified", "trusted"), [("service.example", True), ("other.example", False)])
def test_a_certificate_must_be_of_the_name_though_the_address_is_connected_to(
    tmp_path, names, monkeypatch, certified, trusted
):
    names["service.example"] = ["127.0.0.1"]
    file = certificate(tmp_path, certified)
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    with web_server(certificate=file) as server:
        server.replies["/"] = Reply("sealed")
        url = f"https://service.example:{server.url.rpartition(':')[2]}/"
        if trusted:
            assert open_guard().fetch(url).content == b"sealed"
        else:
            with pytest.raises(KnowledgeError, match=r"(?i)cannot be reached.*certificate"):
                open_guard().fetch(url)


def certificate(folder, name):
    """A file with a key and the certificate for a name that it signed itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.now(UTC)
    own = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    signed = (
        x509.CertificateBuilder()
        .subject_name(own)
        .issuer_name(own)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    file = folder / "certificate.pem"
    form = serialization.PrivateFormat.PKCS8
    private = key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
    file.write_bytes(private + signed.public_bytes(serialization.Encoding.PEM))
    return file


def test_a_key_is_not_sent_on_to_another_host(server, names):
    names["other.example"] = ["127.0.0.1"]
    port = server.url.rpartition(":")[2]
    server.replies["/near"] = Reply(status=302, location="/far")
    server.replies["/far"] = Reply(status=302, location=f"http://other.example:{port}/end")
    server.replies["/end"] = Reply("end")
    assert open_guard().fetch(f"{server.url}/near", headers={"X-Api-Key": "s3cret"}).content == b"end"
    sent = [request.headers.get("X-Api-Key") for request in server.requests]
    assert sent == ["s3cret", "s3cret", None]


def test_a_relative_redirect_is_followed_and_a_ring_of_them_or_what_is_no_web_address_is_not(server):
    server.replies["/a/b"] = Reply(status=301, location="../c")
    server.replies["/c"] = Reply("there")
    server.replies["/ring"] = Reply(status=302, location="/ring")
    found = open_guard().fetch(f"{server.url}/a/b")
    assert (found.content, found.url) == (b"there", f"{server.url}/c")
    with pytest.raises(KnowledgeError, match="too many redirects"):
        open_guard().fetch(f"{server.url}/ring")
    for url in "file:///etc/passwd ftp://x.org/x http:// http://no-such-host.invalid/ http://127.0.0.1:9/".split():
        with pytest.raises(KnowledgeError, match="cannot be reached"):
            open_guard().fetch(url)


def test_leave_for_a_private_address_is_for_the_one_named_and_not_where_it_leads(server):
    server.replies["/secret"] = Reply("secret")
    with web_server("127.0.0.3") as host, web_server("127.0.0.1") as port:
        for place in ("", server.url, host.url, port.url):
            server.replies["/go"] = Reply(status=302, location=f"{place}/secret")
            if place in ("", server.url):
                assert open_guard().fetch(f"{server.url}/go").content == b"secret"
            else:
                with pytest.raises(KnowledgeError, match="not a public address"):
                    open_guard().fetch(f"{server.url}/go")
        assert not host.requests and not port.requests


def test_what_hangs_is_left_alone_when_the_time_is_up_be_it_the_look_up_or_the_head_of_a_reply(monkeypatch):
    with (
        socket.create_server(("127.0.0.1", 0)) as trickling,
        pytest.raises(KnowledgeError, match=r"within 0\.5 seconds"),
    ):

        def trickle():
            there, _ = trickling.accept()
            there.sendall(b"HTTP/1.1 200 OK\r\nX: ")
            while not over.wait(0.1):
                there.sendall(b"x")
            there.close()

        over, began = Event(), time.monotonic()
        thread = Thread(target=trickle)
        thread.start()
        try:
            open_guard(0.5).fetch(f"http://127.0.0.1:{trickling.getsockname()[1]}/")
        finally:
            over.set()
            thread.join()
            assert time.monotonic() - began < 2
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **more: Event().wait(3))
    began = time.monotonic()
    with pytest.raises(KnowledgeError, match=r"within 0\.5 seconds"):
        open_guard(0.5).fetch("http://slow.example/")
    assert time.monotonic() - began < 2


def test_leave_for_a_private_address_is_for_one_port_though_no_address_names_it(monkeypatch):
    asked = []

    def answer(self, request):
        asked.append(request.url.scheme)
        return httpx.Response(302, headers={"location": "https://127.0.0.1/secret"})

    monkeypatch.setattr(httpx.HTTPTransport, "handle_request", answer)
    with pytest.raises(KnowledgeError, match="not a public address"):
        open_guard().fetch("http://127.0.0.1/go")
    assert asked == ["http"]
