"""The bytes of one file as passages: sections under their headings, cut to size, with line spans."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import date
from functools import lru_cache
from itertools import zip_longest
from pathlib import Path

from semantic_text_splitter import TextSplitter

from ragc.knowledge.ingest.blocks import INNER_HEADING, Block, Section, caption_tables, join_blocks
from ragc.knowledge.ingest.bounds import TimeUp, run_within
from ragc.knowledge.ingest.convert import Page, UnreadableFile, convert_docx, convert_html, read_markdown
from ragc.knowledge.ingest.csv_rows import EXCEL, SUFFIXES
from ragc.knowledge.ingest.decode import decode_text
from ragc.knowledge.ingest.lines import read_plain_text
from ragc.knowledge.ingest.messages import convert_mail, drop_answered, read_captions, tell_answered
from ragc.knowledge.ingest.metadata import Metadata, split_front_matter
from ragc.knowledge.ingest.office import convert_epub, convert_odf, convert_slides, read_sheets
from ragc.knowledge.ingest.pdf.reading import read_pdf
from ragc.knowledge.ingest.records import read_rows, read_sheet_rows
from ragc.knowledge.ingest.rst import convert_rst
from ragc.models.language.fence import remove_invisible
from ragc.passage import TITLE_STEP, Flaw, Passage, ReaderSets
from ragc.settings import CHUNK_TOKENS, MAX_MEGABYTES
from ragc.text.pieces import ASKS, count_keys, split_cells, split_sentences

TEXTS: dict[str, Callable[[str], list[Block]]] = {
    **dict.fromkeys((".md", ".markdown", ".mdx"), read_markdown),
    **dict.fromkeys((".txt", ".text", ".log"), read_plain_text),
    **dict.fromkeys((".vtt", ".srt"), read_captions),
}
PAGES: dict[str, Callable[[bytes, int], Page]] = {
    **dict.fromkeys((".html", ".htm", ".xhtml"), lambda content, _: convert_html(content)),
    **{
        ".docx": convert_docx,
        ".pptx": convert_slides,
        ".epub": convert_epub,
        ".eml": lambda content, _: convert_mail(content),
        ".rst": lambda content, _: convert_rst(content),
    },
    **dict.fromkeys((".odt", ".odp", ".ods"), convert_odf),
}
RECORDS = (*SUFFIXES, *EXCEL, ".jsonl", ".json", ".yaml", ".yml")
READ = (*TEXTS, ".pdf", *PAGES, *RECORDS)  # endings of the files that are read
TOP = "top"  # the anchor of text above the first heading
DEEPEST = 3  # headings below ### stay in the text of their section
SECONDS = 20.0  # of the processor for a file, and as many for each megabyte
TABLE = 8  # times a passage's size above which even a table is cut, between rows
_ANCHOR = ("L", "M", "Nd", "Pc")  # Unicode categories that a GitHub anchor keeps, beside - and space
_DATE = re.compile(r"(?a)(?<![^\W_])((?:19|20)\d\d)(?:[-_.]?([01]\d)(?:[-_.]?([0-3]\d))?)?(?![^\W_])")
_LIGATURES = {code: unicodedata.normalize("NFKC", chr(code)) for code in range(0xFB00, 0xFB07)}
_OUTLINE = re.compile(r"\A\s*(?:\d+(?:\.\d+)*[.)]?|[A-Za-z][.)]|[IVX]+[.)])\s+")  # the number of a heading
_LEADER = re.compile(r"(?<=[^\s.]) *(?:(?: ?\.){4,} *(?=[^\W_]|[€$£])|(?: ?[…·_-]){4,} *(?=[€$£]?\d))")  # to a value
_TOKEN = re.compile(r"[\u2e80-\u9fff\uac00-\ud7ff]|[a-zA-Z\u00c0-\u024f]{1,7}|\w{1,3}|[^\w\s]")


@dataclass(frozen=True, slots=True)
class Document:
    """One file, `<base>/<file>`; it supersedes such paths, or ids of passages."""

    path: str
    title: str
    as_of: date | None
    supersedes: tuple[str, ...]
    passages: tuple[Passage, ...]
    readers: ReaderSets = ()


Parsed = tuple[Document, list[Flaw]]  # a document, and what is wrong with its file, without the file's name


def parse_file(path: str, content: bytes, limit: int = CHUNK_TOKENS, megabytes: float = MAX_MEGABYTES) -> Parsed:
    """Return a file's document, by the ending of `path`. Raises `UnreadableFile`."""
    suffix = Path(path).suffix.lower()
    seconds = SECONDS * (1 + len(content) / 1e6)

    def parse() -> Parsed:
        if suffix in RECORDS:
            return _parse_records(path, content, suffix, int(megabytes * 1e6))
        page = _read_page(content, suffix, int(megabytes * 1e6))
        heading, parts = split_blocks(page.blocks, page.first_line, limit)
        # Of a page its own heading names it better than the head, which often adds the site's name.
        about = replace(page.about, title=heading or page.about.title) if suffix in PAGES else page.about
        links = [page.link] * len(parts)
        if suffix == ".pdf":  # whose lines are pages
            parts, links = _number_pages(parts), [f"{path}#page={part.first}" for part in parts]
        return make_document(path, parts, about, heading, links), list(about.flaws)

    try:
        return run_within(seconds, parse)
    except UnreadableFile:
        raise
    except TimeUp:
        why = f"it takes more than the {seconds:.0f} seconds that a file of its size may take"
        raise UnreadableFile(why, "Save it anew as plain text, or cut it up.") from None
    except Exception as error:  # whatever a parser makes of a broken file, the file alone is lost
        reason = " ".join(str(error).split())[:120].rstrip(".")
        why = f"no readable {suffix} file ({type(error).__name__}: {reason})"
        raise UnreadableFile(why, "Open it in the program it is from, and save it anew.") from error


def split_blocks(
    blocks: Sequence[Block], first_line: int = 1, limit: int = CHUNK_TOKENS
) -> tuple[str | None, list[Section]]:
    """Return the title and the sections in order.

    The title is a heading of level 0, or the only # heading; None where several # headings stand side by side, and
    empty without any. `first_line` is the number of the blocks' first line in their file.
    """
    taken: dict[str, int] = {}
    headings, slug = [""] * INNER_HEADING, ""
    tops = sorted((b for b in blocks if b.kind == "heading" and b.level < 2 and b.text), key=lambda block: block.level)
    alone = len(tops) == 1 or (tops and tops[0].level == 0)
    main = tops[0].text if alone else None if tops else ""
    above: Block | None = None
    found: list[Section] = []
    held: list[Block] = []
    for block in [*caption_tables(blocks), Block("heading", "", level=1)]:
        if block.kind not in ("heading", "caption"):
            held.append(block)
            continue
        if block.kind == "heading" and block.level > DEEPEST and block.text:
            make_anchor(block.text, taken)
            text = block.text if _states_value(block.text) else f"{'#' * block.level} {block.text}"
            held.append(replace(block, kind="paragraph", text=text))
            continue
        # A heading "Top" further down is `top-1`.
        slug = slug or (make_anchor(next(filter(None, reversed(headings)), TOP), taken) if held else TOP)
        bare = not held and above is not None and block.level <= above.level
        if above and (bare or (above.text != main and _states_value(above.text))):  # it is text of its own
            held = [replace(above, kind="paragraph"), *held]
        found += _cut_section(slug, headings, held, first_line, limit)
        slug, held, above = make_anchor(block.text, taken) if block.text else "", [], block if block.text else None
        headings[max(block.level, 1) - 1 :] = [block.text] + [""] * INNER_HEADING
    return main, found


def make_anchor(heading: str, taken: dict[str, int]) -> str:
    """Return GitHub's anchor for a heading; a repeated one gets -1, -2 and so on.

    `taken` counts the anchors of the file so far, and is added to. A heading without letters or digits is `section`.
    """
    kept = (c for c in heading.strip().lower() if c in "- " or unicodedata.category(c).startswith(_ANCHOR))
    slug = base = "".join(kept).replace(" ", "-") or "section"
    while slug in taken:
        taken[base] += 1
        slug = f"{base}-{taken[base]}"
    taken[slug] = 0
    return slug


def count_tokens(text: str) -> int:
    """Return about how many tokens a text has.

    One for seven letters, three digits, a sign or a CJK character. On English prose within a quarter of MiniLM's own
    count, eight times as fast, and the same whatever model embeds, so that passage ids outlive a change of model.
    """
    return len(_TOKEN.findall(text))


def _states_value(heading: str) -> bool:
    """Tell whether a heading says more than what is below it: it has a figure, or a text behind a colon."""
    text = _OUTLINE.sub("", heading, count=1)
    return text[-1:] not in ASKS and (": " in text or "? " in text or any(map(str.isdecimal, text)))


def _fits(text: str, limit: int) -> bool:
    return len(text) <= limit or count_tokens(text) <= limit


def _read_page(content: bytes, suffix: str, max_bytes: int) -> Page:
    if suffix == ".pdf":
        return read_pdf(content)
    if suffix in PAGES:
        return PAGES[suffix](content, max_bytes)
    text, doubts = decode_text(content)
    about, body, first_line = split_front_matter(text)
    own = drop_answered(body) if suffix in (".txt", ".text") else body
    flaws = *doubts, *about.flaws, *tell_answered(len(body.split()) - len(own.split()))
    return Page(TEXTS[suffix](own), replace(about, flaws=flaws), first_line=first_line)


def _number_pages(parts: Sequence[Section]) -> list[Section]:
    """Return the sections of a PDF named by their page: `page-3`, `page-3~2`."""
    counts = Counter[int]()
    numbered = []
    for part in parts:
        counts[part.first] += 1
        again = f"~{counts[part.first]}" * (counts[part.first] > 1)
        numbered.append(replace(part, slug=f"page-{part.first}{again}"))
    return numbered


def _parse_records(path: str, content: bytes, suffix: str, max_bytes: int) -> Parsed:
    if suffix in EXCEL:
        title, rows, flaws = read_sheet_rows(*read_sheets(content, max_bytes))
    else:
        text, doubts = decode_text(content)
        title, rows, flaws = read_rows(text, suffix)
        flaws = [*doubts, *flaws]
    return make_document(path, rows, Metadata(title=title)), flaws


def make_document(
    path: str, parts: Sequence[Section], about: Metadata, heading: str | None = "", links: Sequence[str] = ()
) -> Document:
    """Return a document with a passage for each section or row.

    `heading` is its title as of `split_blocks`. The links are those of the sections; else, and where one is empty, a
    section's lines are told.
    """
    title = about.title or heading or _spell_name(Path(path).stem)
    about = replace(about, as_of=about.as_of or _find_date(path))
    passages = []
    for part, name, link in zip_longest(parts, _name_rows(parts), links):
        own = replace(part.about, as_of=part.about.as_of or about.as_of) if part.about else about
        under_main = len(part.headings) > 1 and part.headings[0] == heading  # the # heading stands for the title
        named = heading is None and not about.title and part.headings  # by the one of several # headings above it
        first = (part.about and part.about.title) or title
        steps = _list_steps(path, *([] if named else [first]), *(h for h in part.headings[under_main:] if h != title))
        place = link or (f"{path}:{part.first}-{part.last}" if part.first else path)
        passages.append(_make_passage(f"{path}#{part.slug}", steps, part.text, own, place, name))
    return Document(path, title, about.as_of, about.supersedes, tuple(passages), about.readers)


def _name_rows(rows: Sequence[Section]) -> list[str]:
    """Return the cells that tell each row from those of the same readers, where its first alone does not."""
    names, alike = [""] * len(rows), defaultdict[ReaderSets, list[int]](list)
    for n, row in enumerate(rows):
        if row.about:
            alike[row.about.readers].append(n)
    for places in alike.values():
        cells = [split_cells(rows[n].text) for n in places]
        for n, own, count in zip(places, cells, count_keys(cells), strict=True):
            names[n] = ", ".join(cell.partition(": ")[2] or cell for cell in own[:count]) if count > 1 else ""
    return names


def _make_passage(id_: str, steps: Sequence[str], text: str, about: Metadata, link: str, name: str) -> Passage:
    title = TITLE_STEP.join(steps)
    # Lone surrogates, which JSON and YAML escapes can spell, cannot be written as UTF-8.
    id_, *rest = (one.encode("utf-8", "replace").decode() for one in (id_, title, text, name))
    title, text, name = (one.translate(_LIGATURES) for one in rest)
    said = {name: getattr(about, name) for name in ("as_of", "authority", "attributes", "readers")}
    return Passage(id_, "", title, text, link=link, name=name, **said)


def _spell_name(name: str) -> str:
    """Return "refund policy 2024" for `refund-policy_2024`."""
    return name.replace("-", " ").replace("_", " ").strip()


def _list_steps(path: str, *steps: str) -> list[str]:
    """Return the steps of a title behind the names of the file's folders."""
    folders = map(_spell_name, path.split("/")[1:-1])
    return [*(one for one in folders if one.casefold() not in map(str.casefold, steps)), *steps]


def _find_date(path: str) -> date | None:
    """Return the date in the name of a file, else of a folder it is in: a day, a month or a year from its first day."""
    for name in reversed([*path.split("/")[1:-1], Path(path).stem]):
        for year, month, day in reversed(_DATE.findall(name)):
            with suppress(ValueError):
                return date(int(year), int(month or 1), int(day or 1))
    return None


def _cut_section(
    slug: str, headings: Sequence[str], blocks: Sequence[Block], first_line: int, limit: int
) -> Iterator[Section]:
    """Yield a section in pieces of about `limit` tokens (`slug`, `slug~2`): tables whole, prose by sentences."""
    shown = ((b, _clean_text(b.text if b.kind == "code" else _LEADER.sub(": ", b.text))) for b in blocks)
    units = list(_group_blocks([replace(block, text=text) for block, text in shown if text], limit))
    sizes = [sum(count_tokens(b.text) for b in unit) for unit in units]
    runs = list(_pack_runs(sizes, limit))
    if len(runs) > 1 and sum(sizes[runs[-1]]) < limit // 4:  # a tail too short to stand alone
        runs[-2:] = [slice(runs[-2].start, runs[-1].stop)]
    above = tuple(h for h in headings if h)
    for n, run in enumerate(runs, 1):
        held = [b for unit in units[run] for b in unit]
        start, last = first_line + held[0].first, max(b.last for b in held)
        lines = start, max(first_line + last - 1, start)
        yield Section(slug if n == 1 else f"{slug}~{n}", join_blocks(held), *lines, above)


def _clean_text(text: str) -> str:
    """Return a text as its reader sees it: any blank is a space, and what no reader sees is gone."""
    return remove_invisible(re.sub(r"[^\S\n\t]", " ", text)).rstrip()


def _pack_runs(sizes: Sequence[int], limit: int) -> Iterator[slice]:
    """Yield runs of neighbours that add up to `limit` at most; a larger one stands alone."""
    start = total = 0
    for at, size in enumerate(sizes):
        if at > start and total + size > limit:
            yield slice(start, at)
            start, total = at, 0
        total += size
    if sizes:
        yield slice(start, len(sizes))


def _group_blocks(blocks: Sequence[Block], limit: int) -> Iterator[list[Block]]:
    """Yield blocks that stay together, as a table with the paragraph before it; what is too long is cut."""
    groups: list[list[Block]] = []
    for block in blocks:
        if groups and block.joined:
            groups[-1].append(block)
        else:
            groups.append([block])
    lead: list[Block] = []  # a paragraph that waits for what follows it
    for group in groups:
        table = group[0].kind == "row"
        most = limit * TABLE if table else limit
        whole = sum(count_tokens(block.text) for block in group) <= most
        if lead and not (table and whole):
            yield lead
            lead = []
        if group[0].kind == "paragraph" and whole:
            lead = group
        elif whole:
            yield [*lead, *group]
            lead = []
        else:
            cut = [piece for block in group for piece in _cut_block(block, most)]
            packed = _pack_runs([count_tokens(piece.text) for piece in cut], most) if table else ()
            yield from [cut[run] for run in packed] or [[piece] for piece in cut]
    if lead:
        yield lead


def _cut_block(block: Block, limit: int) -> Iterator[Block]:
    """Yield a block, or a long one in several: code by lines, a row by cells behind its key, prose by sentences."""
    if _fits(block.text, limit):
        yield block
        return
    head, tail, joint = "", "", " "
    key, *parts = split_cells(block.text) if block.kind == "row" else ("",)
    if block.kind == "code":
        head, *parts, tail = block.text.split("\n")
        head, tail, joint = f"{head}\n", f"\n{tail}", "\n"
    elif parts and _fits(key, limit):
        head, joint = f"{key}; ", "; "
    else:
        parts = split_sentences(block.text)
    splitter = _text_splitter(limit)
    parts = [piece for part in parts for piece in ([part] if _fits(part, limit) else splitter.chunks(part))]
    for run in _pack_runs([count_tokens(part) for part in parts], limit):
        yield replace(block, text=f"{head}{joint.join(parts[run])}{tail}")


@lru_cache(maxsize=16)
def _text_splitter(limit: int) -> TextSplitter:
    return TextSplitter.from_callback(count_tokens, limit)
