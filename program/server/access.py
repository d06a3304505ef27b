"""Who may ask: keys from the environment, each with its holder's groups and so many posts a minute, or a proxy's word.

`RAGC_SERVE_KEYS` holds keys parted by white space: `KEY`, `KEY=group,group` or `KEY="group of words,group"`. A program
sends one as a bearer token, a browser as the password of HTTP's basic authentication. `RAGC_SERVE_GROUPS_HEADER` names
the header in which a proxy, past which nobody reaches the server, tells the groups of whoever asks.
`RAGC_SERVE_GROUPS_SEPARATOR` is what parts the groups of both; unset a comma. The queue of reviews shows what others
asked, so where groups are known it is for REVIEWERS.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import shlex
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from starlette.authentication import AuthCredentials, AuthenticationBackend, AuthenticationError, SimpleUser
from starlette.datastructures import Headers
from starlette.requests import HTTPConnection

from ragc.errors import SettingsError
from ragc.passage import split_groups

KEYS, GROUPS_HEADER = "RAGC_SERVE_KEYS", "RAGC_SERVE_GROUPS_HEADER"
SEPARATOR = "RAGC_SERVE_GROUPS_SEPARATOR"
LEAST_CHARACTERS = 16  # of a key
POSTS = 120  # of a key in a minute
REVIEWERS = "reviewers"
OPEN = ("/healthz", "/readyz")  # which need no key


class AccessError(AuthenticationError):
    """A request that may not come in, with the status of its response and what the client should know."""

    def __init__(self, status: int, what: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(what)
        self.status_code, self.detail, self.headers = status, what, headers


@dataclass(slots=True)
class Key:
    """What a key opens; its text is kept nowhere."""

    digest: bytes
    groups: list[str]
    allowed: float = POSTS
    """How many posts it may still make, filled up as time goes by."""
    at: float = field(default_factory=time.monotonic)

    def take_post(self) -> bool:
        """Tell whether the key may post now, and count the post."""
        now = time.monotonic()
        self.allowed, self.at = min(self.allowed + (now - self.at) * POSTS / 60, POSTS), now
        may = self.allowed >= 1
        self.allowed -= may
        return may


class Access(AuthenticationBackend):
    """The check of every request; `request.auth.scopes` are the groups of whoever asks."""

    def __init__(self, keys: str = "", header: str = "", separator: str = ",") -> None:
        """Read the keys. Raises `SettingsError` for one that could be guessed, or whose quotes do not end."""
        parts = [entry.partition("=") for entry in _split_keys(keys)]
        self._keys = [Key(_digest_key(key), split_groups(groups, separator)) for key, _, groups in parts]
        self._header, self._separator = header, separator
        if any(len(key) < LEAST_CHARACTERS for key, *_ in parts):
            what = f"A key in {KEYS} has fewer than {LEAST_CHARACTERS} characters."
            raise SettingsError(what, "Make one with: openssl rand -hex 32")

    @classmethod
    def from_environment(cls) -> Access:
        """Return what the environment sets."""
        return cls(os.environ.get(KEYS, ""), os.environ.get(GROUPS_HEADER, ""), os.environ.get(SEPARATOR) or ",")

    @property
    def needs_key(self) -> bool:
        """Whether only holders of keys come in."""
        return bool(self._keys)

    async def authenticate(self, conn: HTTPConnection) -> tuple[AuthCredentials, SimpleUser]:
        """Return the groups of whoever asks, and the digest of the key.

        Raises `AccessError` for nobody known.
        """
        groups, holder = self._read_header(conn.headers), ""
        path = conn.scope["path"]
        if self._keys and path not in OPEN:
            key = self._find_key(conn.headers.get("authorization", ""))
            if conn.scope["method"] == "POST" and not key.take_post():
                raise AccessError(429, f"A key may post {POSTS} times a minute.", {"Retry-After": "5"})
            groups, holder = [*groups, *key.groups], key.digest.hex()
        conn.state.may_review = REVIEWERS in groups or not (self._keys or self._header)
        if path.startswith("/review") and not conn.state.may_review:
            raise AccessError(403, f"Reviews are for the group {REVIEWERS}.")
        return AuthCredentials(groups), SimpleUser(holder)

    def _read_header(self, headers: Headers) -> list[str]:
        """Return the groups that the proxy tells. Raises `AccessError` where somebody else tells some, too."""
        told = headers.getlist(self._header) if self._header else []
        if len(told) > 1:
            raise AccessError(400, f"The header {self._header} is there {len(told)} times. The proxy must replace it.")
        written = "".join(told)
        with suppress(UnicodeDecodeError):  # what is no UTF-8 stays Latin-1, as HTTP has it
            written = written.encode("latin-1").decode()
        return split_groups(written, self._separator)

    def _find_key(self, given: str) -> Key:
        scheme, _, value = given.partition(" ")
        if scheme.lower() == "basic":
            try:
                value = base64.b64decode(value).decode().partition(":")[2]
            except (binascii.Error, UnicodeDecodeError):
                value = ""
        digest = _digest_key(value.strip())
        found = [key for key in self._keys if hmac.compare_digest(key.digest, digest)]
        if not found:
            asks = {"WWW-Authenticate": 'Basic realm="ragc", charset="UTF-8"'}
            raise AccessError(401, "Give a key of this server, as a bearer token or a password.", asks)
        return found[0]


def _digest_key(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()


def _split_keys(text: str) -> list[str]:
    """Return the entries of a text that white space parts, where it does not stand in quotes."""
    parts = shlex.shlex(text, posix=True)
    parts.whitespace_split, parts.escape, parts.commenters = True, "", ""
    try:
        return [*parts]
    except ValueError as error:
        raise SettingsError(f"A quote in {KEYS} has no end.", 'Write KEY="group of words,group".') from error
