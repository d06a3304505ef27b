"""Behind a proxy that signs users in: a real one in a process of its own, set up as docs/serving.md says."""

import json
import re
import shutil
from pathlib import Path

import httpx
import pytest

from ragc.server import access, app
from tests.conftest import write_shop
from tests.serving import serving
from tests.support.proxy import proxying

PAGE = (Path(__file__).parents[3] / "docs" / "serving.md").read_text()
DOCUMENTED = re.search(r"```nginx\nlocation / \{\n(.*?)\n\}\n```", PAGE, re.DOTALL)[1]
KEEPS_HOST = "  proxy_set_header Host $host;\n"
BY_DEFAULT = DOCUMENTED.replace(KEEPS_HOST, "")  # nginx then sends its own name for the server
FORWARDS_HOST = DOCUMENTED.replace(KEEPS_HOST, "  proxy_set_header X-Forwarded-Host $http_host;\n")
NAME = "help.example.org"
QUESTION = "Where is the Heron kettle made?"
ASKED = {"model": "shop", "messages": [{"role": "user", "content": QUESTION}]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A project one of whose pages is for finance."""
    found = write_shop(tmp_path_factory.mktemp("proxied"))
    (found / "knowledge" / "product" / "heron.md").write_text(
        "---\nreaders: [finance]\n---\n# Heron\n\n## Works\nThe Heron kettle is made in Gdansk.\n"
    )
    return found


def test_the_page_names_the_lines_of_each_proxy():
    assert KEEPS_HOST in f"{DOCUMENTED}\n" and all(name in PAGE for name in ("Caddy", "Traefik", app.HOSTS))


@pytest.fixture
def proxied(request, folder, tmp_path, monkeypatch):
    """The port of a proxy, given its lines and the names that the server is told."""
    location, names = request.param
    monkeypatch.setenv(access.GROUPS_HEADER, "X-Groups")
    monkeypatch.setenv(app.HOSTS, names)
    with serving(folder) as address, proxying(tmp_path, address.removeprefix("http://"), location) as port:
        yield port


def browse(port, user="ann", **headers):
    """A client that sends what a browser does of the pages behind a proxy."""
    place = f"{NAME}:{port}"
    sent = {"Host": place, "Origin": f"http://{place}", "Sec-Fetch-Site": "same-origin", **headers}
    return httpx.Client(base_url=f"http://127.0.0.1:{port}", headers=sent, auth=(user, user), timeout=60)


WORKING = {
    "as documented": (DOCUMENTED, NAME),
    "among other names": (DOCUMENTED, f"intra.example.org, {NAME.upper()}"),
    "below a domain": (DOCUMENTED, "*.example.org"),
    "with the server's own name": (BY_DEFAULT, NAME),
    "with a forwarded host": (FORWARDS_HOST, ""),
}


@pytest.mark.parametrize("proxied", WORKING.values(), ids=WORKING, indirect=True)
def test_each_user_asks_judges_and_reviews_as_their_groups_may(proxied):
    with browse(proxied) as ann, browse(proxied, "bob", **{"X-Groups": "finance,reviewers"}) as bob:
        assert ann.get("/").status_code == 200 and httpx.get(f"http://127.0.0.1:{proxied}/").status_code == 401
        told = ann.post("/v1/chat/completions", json=ASKED).json()
        assert "Gdansk" in told["choices"][0]["message"]["content"]
        assert "Gdansk" not in bob.post("/v1/chat/completions", json=ASKED).text
        with ann.stream("POST", "/v1/chat/completions", json={**ASKED, "stream": True}) as stream:
            assert stream.headers["content-type"].startswith("text/event-stream") and "Gdansk" in stream.read().decode()
        said = ann.post("/v1/feedback", json={"trace_id": told["trace_id"], "verdict": "right"})
        assert said.json() == {"recorded": True}
        review = {"trace_id": told["trace_id"], "verdict": "skip"}
        assert (
            ann.post("/review", data=review).status_code == 303
            and "Recorded" in ann.get("/review", params={"after": told["trace_id"]}).text
        )
        assert bob.get("/review").status_code == 403
        for site in ({"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}, {"Origin": "null"}):
            assert ann.post("/review", data=review, headers=site).status_code == 403


REFUSED = {
    "a host that is kept": (DOCUMENTED, "", 400, 400),
    "a host that is kept, under another name": (DOCUMENTED, "intra.example.org", 400, 400),
    "the server's own name": (BY_DEFAULT, "", 200, 403),
    "a name that only ends alike": (DOCUMENTED, "ample.org", 400, 400),
}


@pytest.mark.parametrize(
    "proxied, page, post",
    [((location, names), page, post) for location, names, page, post in REFUSED.values()],
    ids=REFUSED,
    indirect=["proxied"],
)
def test_what_the_server_was_not_told_of_is_refused_with_what_to_set(proxied, page, post):
    with browse(proxied) as ann:
        shown = ann.get("/", headers={"Accept": "text/html"})
        assert shown.status_code == page and (page == 200 or (NAME in shown.text and app.HOSTS in shown.text))
        refused = ann.post("/v1/chat/completions", json=ASKED)
        assert refused.status_code == post and app.HOSTS in refused.json()["error"]["message"]
        assert ann.get("/healthz").status_code == 200


@pytest.mark.parametrize("proxied", [WORKING["as documented"]], ids=["as documented"], indirect=True)
def test_a_person_signs_in_asks_and_reviews_in_a_browser(proxied):
    api, chromium = pytest.importorskip("playwright.sync_api"), shutil.which("chromium")
    if not chromium:
        pytest.skip("there is no Chromium on this machine (Debian: apt-get install chromium)")
    flags = ["--no-sandbox", "--disable-gpu", f"--host-resolver-rules=MAP {NAME} 127.0.0.1"]
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=flags)
        place = f"http://{NAME}:{proxied}"
        page = browser.new_page(base_url=place, http_credentials={"username": "ann", "password": "ann"})
        page.goto("/")
        page.get_by_label("Question").fill("Is the Heron kettle made in Gdansk?")
        page.keyboard.press("Enter")
        page.get_by_role("button", name="Right").click()
        page.get_by_text("Thank you.").wait_for()
        assert "Gdansk" in page.get_by_role("article").inner_text()
        page.get_by_role("link", name="Review").click()
        page.get_by_role("button", name="Skip").click()
        page.get_by_text("Recorded: Skip").wait_for()
        browser.close()


def test_the_stand_in_is_a_proxy_as_nginx_is(folder, tmp_path, monkeypatch):
    monkeypatch.setattr("tests.support.proxy.NGINX", None)
    monkeypatch.setenv(access.GROUPS_HEADER, "X-Groups")
    monkeypatch.setenv(app.HOSTS, NAME)
    with serving(folder) as address, proxying(tmp_path, address.removeprefix("http://"), DOCUMENTED) as port:
        with browse(port) as ann, browse(port, "bob", **{"X-Groups": "finance"}) as bob:
            assert "Gdansk" in json.dumps(ann.post("/v1/chat/completions", json=ASKED).json())
            assert "Gdansk" not in bob.post("/v1/chat/completions", json=ASKED).text
        with browse(port, Host="evil.example") as evil:
            assert evil.get("/").status_code == 400
