"""From documents to labelled questions without a model: the documents' own structure asks, a person decides by a key."""

import json
import os
import pty
import re
import select
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from unicodedata import is_normalized

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragc.errors import DataError
from ragc.knowledge.project import Project
from ragc.loop.reviewed import Drafts
from ragc.optimize.labelled.dataset import read_labelled
from ragc.optimize.labelled.draft import find_drafts
from ragc.text.facts import states
from tests.optimize.conftest import invoke

RAGC = [sys.executable, "-m", "ragc.optimize.cli.main"]
DOCUMENTS = {
    "refunds.md": "# Refunds\n## Money back\nYou have 30 days from the delivery.\n## Damaged goods\nWe pay the way back.\n"
    "## What do I need?\nThe number of your order.\n## Terms\n- **Cool-off** - 14 days\n- Credit: valid for 2 years\n",
    "preise.md": "# Preise\n| Modell | Preis | Gewicht |\n|---|---|---|\n| Kessel | 49 EUR | 2 kg |\n| Kanne | 19 EUR | 1 kg |\n| Sieb | 9 EUR | 80 g |\n| Tasse | 7 EUR | 300 g |\n",
    "lager.csv": "Artikel;Ort;Stück\nDeckel;Ulm;12\nGriff;Bonn;71\nFilter;Kiel;31\nHenkel;Jena;52\nHenkel;Köln;64\n",
    "mots.html": "<h1>Mots</h1><dl><dt>Caution</dt><dd>deux mois</dd><dt>Préavis</dt><dd>trois mois</dd></dl>",
    "hours.md": "# Hours\n## Shop\nFrom 9 to 17.\n## Phone\nFrom 8 to 20.\n## Workshop\nOn Mondays only.\n",
    "care.md": "# Care\n## Descaling\nEvery six weeks.\n## Storage\nDry and upside down.\n## Repairs\nIn Ulm, by post.\n",
    "送料.md": "# 送料\n## 国内\n500円です。\n## 海外\n2000円です。\n",
    "team.md": "# Team\n| Name | Role |\n|---|---|\n| Ann | Engineer |\n| Bo | Buyer |\n",
}


def make_project(folder, documents):
    folder.mkdir(parents=True)
    for name, text in documents.items():
        (folder / name).write_text(text, encoding="utf-8")
    invoke("init", folder)
    return Project.open(folder)


def read_drafts(project, limit=500):
    return find_drafts(project, limit, lambda done, of: None)[0]


def test_headings_cells_and_terms_ask_in_the_words_of_the_documents(tmp_path):
    drafts = read_drafts(make_project(tmp_path / "p", DOCUMENTS))
    asked = {draft["question"]: draft["facts"] for draft in drafts}
    assert (
        asked.items()
        >= {
            "Refunds: Money back?": ["30 days"],
            "Refunds: Damaged goods?": ["We pay the way back"],
            "Hours: Shop?": ["9 to 17"],
            "What do I need?": ["The number of your order"],
            "Refunds, Terms: Cool-off?": ["14 days"],
            "Refunds, Terms: Credit?": ["valid for 2 years"],
            "Preise: Kanne, Gewicht?": ["1 kg"],
            "lager: Filter, Ort?": ["Kiel"],
            "lager: Henkel, Köln, Stück?": ["64"],
            "Mots: Préavis?": ["trois mois"],
            "送料: 国内?": ["500円です。"],
        }.items()
    )
    assert not [draft for draft in drafts if states(draft["question"], draft["facts"][0])]
    first = [draft["evidence"][0].partition("#")[0] for draft in drafts[: len(DOCUMENTS)]]
    assert len({*first}) == len(DOCUMENTS) and all(draft["tags"] == ["draft"] for draft in drafts)


words = st.text(st.characters(categories=["Ll", "Lo"], exclude_characters="ªº"), min_size=3, max_size=9).filter(
    lambda text: is_normalized("NFKC", text)
)


@given(st.lists(words, min_size=11, max_size=11, unique_by=str.casefold), st.integers(0, 2))
def test_every_cell_of_a_table_is_asked_for_by_its_row_and_column_in_any_language(drawn, kind):
    title, key, *names, a, b = drawn[:7]
    one, other, third, fourth = drawn[7:]
    header = [f"{name}ö" for name in (key, *names[:2])]  # `title` is of the row as a whole
    rows = [header, [a, f"{one} 1", f"{other} 2"], [b, f"{third} 3", f"{fourth} 4"]]
    table = "\n".join(
        ["| " + " | ".join(rows[0]) + " |", "|---|---|---|", *("| " + " | ".join(r) + " |" for r in rows[1:])]
    )
    html = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    html = html.replace("td>", "th>", 6)
    documents = [
        {"t.md": f"# {title}\n{table}\n"},
        {"t.html": f"<h1>{title}</h1><table>{html}</table>"},
        {f"{title}.csv": "\n".join(map(";".join, rows))},
    ][kind]
    with tempfile.TemporaryDirectory() as place:
        asked = {one["question"]: one["facts"][0] for one in read_drafts(make_project(Path(place) / "p", documents))}
    wanted = {f"{title}: {row[0]}, {rows[0][n]}?": row[n] for row in rows[1:] for n in (1, 2)}
    assert asked == wanted


def test_what_was_kept_dropped_or_labelled_is_not_drafted_again_and_what_its_passage_no_longer_states_waits_no_more(
    tmp_path,
):
    project = make_project(tmp_path / "p", DOCUMENTS)
    first, second, third, *_ = before = read_drafts(project)
    told = invoke("data", "draft", project.folder, "--keep", first["id"], "--drop", second["id"], "--json")
    (label,) = json.loads(told.stdout)
    (question,) = read_labelled(project.labelled)
    assert (question.id, question.tags, question.facts) == (first["id"], ("reviewed",), tuple(first["facts"]))
    assert label["reviewed"]["by"] and question.reviewed.at
    left = read_drafts(project)
    assert {one["id"] for one in before} - {one["id"] for one in left} == {first["id"], second["id"]}
    gone = project.folder / third["evidence"][0].partition("#")[0].partition("/")[2]
    gone.unlink()
    assert third["id"] not in {one["id"] for one in read_drafts(project)}
    with pytest.raises(DataError, match="There is no draft none"):
        Drafts(project).drop("none")


def press(project, keys, limit=50):
    """Run `ragc data draft` in a terminal under keys; return what it showed and how long it took until it asked."""
    master, slave = pty.openpty()
    began, asked = time.monotonic(), 0.0
    command = [*RAGC, "data", "draft", str(project.folder), "--limit", str(limit)]
    with subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave) as process:
        os.close(slave)
        shown, waits = "", 1
        for key in [*keys, None]:
            while shown.count("go on later") + shown.count("]: ") < waits and process.poll() is None:
                if select.select([master], [], [], 30)[0]:
                    shown += read_some(master)
            asked = asked or time.monotonic() - began
            if key is not None:
                os.write(master, key.encode())
                waits += 1
            else:
                process.wait(30)
                while select.select([master], [], [], 0.2)[0] and (more := read_some(master)):
                    shown += more
    os.close(master)
    return re.sub(r"\x1b\[[\d;]*m", "", shown), asked


def read_some(master):
    try:
        return os.read(master, 65536).decode(errors="replace")
    except OSError:  # the other end is closed
        return ""


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="there are no pseudo-terminals here")
def test_from_eight_documents_to_thirty_reviewed_labels_by_keys(tmp_path):
    project = make_project(tmp_path / "p", DOCUMENTS)
    shown, _ = press(
        project, [*"kkd", "b", "k", "e", "When is it due?\r", "\r", "e", "\r", "a thousand years\r", "d", "q"]
    )
    assert "does not state “a thousand years”" in shown and "4 kept, 1 dropped" in shown and "left" in shown
    labels = read_labelled(project.labelled)
    assert len(labels) == 4 and labels[-1].question == "When is it due?"
    keys = ["k"] * 26 + ["q"]
    shown, asked = press(project, keys)
    assert "26 kept, 0 dropped" in shown and asked < 60
    labels = read_labelled(project.labelled)
    assert len(labels) == 30 == len({one.id for one in labels}) and all(one.reviewed for one in labels)
    report = json.loads(invoke("data", "check", project.folder, "--json").stdout)
    assert report["errors"] == [] and report["questions"] == 30
    assert invoke("data", "split", project.folder).exit_code == 0
