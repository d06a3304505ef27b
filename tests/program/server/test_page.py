"""The pages as a person meets them: in a real browser, by mouse or keyboard, wide or narrow."""

import json
import os
import shutil
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from ragc.knowledge.project import Project
from ragc.loop.reviewed import Drafts
from ragc.optimize.abtest.online import start_experiment
from ragc.optimize.registry.aliases import promote_version
from ragc.storage import read_json_rows
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
    assert "1.7 litres" in turn.locator(".text").inner_text() and "answered" in turn.locator(".status").inner_text()
    assert "%" not in turn.locator(".status").inner_text() and turn.get_attribute("aria-busy") == "false"
    assert turn.get_by_role("group", name="Is this answer right?").get_by_role("button").count() == 2
    turn.get_by_role("button", name="Citation 1").click()
    assert "1.7 litres" in turn.locator("mark").inner_text()
    turn.get_by_text("How it came about").click()
    assert turn.get_by_role("listitem").count() >= 2
    turn.get_by_role("button", name="Wrong").click()
    turn.get_by_label("What would be right?").fill("two litres")
    turn.get_by_role("button", name="Send").click()
    turn.get_by_text("Thank you.").wait_for()
    assert page.evaluate("document.activeElement.textContent") == "Wrong"
    said = list(read_json_rows(project.private / "feedback.jsonl"))
    assert [(row["verdict"], row["corrected"]) for row in said] == [("wrong", ""), ("wrong", "two litres")]


def test_an_empty_page_has_questions_to_begin_with_and_names_what_answers(page, project):
    page.goto("/")
    examples = page.get_by_role("group", name="Examples").get_by_role("button")
    asks = [ask for base in project.settings.knowledge.values() for ask in base.asks]
    assert {*examples.all_inner_texts()} <= {*asks} and 1 <= examples.count() <= 4
    page.get_by_text("What the answers come from").click()
    assert page.get_by_role("listitem").count() == len(project.settings.knowledge)
    first = examples.first.inner_text()
    examples.first.click()
    turn = page.get_by_role("article").last
    turn.get_by_role("button", name="Right").click()
    turn.get_by_text("Thank you.").wait_for()
    assert turn.get_by_role("heading").inner_text() == first and not page.get_by_role("group", name="Examples").count()
    page.get_by_role("button", name="New conversation").click()
    assert examples.first.is_visible()


ASKS_BACK = {
    **{"outcome": "clarify", "confidence": 0.5, "version": "", "trace_id": "0" * 16, "citations": [], "degraded": []},
    **{"way": ["Asked back."], "options": ["The Merle", "The Wren"]},
    "choices": [{"index": 0, "delta": {"content": "Which do you mean: The Merle or The Wren?"}}],
}


def test_an_option_of_a_question_back_is_chosen_by_a_click(page):
    stream = {"content_type": "text/event-stream", "body": f"data: {json.dumps(ASKS_BACK)}\n\n"}
    page.route("**/v1/chat/completions", lambda route: route.fulfill(**stream))
    page.goto("/")
    page.get_by_label("Question").fill("How much does it hold?")
    page.keyboard.press("Enter")
    options = page.get_by_role("group", name="Which one?").get_by_role("button")
    options.first.wait_for()
    assert options.all_inner_texts() == ["The Merle", "The Wren"]
    page.unroute("**/v1/chat/completions")
    with page.expect_request("**/v1/chat/completions") as sent:
        options.last.click()
    asked = [message["content"] for message in sent.value.post_data_json["messages"]]
    assert asked == ["How much does it hold?", "Which do you mean: The Merle or The Wren?", "The Wren"]
    page.get_by_role("article").last.get_by_role("button", name="Right").wait_for()
    assert options.count() == 0  # of a question back that is answered


def test_versions_are_offered_once_each_and_only_where_there_is_a_choice(browser, address, compiled):
    page = browser.new_page(base_url=address)
    page.goto("/")
    assert not page.get_by_label("Version").is_visible()
    page.close()
    promote_version("shop@v1", "listed", root=compiled / "artifacts")
    with serving(compiled) as other:
        page = browser.new_page(base_url=other)
        page.goto("/")
        page.get_by_label("Version").wait_for()
        shown = page.get_by_label("Version").locator("option").all_inner_texts()
        names = [one["id"] for one in httpx.get(f"{other}/v1/models").json()["data"]]
        page.close()
    assert {"shop", "shop@listed", "shop@v1", "shop@v2"} <= {*names}
    assert shown[0] == "shop (now shop@v2)" and "shop@listed (now shop@v1)" in shown
    assert not {"shop@v1", "shop@v2"} & {*shown}


def test_one_question_is_asked_at_a_time_and_a_late_reply_stays_in_its_conversation(page):
    held = []
    page.route("**/v1/chat/completions", lambda route: held.append(route))
    page.goto("/")
    box, articles = page.get_by_label("Question"), page.get_by_role("article")

    def send(question):
        before = len(held)
        box.fill(question)
        page.keyboard.press("Enter")
        while len(held) == before:
            page.wait_for_timeout(10)
        return [one["content"] for one in held[-1].request.post_data_json["messages"]]

    def reply():
        held[-1].continue_()
        page.locator("button.main:enabled").wait_for()

    assert send(QUESTION) == [QUESTION]
    box.fill("And the Wren?")
    page.keyboard.press("Enter")
    assert articles.count() == len(held) == 1 and box.input_value() == "And the Wren?"
    page.get_by_role("button", name="New conversation").click()
    reply()
    assert articles.count() == 0 and send("What does the Wren draw?") == ["What does the Wren draw?"]
    reply()
    assert len(send(QUESTION)) == 3
    reply()
    box.fill("   ")
    page.keyboard.press("Enter")
    assert articles.count() == 2


BROKEN = {"id": "1", "choices": [{"index": 0, "delta": {"content": "An unchecked draft of generator.answer"}}]}
UNABLE = {
    **{"outcome": "failed", "confidence": 0.0, "version": "", "trace_id": "0" * 16, "citations": []},
    **{"degraded": ["failed: generator.answer: no reply"], "way": ["A step failed."]},
    "choices": [{"index": 0, "delta": {"content": "I could not answer this. Raise max_seconds in ragc.toml."}}],
}


@pytest.mark.parametrize("chunk", [None, BROKEN, UNABLE], ids=["no server", "a stream that ends early", "a failure"])
def test_an_answer_that_fails_says_what_to_do_and_leaves_no_turn(browser, address, chunk):
    page = browser.new_page(base_url=address)
    page.set_default_timeout(8000)
    stream = {"content_type": "text/event-stream", "body": f"data: {json.dumps(chunk)}\n\n"}
    page.route("**/v1/chat/completions", lambda route: route.fulfill(**stream) if chunk else route.abort())
    page.goto("/")
    box = page.get_by_label("Question")
    box.fill(QUESTION)
    page.keyboard.press("Enter")
    page.locator("article .problem").filter(
        has_text="" if chunk is UNABLE else "The server cannot be reached."
    ).wait_for()
    told = page.get_by_role("article").inner_text()
    assert "Ask again in a moment" in told and "ragc.toml" not in told and "generator" not in told
    assert box.input_value() == ("" if chunk is UNABLE else QUESTION)
    page.unroute("**/v1/chat/completions")
    box.fill(QUESTION)
    with page.expect_request("**/v1/chat/completions") as sent:
        page.keyboard.press("Enter")
    assert len(sent.value.post_data_json["messages"]) == 1
    page.route("**/v1/feedback", lambda route: route.abort())
    turn = page.get_by_role("article").last
    turn.get_by_role("button", name="Right").click()
    turn.get_by_text("The server cannot be reached.").wait_for()
    assert turn.get_by_role("button", name="Right").get_attribute("aria-pressed") == "false"
    page.close()


def test_a_question_that_is_too_long_is_kept_whole_and_refused(page):
    page.goto("/")
    page.get_by_label("Question").fill("word " * 2_001)
    page.keyboard.press("Enter")
    page.get_by_text("at most 10,000 are read").wait_for()
    assert len(page.get_by_label("Question").input_value()) > 10_000
    assert page.get_by_role("article").get_by_role("heading").bounding_box()["height"] < 400


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
            assert "The answer that was called wrong states" in page.get_by_role("alert").inner_text()
            page.get_by_role("button", name="Right").focus()
            press(page, "r")
        else:
            press(page, "n" if heading.startswith("Why") else "s")
    rows = {row["question"]: row for row in read_json_rows(project.reviewed)}
    assert {row["outcome"] for row in rows.values()} == {"answered", "abstain"}
    corrected = rows["How often should the kettle be descaled by me?"]
    assert "6 weeks" in corrected["facts"][0] and corrected["evidence"] == ["product/kettles.md#descaling"]
    assert corrected["reviewed"]["seconds"] > 0 and "Nothing is left" in page.get_by_role("main").inner_text()


def test_drafts_are_kept_dropped_and_undone_by_keys(page, project):
    drafts = Drafts(project)
    rows = [
        {"id": f"draft-{n}", "question": f"Kettles: {n}?", "outcome": "answered", "tags": ["draft"]}
        | {"evidence": ["product/kettles.md#descaling"], "facts": ["6 weeks"]}
        for n in range(3)
    ]
    drafts.add([*rows, {**rows[0], "id": "draft-gone", "facts": ["six years"]}])
    page.goto("/review")
    page.get_by_role("link", name="3 drafts").click()
    page.get_by_label("What a right answer states").fill("seven weeks")
    page.get_by_role("button", name="Keep").focus()
    press(page, "k")
    assert "does not state “seven weeks”" in page.get_by_role("alert").inner_text()
    page.get_by_label("A question").fill("How often is it descaled?")
    page.get_by_label("What a right answer states").fill("6 weeks")
    page.get_by_role("button", name="Keep").focus()
    for key in "kdbdk":
        press(page, key)
    assert "No draft is left" in page.get_by_role("main").inner_text()
    kept = [row for row in read_json_rows(project.labelled) if row["id"].startswith("draft-")]
    assert [row["question"] for row in kept] == ["How often is it descaled?", "Kettles: 2?"]
    assert all(row["tags"] == ["reviewed"] and row["reviewed"]["at"] for row in kept)
    page.get_by_role("button", name="Undo").click()
    page.get_by_label("A question").wait_for()
    assert [row["id"] for row in read_json_rows(project.labelled) if row["id"].startswith("draft-")] == ["draft-0"]
    drafts.drop("draft-2")


def send_question(address, question):
    """Ask without a browser; return the trace's id."""
    model = httpx.get(f"{address}/v1/models").json()["data"][0]["id"]
    asked = {"model": model, "messages": [{"role": "user", "content": question}]}
    return httpx.post(f"{address}/v1/chat/completions", json=asked, timeout=60).json()["trace_id"]


def list_reviewed(project, trace):
    """The verdicts of reviewers on a trace."""
    rows = read_json_rows(project.private / "feedback.jsonl") if (project.private / "feedback.jsonl").is_file() else ()
    return [row["verdict"] for row in rows if row.get("trace") == trace and row["by"] == "reviewer"]


def test_a_review_says_what_it_recorded_and_takes_no_verdict_from_enter_or_a_held_key(page, address, project):
    trace = send_question(address, "How much water does the Wren hold?")
    page.goto(f"/review?trace={trace}")
    fact = page.get_by_label("What a right answer states")
    fact.focus()
    page.keyboard.press("Enter")
    piece = page.locator(".piece:not(.quoted)").first
    piece.click()
    assert fact.input_value() == piece.inner_text().strip() and not fact.evaluate("e => e === document.activeElement")
    assert piece.get_attribute("aria-pressed") == "true" and page.locator(".piece[aria-pressed=true]").count() == 1
    shown = [page.locator(f".piece{one}").first for one in (".quoted[aria-pressed=false]", "[aria-pressed=true]")]
    colours = {one.evaluate("e => getComputedStyle(e).backgroundColor") for one in shown if one.count()}
    assert len(colours) == 2 and piece.evaluate("e => getComputedStyle(e).display") == "inline"
    page.evaluate("document.body.dispatchEvent(new KeyboardEvent('keydown', {key: 'w', repeat: true, bubbles: true}))")
    assert list_reviewed(project, trace) == []
    press(page, "w")
    assert "Recorded: Wrong for “How much water does the Wren hold?”" in page.get_by_role("main").inner_text()
    assert list_reviewed(project, trace) == ["wrong"]
    for reply in (
        httpx.get(f"{address}/review?trace=0123456789abcdef"),
        httpx.post(f"{address}/review", data={"trace_id": "0123456789abcdef", "verdict": "right"}),
    ):
        assert reply.status_code == 404 and "it is not known" in reply.text and "Recorded:" not in reply.text


def find_label(project, trace):
    rows = read_json_rows(project.reviewed) if project.reviewed.is_file() else ()
    return [row["outcome"] for row in rows if row["id"] == f"review-{trace}"]


def test_a_review_can_be_changed_and_the_last_one_counts(page, address, project):
    trace = send_question(address, "Does the Wren whistle when it boils?")
    page.goto(f"/review?trace={trace}")
    press(page, "n")
    assert find_label(project, trace) == ["abstain"]
    with page.expect_navigation():  # a key that is pressed before is one of the page that is left
        page.get_by_role("link", name="Change it").click()
    press(page, "a")
    assert "Recorded: Should have asked" in page.get_by_role("main").inner_text()
    assert "in place of Should have said nothing" in page.get_by_role("main").inner_text()
    assert find_label(project, trace) == ["clarify"]
    for _ in range(2):  # a form that is posted again, as after Back
        page.go_back()
        page.get_by_label("What a right answer states").fill("")
        with page.expect_navigation():
            page.get_by_role("button", name="Wrong").click()
        assert "Recorded: Wrong" in page.get_by_role("main").inner_text()
        assert "It made no label" in page.get_by_role("main").inner_text()
        assert find_label(project, trace) == []
    assert list_reviewed(project, trace) == ["should_abstain", "should_clarify", "wrong"]


def test_one_review_posted_by_many_at_once_is_recorded_once(address, project):
    trace = send_question(address, "Is the Wren sold in green?")
    form = {"trace_id": trace, "verdict": "should_abstain"}
    with ThreadPoolExecutor(12) as pool:
        statuses = [*pool.map(lambda _: httpx.post(f"{address}/review", data=form).status_code, range(12))]
    assert statuses == [303] * 12
    assert find_label(project, trace) == ["abstain"] and list_reviewed(project, trace) == ["should_abstain"]


@pytest.mark.parametrize("width, height", [(360, 700), (768, 1000), (1400, 900)])
def test_the_verdicts_of_a_long_question_are_in_sight_and_hide_nothing(browser, address, width, height):
    long = "My neighbour says that it may be the heater. " * 60
    trace = send_question(address, f"{long} What colour is the Wren? {width}")
    page = browser.new_page(base_url=address, viewport={"width": width, "height": height})
    page.goto(f"/review?trace={trace}")
    assert page.get_by_role("heading", level=2).inner_text().startswith("My neighbour")
    for place in ("0", "document.body.scrollHeight / 2", "document.body.scrollHeight"):
        page.evaluate(f"() => scrollTo(0, {place})")
        bar = page.get_by_role("group", name="Verdict").bounding_box()
        assert bar["y"] + bar["height"] <= height and bar["height"] < 0.25 * height
    page.get_by_role("checkbox").last.focus()  # by a key, too, it is not hidden behind the verdicts
    assert page.evaluate(
        """() => {
          const { x, y, width, height } = document.activeElement.getBoundingClientRect();
          return document.elementFromPoint(x + width / 2, y + height / 2) === document.activeElement;
        }"""
    )
    page.close()


def test_a_review_shows_the_trace_marked_wrong_and_keeps_what_was_ticked_when_it_is_refused(page, address):
    marked, later = (send_question(address, "How often should the Wren be descaled?") for _ in range(2))
    httpx.post(f"{address}/v1/feedback", json={"trace_id": marked, "verdict": "wrong"})
    page.goto("/review")
    assert page.locator("[name=trace_id]").input_value() == marked != later
    boxes = page.get_by_role("checkbox")
    for n in range(boxes.count()):
        boxes.nth(n).set_checked(n == 1)
    page.get_by_label("What a right answer states").fill("eleven years")
    page.get_by_role("button", name="Wrong").click()
    page.get_by_role("alert").wait_for()
    assert [boxes.nth(n).is_checked() for n in range(boxes.count())] == [n == 1 for n in range(boxes.count())]
    field = page.get_by_label("What a right answer states")
    assert field.get_attribute("aria-describedby") == page.get_by_role("alert").get_attribute("id")
    with page.expect_navigation():
        page.get_by_role("button", name="Skip").click()


def change_second(page, change):
    """Have the second answer of a comparison changed on its way, whatever the versions answer."""

    def answer(route):
        reply = route.fetch()
        found = reply.json()
        found["answers"][1] |= change(found["answers"][0])
        route.fulfill(response=reply, json=found)

    page.route("**/compare", lambda route: answer(route) if route.request.method == "POST" else route.continue_())


def differ(other):
    return {"text": f"Indeed. {other['text']}"}


@pytest.mark.parametrize(
    "change, votes",
    [(dict, 0), (differ, 3), (lambda other: {**other, "outcome": "failed"}, 3)],
    ids=["the same", "other words", "another outcome"],
)
def test_answers_that_are_alike_need_no_vote(browser, compiled, change, votes):
    with serving("shop@v2", artifacts=compiled / "artifacts") as address:
        page = browser.new_page(base_url=address)
        page.goto("/compare")
        change_second(page, change)
        page.get_by_label("Question").fill(QUESTION)
        page.keyboard.press("Enter")
        page.get_by_text("Which answer is better?" if votes else "there is nothing to vote on.").wait_for()
        assert page.get_by_role("article").count() == 2 and page.locator("#votes button:visible").count() == votes
        page.close()


def test_two_versions_are_compared_blind(browser, compiled):
    file = compiled / ".ragc" / "feedback.jsonl"
    before = len(list(read_json_rows(file))) if file.is_file() else 0  # the votes of other tests on this project
    with serving("shop@v2", artifacts=compiled / "artifacts") as address:
        page = browser.new_page(base_url=address)
        page.goto("/compare")
        change_second(page, differ)
        page.get_by_label("Question").fill(QUESTION)
        page.keyboard.press("Enter")
        assert page.get_by_role("button", name="Ask both").is_disabled()
        page.get_by_role("button", name="Answer 1 is better").wait_for()
        assert page.get_by_role("article").count() == 2 and "@" not in page.locator("#sides").inner_text()
        for key in ("Enter", "Space", "Enter"):  # impatience is no vote
            page.keyboard.press(key)
        assert page.get_by_role("button", name="Answer 1 is better").is_visible()
        page.route("**/compare/vote", lambda route: route.abort())
        page.keyboard.press("2")
        page.get_by_text("The server cannot be reached.").wait_for()
        page.unroute("**/compare/vote")
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


def test_any_two_of_three_arms_are_compared_and_each_vote_is_kept(browser, compiled, monkeypatch):
    monkeypatch.setenv("RAGC_UNIT_KEY", KEY)
    root = compiled / "artifacts"
    arms = {"A": "shop@v1", "B": "shop@v2", "C": "shop@v1"}
    start_experiment("three", arms, primary="thumb_up", max_units=1000, artifacts=root)
    with serving("exp-three", artifacts=root) as address:
        page = browser.new_page(base_url=address)
        page.goto("/compare")
        change_second(page, differ)
        page.get_by_label("Question").fill(QUESTION)
        for pair in ("AB", "BC", "BC"):
            for label, arm in zip(("One version", "The other"), pair, strict=True):
                page.get_by_label(label).select_option(arm)
            page.get_by_role("button", name="Ask both").click()
            page.get_by_role("button", name="Neither").click()
            page.get_by_text("Recorded.").wait_for()
            assert all(f"{arm} (shop@v" in page.locator("#progress").inner_text() for arm in pair)
        page.close()
    votes = [row for row in read_json_rows(compiled / ".ragc" / "feedback.jsonl") if row["kind"] == "vote"][-3:]
    assert [("".join(sorted(row["versions"])), row["preferred"]) for row in votes] == [
        ("AB", ""),
        ("BC", ""),
        ("BC", ""),
    ]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 768, 1400])
def test_every_page_fits_its_width_and_names_every_control(browser, address, width, scheme):
    context = browser.new_context(base_url=address, viewport={"width": width, "height": 700}, color_scheme=scheme)
    page = context.new_page()
    for path in ("/", "/compare", "/review", "/review/draft"):
        if path == "/":
            page.goto(path)
            assert page.get_by_label("Question").bounding_box()["y"] < 250
            turn = ask(page)
            assert -1 <= turn.evaluate("e => e.getBoundingClientRect().top") < 350
            field, label = (
                page.get_by_label("Question").bounding_box(),
                page.locator("label[for=question]").bounding_box(),
            )
            assert label["y"] + label["height"] + 5 <= field["y"]  # as wide as the ring of the focus
            turn.get_by_role("button", name="Citation 1").click()
        else:
            page.goto(path)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert ("needs JavaScript" in page.content()) == (path == "/")  # the form of reviews works without
        unnamed = "e => !(e.labels?.length || e.textContent.trim() || e.ariaLabel || e.type === 'hidden')"
        fields = page.locator("button, input, select, textarea")
        assert [n for n in range(fields.count()) if fields.nth(n).evaluate(unnamed)] == []
        colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (colour == "rgb(255, 255, 255)") == (scheme == "light")
        if folder := os.environ.get("RAGC_SCREENSHOTS"):
            page.screenshot(
                path=f"{folder}/{path.strip('/').replace('/', '-') or 'ask'}-{width}-{scheme}.png", full_page=True
            )
    context.close()
