"""Folders of files as passages, each with breadcrumb, place and date; what cannot be read is named, never fatal."""

import io
import json
import zipfile
from datetime import date
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragc.errors import KnowledgeError
from ragc.knowledge.ingest.convert import UnreadableFile
from ragc.knowledge.ingest.folder import link_superseded, read_base
from ragc.knowledge.ingest.sections import READ, TABLE, count_tokens, parse_file
from ragc.passage import AUTHORITY
from ragc.settings import CHUNK_TOKENS, DocumentsSettings, WebSettings


def read(path, name="x", **more):
    return read_base(name, DocumentsSettings(path=str(path), **more))


def by_id(contents):
    return {p.id: p for p in contents.passages}


def test_a_passage_carries_what_its_document_says_of_itself(knowledge):
    passage = by_id(read(knowledge / "product", "product"))["product/plans.md#home-plus"]
    assert passage.text == "Home Plus costs GBP 4.50 a month and keeps video for 14 days."
    assert (passage.source, passage.title, passage.link) == ("product", "Plans > Home Plus", "product/plans.md:12-12")
    assert (passage.as_of, passage.authority) == (date(2026, 3, 1), AUTHORITY["official"])
    pages = read_base("web", WebSettings(kind="web", path=str(knowledge / "web"))).passages
    assert {(p.as_of, p.method) for p in pages} == {(date(2026, 11, 3), "web")}  # the date of the file's name


def test_the_title_is_the_front_matters_else_the_first_heading_else_the_file_name(write):
    # A byte order mark and line ends of Windows change nothing.
    write("a.md", "---\ntitle: The A\n---\n# Other\n\nText.\n\n## Part\n\nText.\n\n### Piece\n\nText.\n")
    write("b.md", b"\xef\xbb\xbf---\r\ntitle: The B\r\n---\r\n# The B\r\n\r\nText.\r\n\r\n## Part\r\n\r\nText.\r\n")
    folder = write("sub/the-c_file.txt", "Plain text.\n")
    assert {i: p.title for i, p in by_id(read(folder)).items()} == {
        "x/a.md#other": "The A > Other",
        "x/a.md#part": "The A > Part",
        "x/a.md#piece": "The A > Part > Piece",
        "x/b.md#the-b": "The B",
        "x/b.md#part": "The B > Part",
        "x/sub/the-c_file.txt#top": "sub > the c file",
    }


@pytest.mark.parametrize(
    ("head", "complaint"),
    [
        ("title: [unclosed", "not YAML"),
        ("as_of: 2026-03-01\ntitle: Blood: samples", "not YAML"),
        ("[" * 5000, "not YAML"),
        ("as_of: 2026-02-30", "as_of '2026-02-30' is no date"),
        ("authority: holy", "authority 'holy' is not known"),
        ("supersedes: {a: b}", "holds what is no path"),
        ("supersedes: x/none.md", "supersedes 'x/none.md', which is no document or section"),
        ("supersedes: x/a.md", "supersedes itself"),
        ("- only\n- a list", "holds no `key: value`"),
    ],
)
def test_bad_front_matter_is_a_flaw_that_names_the_file_and_the_text_is_read(write, head, complaint):
    contents = link_superseded([read(write("a.md", f"---\n{head}\n---\n# Locks\n\nA lock.\n"))])
    assert any(f.path == "x/a.md" and complaint in f.what and f.mend and f.lost for f in contents.flaws), contents.flaws
    passage = by_id(contents)["x/a.md#locks"]
    assert (passage.text, passage.as_of, passage.authority) == ("A lock.", None, AUTHORITY["reviewed"])


def test_a_date_is_the_day_the_document_was_true_and_a_rule_is_no_front_matter(write):
    for head in ("date: 2026-03-01", "date: 2026-03-01\nteam: labs", "date: 2020-01-01\nas_of: 2026-03-01"):
        contents = read(write("a.md", f"---\n{head}\n---\n# A\n\nText.\n"))
        assert [p.as_of for p in contents.passages] == [date(2026, 3, 1)] and not contents.flaws
    contents = read(write("a.md", "---\n\n# Locks\n\nA lock.\n"))
    assert [p.id for p in contents.passages] == ["x/a.md#locks"] and not contents.flaws


ALIKE = [
    (("", "sauna.txt", "pool.md"), ["sauna > Hours", "pool > Hours"]),
    (("", "sauna-2024.txt", "sauna_2026.md"), ["Hours", "Hours"]),  # as they change
    (("---\nas_of: 2026-03-01\n---\n", "old.md", "new.md"), ["Hours", "Hours"]),
    (("", "hours.md", "pool.md"), ["Hours", "pool > Hours"]),
]


@pytest.mark.parametrize(("files", "titles"), ALIKE)
def test_files_of_one_title_are_told_apart_by_their_names_where_no_date_does(write, files, titles):
    head, *names = files
    for n, name in enumerate(names):
        folder = write(name, f"{head}Hours\n=====\n\nFrom {8 + n}.\n")
    found = {p.id.partition("#")[0]: p.title for p in read(folder).passages}
    assert [found[f"x/{name}"] for name in names] == titles
    for name in names:  # copies of one text stay so
        write(name, "Hours\n=====\n\nFrom 8.\n")
    assert {p.title for p in read(folder).passages} == {"Hours"}


NEAR = {"as-of": "as_of", "As of": "as_of", "Title": "title", "autority": "authority", "supercedes": "supersedes"}


@pytest.mark.parametrize("key", [*NEAR, "author", "state", "data", "titles held", "updated"])
def test_a_key_that_is_nearly_a_known_one_is_named_and_stays_an_attribute(write, key):
    contents = read(write("a.md", f"---\nlab: one\n{key}: one\n---\n# A\n\nText.\n"))
    expected = [(f"Did you mean {NEAR[key]}?", 3, key != "Title")] if key in NEAR else []
    assert [(flaw.mend, flaw.line, flaw.lost) for flaw in contents.flaws] == expected
    assert contents.passages[0].attributes == {"lab": "one", key: "one"}


def test_superseded_passages_name_their_successor_across_bases_in_either_order(write):
    fees = " ".join(f"The fee for class {n} is {n} pounds." for n in range(200))
    write("a/new.md", "---\nsupersedes: [b/old.md, b/older.md]\n---\n# New\n\nText.\n")
    write("a/notice.md", "---\nsupersedes: b/page.md#fees\nas_of: 2026-11-01\n---\n# Notice\n\nThe fee is 3.\n")
    write("b/old.md", "---\nsupersedes: b/older.md\nas_of: 2020-01-01\n---\n# Old\n\nText.\n\n## More\n\nText.\n")
    write("b/older.md", "# Older\n\nText.\n")
    folder = write("b/page.md", f"# Page\n\nText.\n\n## Fees\n\n{fees}\n")
    bases = [read(folder / "a", "a"), read(folder / "b", "b")]
    for order in (bases, bases[::-1]):
        whole = link_superseded(order)
        found = {i: p.superseded_by for i, p in by_id(whole).items()}
        assert found["a/new.md#new"] == found["b/page.md#page"] == ""
        assert found["b/old.md#old"] == found["b/old.md#more"] == "a/new.md"
        assert found["b/older.md#older"] == "b/old.md"  # the newer of its two successors
        pieces = [successor for id_, successor in found.items() if "#fees" in id_]
        assert len(pieces) > 2 and set(pieces) == {"a/notice.md"}
        assert not whole.flaws


def test_json_lines_are_records_with_their_own_ids(write):
    rows = [
        {"_id": "d1", "title": "Cells", "text": "Four AA cells.", "as_of": "2026-01-02", "authority": "official"},
        {"id": 7, "text": "No title."},
        {"name": "Warden", "doors": 1, "colours": ["black"], "gone": None},
        {"_id": "d2", "text": "A lone \ud800 surrogate."},
        {"id": "d1", "text": "second"},
    ]
    contents = read(write("a.jsonl", "\n".join([*map(json.dumps, rows), "not json", "[1]", ""])))
    found = by_id(contents)
    assert list(found) == ["x/a.jsonl#d1", "x/a.jsonl#7", "x/a.jsonl#row-3", "x/a.jsonl#d2"]
    first = found["x/a.jsonl#d1"]
    assert (first.title, first.text, first.as_of) == ("Cells", "Four AA cells.", date(2026, 1, 2))
    assert (first.authority, first.link) == (AUTHORITY["official"], "x/a.jsonl:1-1")
    assert found["x/a.jsonl#row-3"].text == "name: Warden; doors: 1; colours: black"
    assert found["x/a.jsonl#d2"].text == "A lone ? surrogate."
    assert [(f.what.partition(" and the passage")[0], f.line) for f in contents.flaws] == [
        ("2 lines are no JSON objects; left out", 6),
        ("the id 'x/a.jsonl#d1' is that of x/a.jsonl:1-1,", 5),
    ]


def test_csv_rows_are_records_with_their_lines(write):
    found = read(write("doors.csv", 'name;note\nFront;"two\nlines"\n;\nBack;plain;extra\n')).passages
    assert [(p.id, p.title, p.text, p.link) for p in found] == [
        ("x/doors.csv#row-1", "doors", "name: Front; note: two lines", "x/doors.csv:2-3"),
        ("x/doors.csv#row-2", "doors", "name: Back; note: plain; extra", "x/doors.csv:5-5"),
    ]


def test_an_absent_or_empty_folder_is_an_error_that_says_what_to_do(write, tmp_path):
    assert [p.id for p in read(write("faq.md", "# FAQ\n\nText.\n") / "faq.md").passages] == ["x/faq.md#faq"]  # one file
    with pytest.raises(KnowledgeError, match=r"does not exist.*correct `path` under \[knowledge.x\]"):
        read(tmp_path / "none")
    (tmp_path / "empty").mkdir()
    with pytest.raises(KnowledgeError, match=r"holds no text.*\.md, \.txt"):
        read(tmp_path / "empty")
    for n in range(5):
        (tmp_path / "empty" / f"{n}.docx").write_text("no such thing")
    with pytest.raises(KnowledgeError, match=r"\(x/0\.docx was not read: no Word document.*; x/1\.docx .*; 2 more\)"):
        read(tmp_path / "empty")


FILES = Path(__file__).parent / "files"
BAD = {
    "locked.pdf": ((FILES / "locked.pdf").read_bytes(), "encrypted"),
    "broken.pdf": ((FILES / "scan.pdf").read_bytes()[:200], "no readable .pdf file"),
    "empty.pdf": (b"", "no readable .pdf file"),
    "scan.pdf": ((FILES / "scan.pdf").read_bytes(), "OCR"),
    "broken.docx": (b"PK\x03\x04 broken", "no Word document"),
    "hollow.docx": (b"PK\x05\x06" + bytes(18), "no readable .docx file"),
    "image.md": (b"\x89PNG\r\n\x1a\n\x00\x00", "neither UTF-8 (byte 0) nor Windows-1252"),
    "program.md": (b"\x7fELF\x00\x01", "binary"),
    "wide.txt": ("café".encode("utf-16-le"), "neither UTF-8"),
    "photo.jpg": (b"\xff\xd8", ".docx"),
    "sheet.xls": (b"\xd0\xcf", ".xlsx"),
    "broken.xlsx": (b"PK", "damaged"),
}


def test_what_cannot_be_read_is_named_with_its_reason_and_the_rest_is_read(write, tmp_path):
    for name, (content, _) in BAD.items():
        write(name, content)
    write(".hidden.md", "# No\n\nText.\n")
    write("good.md", "# Good\n\nText.\n")
    folder = write("blank.md", "")
    (folder / "gone.md").symlink_to(tmp_path / "nowhere")
    (folder / "linked").symlink_to(tmp_path, target_is_directory=True)
    (folder / "folder.md").mkdir()
    for accent, text in (("caf\u00e9", "One"), ("cafe\u0301", "Two")):  # one name in two spellings
        write(f"{accent}.md", f"# A\n\n{text}.\n")
    with (folder / "huge.txt").open("wb") as file:
        file.truncate(200_000_000)
    contents = read(folder)
    assert [p.id for p in contents.passages] == ["x/caf\u00e9.md#a", "x/good.md#good"]
    doubt, repeated = (flaw for flaw in contents.flaws if not flaw.unread)
    assert str(doubt) == "x/blank.md: holds no text." and "is that of" in repeated.what
    skipped = [flaw for flaw in contents.flaws if flaw.unread]
    assert all(flaw.mend for flaw in skipped)
    assert {flaw.path for flaw in skipped if not flaw.lost} == {"x/photo.jpg", "x/sheet.xls"}
    assert contents.report.tell_unread() == f"{len(skipped)} of {len(skipped) + 4} files were not read"
    reasons = {flaw.path: f"{flaw.what}. {flaw.mend}" for flaw in skipped}
    assert set(reasons) == {f"x/{name}" for name in (*BAD, "gone.md", "linked", "huge.txt")}
    assert [name for name, (_, reason) in BAD.items() if reason not in reasons[f"x/{name}"]] == []
    assert "link" in reasons["x/linked"] and "link" in reasons["x/gone.md"]
    assert reasons["x/huge.txt"].startswith("was not read: it has 200.0 MB, and max_megabytes is 50.")


def test_a_long_section_is_cut_between_paragraphs_and_list_items_of_a_size_that_is_a_setting(write):
    block = " ".join(["door"] * 90)
    passages = parse_file("x/a.md", ("# Long\n\n" + "\n\n".join([block] * 5)).encode())[0].passages
    places = [("x/a.md#long", "x/a.md:3-5"), ("x/a.md#long~2", "x/a.md:7-9"), ("x/a.md#long~3", "x/a.md:11-11")]
    assert [(p.id, p.link) for p in passages] == places
    items = markdown("# L\n\n" + "\n".join(f"- item {n} " + "word " * 50 for n in range(10)))
    assert len(items) == 3 and all(text.startswith("- item") for _, text in items)
    folder = write("a.md", "# Locks\n\n" + "\n\n".join(["Locks are shut at night."] * 60))
    assert len(read(folder).passages) == 2
    small = read(folder, chunk_tokens=40).passages
    assert len(small) == 10 and all(count_tokens(p.text) <= 40 for p in small)


PAGE = """<html><head><title>Kettles | Shop</title>
<meta property="article:published_time" content="2026-02-03T10:00:00Z">
<link rel="canonical" href="https://shop.example/kettles"></head><body>
<nav>Home Cart</nav><header>Shop of shops</header>
<main><h1>Kettles</h1><p>All boil.</p><h2>Sizes</h2>
<table><tr><th>name</th><th>litres</th></tr><tr><td>Merle</td><td>1.7</td></tr><tr><td>Wren</td><td>0.8</td></tr></table>
<h2>Care</h2><ul><li>Descale it.</li><li>Rinse <b>twice</b>.</li></ul></main>
<script>var x = "not text";</script><footer>Imprint</footer></body></html>"""


def markdown(text):
    """The anchor and the text of each passage of a Markdown file."""
    document, _ = parse_file("x/a.md", text.encode())
    return [(p.id.partition("#")[2], p.text) for p in document.passages]


def test_a_word_file_keeps_its_headings_and_its_tables_whole_and_a_bomb_is_skipped():
    passages = parse_file("x/plans.docx", (FILES / "plans.docx").read_bytes())[0].passages
    titles = [("x/plans.docx#plans", "Plans"), ("x/plans.docx#prices", "Plans > Prices")]
    assert [(p.id, p.title) for p in passages] == titles
    assert passages[1].text == "plan: Home; price: GBP 4\nplan: Pro; price: GBP 19"
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("word/document.xml", b"a" * 30_000_000)
    with pytest.raises(UnreadableFile, match="unpacks to 30 MB"):
        parse_file("x/bomb.docx", stream.getvalue(), megabytes=1)


def test_a_web_page_gives_its_main_part_under_its_headings():
    passages = parse_file("web/kettles.html", PAGE.encode())[0].passages
    assert [(p.id.partition("#")[2], p.title, p.text) for p in passages] == [
        ("kettles", "Kettles", "All boil."),
        ("sizes", "Kettles > Sizes", "name: Merle; litres: 1.7\nname: Wren; litres: 0.8"),
        ("care", "Kettles > Care", "- Descale it.\n- Rinse twice."),
    ]
    assert {(p.as_of, p.link) for p in passages} == {(date(2026, 2, 3), "https://shop.example/kettles")}
    other = '<meta charset="iso-8859-1"><h1>Café</h1><p>Größe</p>'.encode("iso-8859-1")
    assert [(p.title, p.text) for p in parse_file("web/a.htm", other)[0].passages] == [("Café", "Größe")]


def test_a_pdf_is_cited_by_page_under_its_bookmarks_with_its_broken_words_joined():
    long = "A long line of a paragraph that runs to the very end of its column and goes on. It is a well-made manual."
    pages = ["The manual", "Locks are shut at night."], ["The manual > Keys", "Keys are kept in the office."]
    for name in ("manual.pdf", "owned.pdf"):  # a file that only its owner locked is read
        document, _ = parse_file("x/manual.pdf", (FILES / name).read_bytes())
        assert [[p.title, p.text] for p in document.passages] == [*pages, ["The manual > Keys", f"{long}\nOne\nTwo"]]
        places = [(p.id, p.link) for p in document.passages]
        assert places == [(f"x/manual.pdf#page-{n}", f"x/manual.pdf#page={n}") for n in (1, 2, 3)]


def test_anchors_are_those_of_github():
    headings = [
        "What's new in 3.8?", "snake_case stays", "Größe, naïveté", "日本語 の 見出し",
        "FAQ", "FAQ", "FAQ-1", "FAQ", "!!!", "Use `ragc index` *now*, see [the docs](https://x.y/z)",
    ]  # fmt: skip
    assert [slug for slug, _ in markdown("\n\n".join(f"## {h}\n\nText." for h in headings))] == [
        "whats-new-in-38", "snake_case-stays", "größe-naïveté", "日本語-の-見出し",
        "faq", "faq-1", "faq-1-1", "faq-2", "section", "use-ragc-index-now-see-the-docs",
    ]  # fmt: skip
    assert [s for s, _ in markdown("Lead.\n\n# Top\n\nOne.\n\n# Top\n\nTwo.\n")] == ["top", "top-1", "top-2"]
    assert [s for s, _ in markdown("Locks\n=====\n\nOne.\n\nKeypads\n-------\n\nTwo.\n")] == ["locks", "keypads"]


def test_a_table_stays_whole_with_the_sentence_before_it_unless_it_is_huge():
    head = "| name | range |\n|---|---|"
    rows = [f"| door {n} | {n} metres |" for n in range(900)]
    lines = [f"name: door {n}; range: {n} metres" for n in range(900)]
    found = markdown(f"# T\n\n{' '.join(['word'] * 150)}\n\nThe doors:\n\n{head}\n" + "\n".join(rows[:60]))
    assert [slug for slug, _ in found] == ["t", "t~2"]
    assert found[1][1] == "\n".join(["The doors:\n", *lines[:60]])
    pieces = [text for _, text in markdown(f"# Doors\n\nThe doors:\n\n{head}\n" + "\n".join(rows)) if "metres" in text]
    assert len(pieces) > 1 and all(count_tokens(text) <= CHUNK_TOKENS * TABLE + 20 for text in pieces)
    assert [line for text in pieces for line in text.split("\n")] == lines


@given(st.text(alphabet="#-=*`|>_[]()!<~ \n\tab1.ä", max_size=300))
def test_any_markdown_is_read_with_spans_inside_it_and_anchors_that_do_not_repeat(text):
    document, _ = parse_file("x/a.md", text.encode())
    assert len({p.id for p in document.passages}) == len(document.passages)
    for passage in document.passages:
        first, last = map(int, passage.link.rpartition(":")[2].split("-"))
        assert 1 <= first <= last <= len(text.split("\n")) and passage.text.strip()


@given(st.sampled_from(READ), st.binary(max_size=300))
def test_any_bytes_under_any_name_are_a_document_or_a_reason(suffix, content):
    try:
        document, _ = parse_file(f"x/a{suffix}", content)
    except UnreadableFile as error:
        assert error.what
    else:
        assert all(p.text.strip() and p.id.startswith("x/a") for p in document.passages)


@given(st.text(max_size=2000) | st.just("shut " * 3000) | st.just("Locks are shut. " * 400), st.integers(20, 60))
def test_no_word_is_lost_when_a_text_is_cut(text, limit):
    content = text.replace("\0", "").encode("utf-8", "replace")
    cut, whole = (parse_file("x/a.txt", content, size)[0].passages for size in (limit, 10**9))
    assert "".join("".join(p.text.split()) for p in cut) == "".join("".join(p.text.split()) for p in whole)
    assert text[:4] not in ("shut", "Lock") or all(count_tokens(p.text) <= limit * 5 // 4 for p in cut)
