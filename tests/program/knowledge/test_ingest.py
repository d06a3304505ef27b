from __future__ import annotations

import json
from collections.abc import Callable
from datetime import date
from pathlib import Path

import pytest

from program.errors import KnowledgeError
from program.knowledge.ingest.folder import Reading, link_superseded, read_base
from program.passage import AUTHORITY, Passage

Write = Callable[[str, str | bytes], Path]


def by_id(reading: Reading) -> dict[str, Passage]:
    return {p.id: p for p in reading.passages}


def test_a_passage_carries_what_its_document_says_of_itself(knowledge: Path) -> None:
    passage = by_id(read_base("product", knowledge / "product"))["product/plans.md#home-plus"]
    assert passage.title == "Plans > Home Plus"
    assert passage.text == "Home Plus costs GBP 4.50 a month and keeps video for 14 days."
    assert (passage.source, passage.as_of, passage.authority) == (
        "product",
        date(2026, 3, 1),
        AUTHORITY["official"],
    )
    assert passage.link == "product/plans.md:12-12"
    lines = (knowledge / "product/plans.md").read_text().split("\n")
    assert lines[11] == passage.text


def test_the_title_is_the_front_matters_else_the_first_heading_else_the_file_name(write: Write) -> None:
    write("a.md", "---\ntitle: The A\n---\n# Other\n\nText.\n\n## Part\n\nText.\n\n### Piece\n\nText.\n")
    write("b.md", "# The B\n\nText.\n\n## Part\n\nText.\n")
    folder = write("sub/the-c_file.txt", "Plain text.\n")
    titles = {i: p.title for i, p in by_id(read_base("x", folder)).items()}
    assert titles == {
        "x/a.md#other": "The A > Other",
        "x/a.md#part": "The A > Part",
        "x/a.md#piece": "The A > Part > Piece",
        "x/b.md#the-b": "The B",
        "x/b.md#part": "The B > Part",
        "x/sub/the-c_file.txt#top": "the c file",
    }


@pytest.mark.parametrize(
    ("head", "complaint"),
    [
        ("title: [unclosed", "not YAML"),
        ("a: &x [*x, ]: b", "not YAML"),
        ("[" * 5000, "is no `key: value`"),
        ("as_of: 2026-02-30", "as_of '2026-02-30' is no date"),
        ("as_of: last spring", "as_of 'last spring' is no date"),
        ("authority: holy", "authority 'holy' is not known"),
        ("supersedes: {a: b}", "holds what is no path"),
        ("supersedes: x/none.md", "supersedes 'x/none.md', which is no document or section"),
        ("supersedes: x/a.md", "supersedes itself"),
        ("- only\n- a list", "holds no `key: value`"),
    ],
)
def test_bad_front_matter_is_a_flaw_that_names_the_file_and_the_text_is_read(
    write: Write, head: str, complaint: str
) -> None:
    folder = write("a.md", f"---\n{head}\n---\n# Locks\n\nA lock.\n")
    reading = link_superseded([read_base("x", folder)])
    assert any(f.path == "x/a.md" and complaint in f.what and f.mend and f.lost for f in reading.flaws), reading.flaws
    passage = by_id(reading)["x/a.md#locks"]
    assert (passage.text, passage.as_of, passage.authority) == ("A lock.", None, AUTHORITY["reviewed"])


def test_an_entry_that_is_not_yaml_costs_itself_alone_and_is_told_with_its_line_and_remedy(write: Write) -> None:
    head = "title: Blood bank: samples\nas_of: 2026-03-01\nauthority: official\nsupersedes:\n  - x/old.md"
    write("old.md", "# Old\n\nText.\n")
    reading = link_superseded([read_base("x", write("a.md", f"---\n{head}\n---\n# Samples\n\nText.\n"))])
    passages = by_id(reading)
    assert passages["x/a.md#samples"].as_of == date(2026, 3, 1)
    assert passages["x/a.md#samples"].authority == AUTHORITY["official"]
    assert passages["x/old.md#old"].superseded_by == "x/a.md"
    (flaw,) = reading.flaws
    assert (flaw.path, flaw.line) == ("x/a.md", 2)
    assert flaw.mend == 'Put the value in quotes: title: "Blood bank: samples"'


@pytest.mark.parametrize(
    ("head", "line", "mend"),
    [
        ("# a note\n\ntitle: A: b", 4, 'Put the value in quotes: title: "A: b"'),
        ("title: A\n\tas_of: 2026-01-01", 2, "Begin `as_of: 2026-01-01` at the margin"),
        ("supersedes: [a.md, c: d", 2, "Close every bracket"),
        ("just words\ntitle: A: b", 2, "Write one `key: value` a line."),
    ],
)
def test_the_remedy_fits_what_is_wrong_with_an_entry(write: Write, head: str, line: int, mend: str) -> None:
    flaws = read_base("x", write("a.md", f"---\n{head}\n---\n# A\n\nText.\n")).flaws
    assert (flaws[0].line, flaws[0].mend[: len(mend)]) == (line, mend)
    assert all("# a note" not in flaw.what for flaw in flaws)


def test_a_bad_date_is_told_under_the_key_that_it_was_written_with(write: Write) -> None:
    (flaw,) = read_base("x", write("a.md", "---\ntitle: A\ndate: yesterday\n---\n# A\n\nText.\n")).flaws
    assert (flaw.what, flaw.line) == ("date 'yesterday' is no date and was left out", 3)


@pytest.mark.parametrize(
    "head", ["date: 2026-03-01", "date: 2026-03-01\nteam: labs", "date: 2020-01-01\nas_of: 2026-03-01"]
)
def test_a_date_in_the_front_matter_is_the_day_the_document_was_true(write: Write, head: str) -> None:
    reading = read_base("x", write("a.md", f"---\n{head}\n---\n# A\n\nText.\n"))
    assert [p.as_of for p in reading.passages] == [date(2026, 3, 1)]
    assert not reading.flaws


@pytest.mark.parametrize(
    ("key", "near"),
    [
        ("as-of", "as_of"),
        ("As of", "as_of"),
        ("Title", "title"),
        ("autority", "authority"),
        ("supercedes", "supersedes"),
    ],
)
def test_a_key_that_is_nearly_a_known_one_is_named_and_stays_an_attribute(write: Write, key: str, near: str) -> None:
    reading = read_base("x", write("a.md", f"---\nteam: labs\n{key}: one\n---\n# A\n\nText.\n"))
    (flaw,) = reading.flaws
    assert (flaw.mend, flaw.line, flaw.lost) == (f"Did you mean {near}?", 3, near != "title")
    assert reading.passages[0].attributes == {"team": "labs", key: "one"}


@pytest.mark.parametrize("key", ["author", "state", "data", "team", "titles held", "updated"])
def test_a_key_of_ones_own_is_not_doubted(write: Write, key: str) -> None:
    assert not read_base("x", write("a.md", f"---\n{key}: one\n---\n# A\n\nText.\n")).flaws


def test_a_rule_at_the_top_of_a_page_is_no_front_matter(write: Write) -> None:
    reading = read_base("x", write("a.md", "---\n\n# Locks\n\nA lock.\n"))
    assert [p.id for p in reading.passages] == ["x/a.md#locks"]
    assert not reading.flaws


def test_an_undated_page_has_the_date_its_name_starts_with(knowledge: Path) -> None:
    reading = read_base("web", knowledge / "web", "web")
    assert {(p.as_of, p.method) for p in reading.passages} == {(date(2026, 11, 3), "web")}


def test_superseded_passages_name_their_successor_across_bases_in_either_order(write: Write) -> None:
    write("a/new.md", "---\nsupersedes: [b/old.md, b/older.md]\n---\n# New\n\nText.\n")
    write(
        "b/old.md",
        "---\nsupersedes: b/older.md\nas_of: 2020-01-01\n---\n# Old\n\nText.\n\n## More\n\nText.\n",
    )
    folder = write("b/older.md", "# Older\n\nText.\n")
    readings = [read_base("a", folder / "a"), read_base("b", folder / "b")]
    for order in (readings, readings[::-1]):
        found = {i: p.superseded_by for i, p in by_id(link_superseded(order)).items()}
        assert found["a/new.md#new"] == ""
        assert found["b/old.md#old"] == found["b/old.md#more"] == "a/new.md"
        assert found["b/older.md#older"] == "b/old.md"  # the newer of its two successors


def test_a_notice_supersedes_one_section_and_leaves_the_others_in_force(write: Write) -> None:
    write("a/notice.md", "---\nsupersedes: b/page.md#fees\nas_of: 2026-11-01\n---\n# Notice\n\nThe fee is 3.\n")
    folder = write("b/page.md", "# Page\n\nText.\n\n## Fees\n\nThe fee is 2.\n")
    whole = link_superseded([read_base("a", folder / "a"), read_base("b", folder / "b")])
    assert {i: p.superseded_by for i, p in by_id(whole).items() if p.superseded_by} == {"b/page.md#fees": "a/notice.md"}
    assert not whole.flaws


def test_of_a_section_in_several_passages_all_are_superseded(write: Write) -> None:
    text = " ".join(f"The fee for class {n} is {n} pounds." for n in range(200))
    write("a/notice.md", "---\nsupersedes: b/page.md#fees\n---\n# Notice\n\nText.\n")
    folder = write("b/page.md", f"# Page\n\nText.\n\n## Fees\n\n{text}\n")
    found = by_id(link_superseded([read_base("a", folder / "a"), read_base("b", folder / "b")]))
    fees = [bool(p.superseded_by) for id_, p in found.items() if "#fees" in id_]
    assert len(fees) > 2 and all(fees)
    assert not found["b/page.md#page"].superseded_by


def test_what_cannot_be_read_is_named_and_counted_and_the_rest_is_read(write: Write, tmp_path: Path) -> None:
    write("a.md", "# A\n\nText.\n")
    write("b.pdf", b"%PDF-1.7")
    write("c.md", b"\xff\xfe broken")
    write("d.txt", b"binary\x00bytes")
    write(".hidden.md", "# No\n\nText.\n")
    folder = write("empty.md", "")
    (folder / "e.md").symlink_to(tmp_path / "nowhere")
    (folder / "linked").symlink_to(tmp_path, target_is_directory=True)
    (folder / "g.md").mkdir()
    reading = read_base("x", folder)
    assert [p.id for p in reading.passages] == ["x/a.md#a"]
    reasons = {s.path: s.reason for s in reading.skipped}
    assert sorted(reasons) == ["x/b.pdf", "x/c.md", "x/d.txt", "x/e.md", "x/linked"]
    assert "UTF-8" in reasons["x/c.md"] and "link" in reasons["x/linked"]
    assert [str(f) for f in reading.flaws] == ["x/empty.md: holds no text."]


def test_windows_line_ends_and_byte_order_marks_change_nothing(write: Write) -> None:
    text = "---\ntitle: A\n---\n# A\n\nOne.\n\n## B\n\nTwo.\n"
    plain = read_base("x", write("a.md", text)).passages
    assert read_base("x", write("a.md", b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())).passages == plain


def test_json_lines_are_records_with_their_own_ids(write: Write) -> None:
    rows = [
        {
            "_id": "d1",
            "title": "Cells",
            "text": "Four AA cells.",
            "as_of": "2026-01-02",
            "authority": "official",
        },
        {"id": 7, "text": "No title."},
        {"name": "Warden", "doors": 1, "colours": ["black"], "gone": None},
        {"_id": "d2", "text": "A lone \ud800 surrogate."},
    ]
    lines = [json.dumps(r) for r in rows]
    reading = read_base("x", write("a.jsonl", "\n".join([*lines, "not json", "[1]", ""])))
    found = by_id(reading)
    assert list(found) == ["x/a.jsonl#d1", "x/a.jsonl#7", "x/a.jsonl#row-3", "x/a.jsonl#d2"]
    first = found["x/a.jsonl#d1"]
    assert (first.title, first.text, first.as_of) == ("Cells", "Four AA cells.", date(2026, 1, 2))
    assert (first.authority, first.link) == (AUTHORITY["official"], "x/a.jsonl:1-1")
    assert found["x/a.jsonl#row-3"].text == 'name: Warden\ndoors: 1\ncolours: ["black"]'
    assert found["x/a.jsonl#d2"].text == "A lone ? surrogate."
    assert [(f.what, f.line) for f in reading.flaws] == [("2 lines are no JSON objects; left out", 5)]


def test_csv_rows_are_records_with_their_lines(write: Write) -> None:
    folder = write("doors.csv", 'name;note\nFront;"two\nlines"\n;\nBack;plain;extra\n')
    found = by_id(read_base("x", folder))
    assert {i: (p.title, p.text, p.link) for i, p in found.items()} == {
        "x/doors.csv#row-1": ("doors", "name: Front\nnote: two\nlines", "x/doors.csv:2-3"),
        "x/doors.csv#row-2": ("doors", "name: Back\nnote: plain\nextra", "x/doors.csv:5-5"),
    }


def test_two_texts_with_one_id_are_a_warning_and_the_first_is_kept(write: Write) -> None:
    folder = write("a.jsonl", '{"id": "1", "text": "first"}\n{"id": "1", "text": "second"}\n')
    reading = read_base("x", folder)
    assert [p.text for p in reading.passages] == ["first"]
    assert [(f.path, f.line) for f in reading.flaws] == [("x/a.jsonl", 2)]


def test_two_files_with_one_name_in_two_spellings_of_an_accent_are_a_warning(write: Write) -> None:
    write("caf\u00e9.md", "# A\n\nOne.\n")
    folder = write("cafe\u0301.md", "# A\n\nTwo.\n")
    reading = read_base("x", folder)
    assert [p.id for p in reading.passages] == ["x/caf\u00e9.md#a"]
    assert any("is that of" in f.what for f in reading.flaws)


def test_a_base_may_be_one_file(write: Write) -> None:
    folder = write("faq.md", "# FAQ\n\nText.\n")
    assert [p.id for p in read_base("x", folder / "faq.md").passages] == ["x/faq.md#faq"]


def test_an_absent_or_empty_folder_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(KnowledgeError, match=r"does not exist.*correct `path` under \[knowledge.x\]"):
        read_base("x", tmp_path / "none")
    (tmp_path / "empty").mkdir()
    with pytest.raises(KnowledgeError, match=r"holds no text.*\.md, \.txt"):
        read_base("x", tmp_path / "empty")
    for n in range(5):
        (tmp_path / "empty" / f"{n}.docx").write_text("no such thing")
    with pytest.raises(KnowledgeError, match=r"skipped: x/0\.docx: no Word document.*; x/1\.docx: .*; 2 more\)"):
        read_base("x", tmp_path / "empty")
