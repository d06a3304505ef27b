"""HTTP requests bounded in size and time, to addresses that are checked after DNS and on every redirect."""

from __future__ import annotations

import ipaddress
import json
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import httpx

from ragc.errors import KnowledgeError
from ragc.threads import begin_in_thread

MAX_REDIRECTS = 5
AGENT = "ragc (+https://pypi.org/project/ragc)"
_NAT64 = ipaddress.ip_network("64:ff9b::/96")


class PrivateAddress(httpx.TransportError):
    """A host that is, or resolves to, an address that is not public."""


@dataclass(frozen=True, slots=True)
class FetchedFile:
    """A reply's bytes and content type; `url` is where it was in the end."""

    url: str
    kind: str
    content: bytes


class Guard:
    """Requests over one client; safe from many threads.

    Every address that a host resolves to must be public, and the connection goes to the address that was checked, so
    that a second look-up cannot name another. `allow_private` allows those of the url alone, with its port. `seconds`
    bounds a request as a whole, `megabytes` its unpacked reply. `who` is named in the errors: no address or header is,
    as either may hold a key.
    """

    def __init__(self, who: str, seconds: float, megabytes: float, allow_private: bool = False) -> None:
        self.who = who
        self.seconds = seconds
        self.megabytes = megabytes
        self._client = httpx.Client(
            transport=_CheckedTransport(allow_private),
            timeout=seconds,
            follow_redirects=True,
            max_redirects=MAX_REDIRECTS,
            headers={"User-Agent": AGENT},
            trust_env=False,  # a proxy would resolve the name anew
        )

    def fetch(self, url: str, headers: Mapping[str, str] | None = None, body: Any = None) -> FetchedFile:
        """Return the reply to a request. Raises `KnowledgeError` without one.

        A request with a body posts it as JSON. What hangs past its time, a look-up of its name among it, is left alone.
        """
        try:
            return begin_in_thread(partial(self._fetch, url, headers, body)).result(self.seconds)
        except (TimeoutError, httpx.TimeoutException) as error:
            late = f"did not answer within {self.seconds:g} seconds"
            raise self._make_error(late, "Raise `seconds`, or look whether it works.") from error

    def _fetch(self, url: str, headers: Mapping[str, str] | None, body: Any) -> FetchedFile:
        until = time.monotonic() + self.seconds
        content = bytearray()
        method = "GET" if body is None else "POST"
        try:
            extensions = {"until": until, "own": (_origin_of(httpx.URL(url)), tuple(headers or ())), "allowed": set()}
            with self._client.stream(method, url, headers=headers, json=body, extensions=extensions) as reply:
                if reply.status_code >= 400:
                    status = f"answered with status {reply.status_code}"
                    raise self._make_error(status, "Look whether it works, and its key.")
                for piece in reply.iter_bytes():
                    content += piece
                    if len(content) > self.megabytes * 1e6:
                        raise self._make_error(f"answered with more than {self.megabytes:g} MB", "Ask it for less.")
                    if time.monotonic() > until:
                        raise httpx.ReadTimeout("slow")
                return FetchedFile(str(reply.url), reply.headers.get("content-type", ""), bytes(content))
        except httpx.TimeoutException:
            raise
        except PrivateAddress as error:
            private = f"leads to {error}, which is not a public address"
            mend = "Set allow_private = true for it in ragc.toml, or name where it leads, if that is meant."
            raise self._make_error(private, mend) from error
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            lost = f"cannot be reached ({_shorten_reason(error)})"
            raise self._make_error(lost, "Check its url, and that it runs.") from error

    def fetch_json(self, url: str, headers: Mapping[str, str] | None = None, body: Any = None) -> Any:
        """Return the reply to a request as JSON. Raises `KnowledgeError` when it is none."""
        found = self.fetch(url, headers, body)
        try:
            return json.loads(found.content)
        except (ValueError, RecursionError) as error:
            kind = found.kind.partition(";")[0] or "nothing known"
            raise self._make_error(f"answered with {kind}, not with JSON", "Check its url.") from error

    def _make_error(self, what: str, mend: str) -> KnowledgeError:
        return KnowledgeError(f"{self.who} {what}.", mend)


class _CheckedTransport(httpx.BaseTransport):
    """A transport that checks a host's addresses, and connects to just those."""

    def __init__(self, allow_private: bool) -> None:
        self.allow_private = allow_private
        # A connection kept open would be taken for another host at the same address, under the first one's certificate.
        self._inner = httpx.HTTPTransport(limits=httpx.Limits(max_keepalive_connections=0))

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        if request.url.scheme not in ("http", "https"):
            raise httpx.UnsupportedProtocol("only http and https are asked")
        if time.monotonic() > request.extensions["until"]:
            raise httpx.ConnectTimeout("slow")
        origin, own = request.extensions["own"]
        port = request.url.port or (443 if request.url.scheme == "https" else 80)
        allowed = request.extensions["allowed"]
        addresses = _look_up(request.url.host, port)
        if _origin_of(request.url) != origin:  # a key is for the host that it was given for
            for name in own:
                request.headers.pop(name, None)
        elif self.allow_private:
            allowed.update((address, port) for address in addresses)
        if not all(is_public(address) or (address, port) in allowed for address in addresses):
            raise PrivateAddress(request.url.host)
        failed: httpx.ConnectError | None = None
        for address in addresses:
            extensions = {**request.extensions, "sni_hostname": request.url.host}
            url, headers, stream = request.url.copy_with(host=address), request.headers, request.stream
            # A copy: where a redirect leads is worked out from the request as it was.
            pinned = httpx.Request(request.method, url, headers=headers, stream=stream, extensions=extensions)
            try:
                return self._inner.handle_request(pinned)
            except httpx.ConnectError as error:
                failed = error
        raise failed or httpx.ConnectError("the name has no address")

    def close(self) -> None:
        self._inner.close()


def is_public(address: str) -> bool:
    """Tell whether an IP address is public, whatever other address it wraps."""
    found: ipaddress.IPv4Address | ipaddress.IPv6Address = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(found, ipaddress.IPv6Address):
        if found.sixtofour or found.teredo:
            return False
        translated = ipaddress.IPv4Address(int(found) & 0xFFFFFFFF) if found in _NAT64 else None
        found = translated or found.ipv4_mapped or found
    return found.is_global and not found.is_multicast


def _origin_of(url: httpx.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port


def _look_up(host: str, port: int) -> list[str]:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise httpx.ConnectError(f"the name {host} is not known") from error
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def _shorten_reason(error: Exception) -> str:
    known = {httpx.TooManyRedirects: "too many redirects", httpx.InvalidURL: "its url is no url"}
    return known.get(type(error), " ".join(str(error).split())[:120].rstrip(".") or type(error).__name__)
