"""Who comes in: holders of keys, a proxy's users, and reviewers."""

import httpx
import pytest

from program.errors import SettingsError
from program.server import access
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
