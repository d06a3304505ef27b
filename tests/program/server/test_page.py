"""The pages as a person meets them: in a real browser, by mouse or keyboard, wide or narrow."""

import os
import shutil

import pytest

from optimize.abtest.online import report_experiment, start_experiment
from program.knowledge.project import Project
from program.storage import read_json_rows
from tests.conftest import write_shop
from tests.experiments import KEY
from tests.serving import QUESTION, serving

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
SCRIPT = "<img src=x onerror=\"document.title='run'\"><script>document.title='run'</script>"

if not CHROMIUM:
    pytest.skip("there is no Chromium on this machine (Debian: apt-get install chromium)", allow_module_level=True)


@pytest.fixture(scope="module")
def browser():
    api = pytest.importorskip("playwright.sync_api")
    with api.sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield found
        found.close()


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A project one of whose documents holds a script."""
    folder = write_shop(tmp_path_factory.mktemp("paged"))
    page = folder / "knowledge" / "product" / "lids.md"
    page.write_text(f"# Lids\n\n## Colour\nThe lid of the Merle is made of copper `{SCRIPT}` and glass.\n")
    return Project.open(folder)


@pytest.fixture(scope="module")
def address(project):
    with serving(project.folder) as found:
        yield found


@pytest.fixture
def page(browser, address):
    """An empty page; what it was told in vain, by its console or by another host, fails the test."""
    context = browser.new_context(base_url=address, viewport={"width": 1000, "height": 800})
    found, amiss = context.new_page(), []
    found.set_default_timeout(8000)
    found.on(
        "console",
        lambda said: (
            amiss.append(said.text) if said.type in ("error", "warning") and "status of 400" not in said.text else None
        ),
    )
    found.on("pageerror", lambda error: amiss.append(str(error)))
    found.on("request", lambda sent: None if sent.url.startswith((address, "data:")) else amiss.append(sent.url))
    yield found
    context.close()
    assert amiss == []


def ask(page, question=QUESTION):
    page.goto("/")
    page.get_by_label("Question").fill(question)
    page.keyboard.press("Enter")
    turn = page.get_by_role("article").last
    turn.get_by_role("button", name="Right").wait_for()
    return turn


def test_one_asks_and_sees_the_piece_that_is_cited(page, project):
    turn = ask(page)
    assert "1.7 litres" in turn.locator(".text").inner_text() and "answered" in turn.get_by_role("status").inner_text()
    turn.get_by_role("button", name="Citation 1").click()
    assert "1.7 litres" in turn.locator("mark").inner_text()
    turn.get_by_text("How it came about").click()
    assert turn.get_by_role("listitem").count() >= 2
    turn.get_by_role("button", name="Wrong").click()
    turn.get_by_label("What would be right?").fill("two litres")
    turn.get_by_role("button", name="Send").click()
    turn.get_by_text("Thank you.").wait_for()
    said = list(read_json_rows(project.private / "feedback.jsonl"))
    assert [(row["verdict"], row["corrected"]) for row in said] == [("wrong", ""), ("wrong", "two litres")]


def test_a_script_in_a_document_or_a_question_never_runs(page):
    turn = ask(page, f"Is the lid of the Merle made of copper? {SCRIPT}")
    assert turn.get_by_role("heading").inner_text().endswith(SCRIPT)
    if turn.get_by_role("button", name="Citation 1").count():
        turn.get_by_role("button", name="Citation 1").first.click()
    page.goto("/review")
    page.get_by_role("heading", name="Review").wait_for()
    assert page.title() != "run" and page.locator("main img, main script").count() == 0


def press(page, key):
    """Press a key that leads to the next page."""
    with page.expect_navigation():
        page.keyboard.press(key)


def test_reviews_by_keyboard_alone_label_questions(page, project):
    for question in (QUESTION, "How often should the kettle be descaled by me?", "Why is it so?"):
        ask(page, question)
    page.goto("/review")
    while page.get_by_role("button", name="Skip").count():
        heading = page.get_by_role("article").get_by_role("heading").inner_text()
        if heading.startswith("How often"):
            page.get_by_label("What a right answer states").fill("eleven years")
            page.get_by_role("button", name="Wrong").focus()
            press(page, "w")
            assert "does not state “eleven years”" in page.get_by_role("alert").inner_text()
            page.locator(".piece", has_text="6 weeks").first.focus()
            page.keyboard.press("Enter")
            page.get_by_role("button", name="Wrong").focus()
            press(page, "w")
        else:
            press(page, "n" if heading.startswith("Why") else "s")
    rows = {row["question"]: row for row in read_json_rows(project.reviewed)}
    assert {row["outcome"] for row in rows.values()} == {"answered", "abstain"}
    corrected = rows["How often should the kettle be descaled by me?"]
    assert "6 weeks" in corrected["facts"][0] and corrected["evidence"] == ["product/kettles.md#descaling"]
    assert corrected["reviewed"]["seconds"] > 0 and "Nothing is left" in page.get_by_role("main").inner_text()


def test_two_versions_are_compared_blind(browser, compiled):
    file = compiled / ".ragc" / "feedback.jsonl"
    before = len(list(read_json_rows(file))) if file.is_file() else 0  # the votes of other tests on this project
    with serving("shop@v2", artifacts=compiled / "artifacts") as address:
        page = browser.new_page(base_url=address)
        page.goto("/compare")
        page.get_by_label("Question").fill(QUESTION)
        page.get_by_role("button", name="Ask both").click()
        page.get_by_role("button", name="Answer 1 is better").wait_for()
        assert page.get_by_role("article").count() == 2 and "@" not in page.locator("#sides").inner_text()
        page.keyboard.press("2")
        page.get_by_text("Recorded.").wait_for()
        assert {"shop@v1", "shop@v2"} <= set(
            page.locator("#progress").inner_text().replace(",", " ").rstrip(".").split()
        )
        page.close()
    (vote,) = list(read_json_rows(file))[before:]
    assert vote["preferred"] == vote["versions"][1] and sorted(vote["versions"]) == ["shop@v1", "shop@v2"]


def test_a_project_without_two_versions_says_why_nothing_can_be_compared(page):
    page.goto("/compare")
    assert "not two versions" in page.get_by_role("status").inner_text() and page.get_by_role("button").count() == 0


def test_any_two_of_three_arms_are_compared_and_the_report_counts_each_pair(browser, compiled, monkeypatch):
    monkeypatch.setenv("RAGC_UNIT_KEY", KEY)
    root = compiled / "artifacts"
    arms = {"A": "shop@v1", "B": "shop@v2", "C": "shop@v1"}
    start_experiment("three", arms, primary="thumb_up", max_units=1000, artifacts=root)
    with serving("exp-three", artifacts=root) as address:
        page = browser.new_page(base_url=address)
        page.goto("/compare")
        page.get_by_label("Question").fill(QUESTION)
        for pair in ("AB", "BC", "BC"):
            for label, arm in zip(("One version", "The other"), pair, strict=True):
                page.get_by_label(label).select_option(arm)
            page.get_by_role("button", name="Ask both").click()
            page.get_by_role("button", name="Neither").click()
            page.get_by_text("Recorded.").wait_for()
            assert all(f"{arm} (shop@v" in page.locator("#progress").inner_text() for arm in pair)
        page.close()
    votes = {(one.arm, one.against): one.neither for one in report_experiment("three", root).votes}
    assert votes == {("B", "A"): 1, ("C", "B"): 2}


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1400])
def test_every_page_fits_its_width_and_names_every_control(browser, address, width, scheme):
    context = browser.new_context(base_url=address, viewport={"width": width, "height": 700}, color_scheme=scheme)
    page = context.new_page()
    for path in ("/", "/compare", "/review"):
        if path == "/":
            ask(page).get_by_role("button", name="Citation 1").click()
        else:
            page.goto(path)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        unnamed = "e => !(e.labels?.length || e.textContent.trim() || e.ariaLabel || e.type === 'hidden')"
        fields = page.locator("button, input, select, textarea")
        assert [n for n in range(fields.count()) if fields.nth(n).evaluate(unnamed)] == []
        colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (colour == "rgb(255, 255, 255)") == (scheme == "light")
        if folder := os.environ.get("RAGC_SCREENSHOTS"):
            page.screenshot(path=f"{folder}/{path.strip('/') or 'ask'}-{width}-{scheme}.png", full_page=True)
    context.close()
