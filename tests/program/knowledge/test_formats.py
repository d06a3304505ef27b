"""Each kind of file gives passages with breadcrumb, place and date; a bad one is named and left out."""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Callable
from datetime import date
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from office_files import docx, pdf
from program.knowledge.ingest.chunks import TABLE, TOKENS, tokens
from program.knowledge.ingest.markdown import sections
from program.knowledge.ingest.parsedfile import ParsedFiles

from program.errors import KnowledgeError
from program.knowledge.ingest import folder as ingest
from program.knowledge.ingest.convert import Unreadable
from program.knowledge.ingest.folder import read_base
from program.knowledge.ingest.sections import READ, parse

Write = Callable[[str, str | bytes], Path]
PAGE = """<html><head><title>Kettles | Shop</title>
<meta property="article:published_time" content="2026-02-03T10:00:00Z">
<link rel="canonical" href="https://shop.example/kettles"></head><body>
<nav>Home Cart</nav><header>Shop of shops</header>
<main><h1>Kettles</h1><p>All boil.</p><h2>Sizes</h2>
<table><tr><th>name</th><th>litres</th></tr><tr><td>Merle</td><td>1.7</td></tr><tr><td>Wren</td><td>0.8</td></tr></table>
<h2>Care</h2><ul><li>Descale it.</li><li>Rinse <b>twice</b>.</li></ul></main>
<script>var x = "not text";</script><footer>Imprint</footer></body></html>"""


def test_a_web_page_gives_its_main_part_under_its_headings() -> None:
    document, _ = parse("web/kettles.html", PAGE.encode())
    assert [(p.id, p.title) for p in document.passages] == [
        ("web/kettles.html#kettles", "Kettles"),
        ("web/kettles.html#sizes", "Kettles > Sizes"),
        ("web/kettles.html#care", "Kettles > Care"),
    ]
    sizes, care = document.passages[1:]
    assert sizes.text.split("\n")[0] == "| name | litres |" and "| Wren | 0.8 |" in sizes.text
    assert "Descale it." in care.text and "**twice**" in care.text
    assert {(p.as_of, p.link) for p in document.passages} == {(date(2026, 2, 3), "https://shop.example/kettles")}
    assert not any(word in p.text for p in document.passages for word in ("Cart", "Imprint", "not text", "Shop of"))


def test_a_web_page_in_another_encoding_is_read_by_what_it_declares() -> None:
    page = '<meta charset="iso-8859-1"><h1>Café</h1><p>Größe</p>'
    document, _ = parse("web/a.htm", page.encode("iso-8859-1"))
    assert [(p.title, p.text) for p in document.passages] == [("Café", "Größe")]


def test_a_word_file_keeps_its_headings_and_its_tables_whole() -> None:
    rows = [["plan", "price"], ["Home", "GBP 4"], ["Pro", "GBP 19"]]
    content = docx([("Heading1", "Plans"), ("", "Two plans."), ("Heading2", "Prices"), rows])
    document, _ = parse("x/plans.docx", content)
    assert [(p.id, p.title) for p in document.passages] == [
        ("x/plans.docx#plans", "Plans"),
        ("x/plans.docx#prices", "Plans > Prices"),
    ]
    assert "| Pro | GBP 19 |" in document.passages[1].text


def test_a_pdf_is_cited_by_page_under_its_bookmarks() -> None:
    pages = [["Locks are shut at night."], ["Keys are kept in the office."], ["Cells last nine months."]]
    document, _ = parse("x/manual.pdf", pdf(pages, "The manual", [("Keys", 2)]))
    assert [(p.id, p.title, p.text, p.link) for p in document.passages] == [
        ("x/manual.pdf#page-1", "The manual", "Locks are shut at night.", "x/manual.pdf#page=1"),
        ("x/manual.pdf#page-2", "The manual > Keys", "Keys are kept in the office.", "x/manual.pdf#page=2"),
        ("x/manual.pdf#page-3", "The manual > Keys", "Cells last nine months.", "x/manual.pdf#page=3"),
    ]


def test_a_pdfs_broken_lines_are_joined_and_its_list_is_not() -> None:
    lines = [
        "A long line of a paragraph that runs to the very end of its",
        "column and goes on. It is a well-made manu-",
        "al.",
    ]
    document, _ = parse("x/a.pdf", pdf([[*lines, "One", "Two"]]))
    assert document.passages[0].text == (
        "A long line of a paragraph that runs to the very end of its column and goes on. It is a well-made manual.\nOne\nTwo"
    )


def test_a_pdf_that_only_its_owner_locked_is_read() -> None:
    document, _ = parse("x/a.pdf", pdf([["Open to all."]], password=""))
    assert [p.text for p in document.passages] == ["Open to all."]


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("locked.pdf", pdf([["Secret."]], password="s3cret"), "encrypted"),
        ("broken.pdf", pdf([["Text."]])[:200], "no readable .pdf file"),
        ("empty.pdf", b"", "no readable .pdf file"),
        ("scan.pdf", pdf([[]]), "OCR"),
        ("broken.docx", b"PK\x03\x04 broken", "no Word document"),
        ("hollow.docx", b"PK\x05\x06" + bytes(18), "no readable .docx file"),
        ("image.md", b"\x89PNG\r\n\x1a\n\x00\x00", "not UTF-8"),
        ("program.md", b"\x7fELF\x00\x01", "binary"),
        ("latin.txt", "café".encode("latin-1"), "not UTF-8 text (byte 3)"),
        ("photo.jpg", b"\xff\xd8", ".docx"),
    ],
)
def test_a_file_that_cannot_be_read_is_named_and_the_rest_is_read(
    write: Write, name: str, content: bytes, reason: str
) -> None:
    write("good.md", "# Good\n\nText.\n")
    reading = read_base("x", write(name, content))
    assert [p.id for p in reading.passages] == ["x/good.md#good"]
    assert [s.path for s in reading.skipped] == [f"x/{name}"]
    assert reason in reading.skipped[0].reason


def test_a_word_file_that_unpacks_to_far_more_than_its_size_is_skipped() -> None:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("word/document.xml", b"a" * 30_000_000)
    with pytest.raises(Unreadable, match="unpacks to 30 MB"):
        parse("x/bomb.docx", stream.getvalue(), megabytes=1)


def test_a_text_of_200_megabytes_is_skipped_without_being_read(write: Write) -> None:
    folder = write("good.md", "# Good\n\nText.\n")
    with (folder / "huge.txt").open("wb") as file:
        file.truncate(200_000_000)
    reading = read_base("x", folder)
    assert reading.skipped[0].reason == "it has 200.0 MB, and max_megabytes is 50"
    assert len(reading.passages) == 1


def test_a_folder_that_disappears_while_it_is_read_is_an_error(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(3):
        folder = write(f"{n}.md", "# Text\n\nText.\n")
    walk = os.walk

    def unplugged(*arguments: object, **keywords: object) -> object:
        yield from list(walk(*arguments, **keywords))  # type: ignore[call-overload]
        folder.rename(tmp_path / "elsewhere")

    monkeypatch.setattr(ingest.os, "walk", unplugged)
    with pytest.raises(KnowledgeError, match=r"disappeared.*last index stays"):
        read_base("x", folder)


def test_the_size_of_a_passage_is_a_setting(write: Write) -> None:
    folder = write("a.md", "# Locks\n\n" + "\n\n".join(["Locks are shut at night."] * 60))
    assert len(read_base("x", folder).passages) == 2
    small = read_base("x", folder, limit=40).passages
    assert len(small) == 10 and all(tokens(p.text) <= 40 for p in small)


def test_a_huge_table_is_cut_between_rows_each_piece_under_its_header() -> None:
    rows = [f"| door {n} | {n} metres |" for n in range(900)]
    _, found = sections("# Doors\n\nThe doors:\n\n" + "\n".join(["| name | range |", "|---|---|", *rows]))
    assert len(found) > 2
    pieces = [s for s in found if "metres" in s.text]
    assert all(s.text.startswith("| name | range |\n|---|---|\n") for s in pieces)
    assert all(tokens(s.text) <= TOKENS * TABLE + 20 for s in pieces)
    assert [line for s in pieces for line in s.text.split("\n")[2:]] == rows


def test_only_files_whose_bytes_changed_are_parsed_again(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("a.md", "# A\n\nOne.\n")
    write("b.md", "# B\n\nTwo.\n")
    folder = write("c.pdf", b"%PDF broken")
    first = read_base("x", folder, kept=ParsedFiles(tmp_path / "kept"))
    asked: list[str] = []
    monkeypatch.setattr(
        "program.knowledge.ingest.parsedfile.parse", lambda path, *rest: asked.append(path) or parse(path, *rest)
    )
    again = read_base("x", folder, kept=ParsedFiles(tmp_path / "kept"))
    assert (again.documents, again.skipped, asked) == (first.documents, first.skipped, [])
    write("b.md", "# B\n\nTen.\n")
    (folder / "a.md").unlink()
    changed = read_base("x", folder, kept=ParsedFiles(tmp_path / "kept"))
    assert ([p.text for p in changed.passages], asked) == (["Ten."], ["x/b.md"])
    read_base("x", folder, limit=9, kept=ParsedFiles(tmp_path / "kept"))
    assert asked == ["x/b.md", "x/b.md", "x/c.pdf"]


@pytest.mark.parametrize("harm", [b"no database at all", b""])
def test_a_damaged_cache_of_parsed_files_costs_time_only(write: Write, tmp_path: Path, harm: bytes) -> None:
    folder = write("a.md", "# A\n\nOne.\n")
    for _ in range(2):
        read_base("x", folder, kept=ParsedFiles(tmp_path / "kept"))
        (tmp_path / "kept").write_bytes(harm)
    assert [p.text for p in read_base("x", folder, kept=ParsedFiles(tmp_path / "kept")).passages] == ["One."]


@given(st.sampled_from(READ), st.binary(max_size=300))
def test_any_bytes_under_any_name_are_a_document_or_a_reason(suffix: str, content: bytes) -> None:
    try:
        document, _ = parse(f"x/a{suffix}", content)
    except Unreadable as error:
        assert error.what
    else:
        assert all(p.text.strip() and p.id.startswith("x/a") for p in document.passages)


@given(st.text(max_size=2000), st.integers(20, 60))
def test_no_word_is_lost_when_a_text_is_cut(text: str, limit: int) -> None:
    document, _ = parse("x/a.txt", text.replace("\0", "").encode("utf-8", "replace"), limit)
    kept = "".join("".join(p.text.split()) for p in document.passages)
    expected, _ = parse("x/a.txt", text.replace("\0", "").encode("utf-8", "replace"), 10**9)
    assert kept == "".join("".join(p.text.split()) for p in expected.passages)
