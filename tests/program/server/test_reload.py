"""Knowledge that is indexed anew while it is served: no answer is lost, none is of both, and soon all are of the new."""

import time
from concurrent.futures import ThreadPoolExecutor

import httpx

from ragc.knowledge.index.build import index_project
from ragc.knowledge.project import Project
from tests.serving import serving

ASKED = "What do companies pay to return a kettle?"
SOON = 10  # seconds until every answer is of the new index


def test_a_price_edited_and_indexed_while_it_is_served_is_answered_and_no_question_is_lost(own_shop):
    file = own_shop / "knowledge" / "billing" / "refunds.md"
    with serving(own_shop) as address, httpx.Client(base_url=address, timeout=60) as client:
        body = {"model": client.get("/v1/models").json()["data"][0]["id"]}
        body["messages"] = [{"role": "user", "content": ASKED}]

        def ask():
            reply = client.post("/v1/chat/completions", json=body)
            while reply.status_code == 429:
                time.sleep(0.2)
                reply = client.post("/v1/chat/completions", json=body)
            return time.monotonic(), reply.json()["choices"][0]["message"]["content"]

        def ask_on():
            """Ask until all answers have been of the new index for a while."""
            told = []
            while not indexed or told[-1][0] <= indexed[0] + SOON + 2:
                told.append(ask())
            return told

        assert "GBP 5" in ask()[1] and client.get("/readyz").text == "ok\n"
        file.write_text(file.read_text().replace("GBP 5", "GBP 7"))
        time.sleep(5.1)
        assert "Documents changed" in client.get("/readyz").text and "Documents changed" in client.get("/").text
        with ThreadPoolExecutor(8) as pool:
            indexed = []
            askers = [pool.submit(ask_on) for _ in range(8)]
            try:
                index_project(Project.open(own_shop))
            finally:  # else they would ask for ever
                indexed.append(time.monotonic())
            told = [one for asker in askers for one in asker.result()]
        assert all(("GBP 5" in text) != ("GBP 7" in text) for _, text in told) and min(told)[0] < indexed[0]
        late = [text for at, text in told if at > indexed[0] + SOON]
        assert late and all("GBP 7" in text for text in late)
        assert "GBP 7" in ask()[1]
