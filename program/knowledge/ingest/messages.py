"""E-mails, without what they quote of the one before, and the captions of films, as blocks of plain text."""

from __future__ import annotations

import re
from dataclasses import replace
from email import policy
from email.parser import BytesParser
from itertools import groupby

from ragc.knowledge.ingest.blocks import Block
from ragc.knowledge.ingest.convert import Page, UnreadableFile, convert_html, parse_page
from ragc.knowledge.ingest.lines import read_plain_text
from ragc.knowledge.ingest.metadata import Metadata
from ragc.passage import Flaw
from ragc.text.pieces import SENTENCE_ENDS

HEAD = 3  # lines `Name: value` from which on they are the head of another message
_QUOTED = "blockquote[type=cite], .gmail_quote, .moz-cite-prefix, #divRplyFwdMsg, #divRplyFwdMsg ~ *, #appendonsend ~ *"
_FIELD = re.compile(r"\W*[^\W\d_][\w -]{0,20}:\s+\S")
_DATED = re.compile(r"@|\d\d:\d\d|(?:19|20)\d\d")  # stands in what leads to a quotation
_ANSWERED = re.compile(
    rf"(?m)^(?=(?:.*\n(?![>\n]))?.*(?:{_DATED.pattern}))(?:[^>\n].*[^.!?:\s]\n)?[^>\n].*:\n\n?(?:>.*\n?)+"
)
_ADDRESSED = re.compile(r"<\S+@\S+>")
_RULE = re.compile(r"\s*[-_]{3,}.*")
_TIMES = re.compile(r"(?:\d+:)?\d\d:\d\d[.,]\d{3}\s+-->\s.*")
_TURN = re.compile(r"[-–—]\s*(?=\S)")
_SPEAKER, _TAG = re.compile(r"<v(?:\.[^ >]*)?\s+([^>]+)>"), re.compile(r"</?[a-z0-9][^>]*>|\{\\an?\d\}", re.IGNORECASE)


def convert_mail(content: bytes) -> Page:
    """Return an e-mail under its subject, with its day and its sender.

    Raises `UnreadableFile` without text.
    """
    message = BytesParser(policy=policy.default).parsebytes(content)
    bodies = [one for kind in ("plain", "html") if (one := message.get_body((kind,)))]
    if not bodies:
        raise UnreadableFile("it holds no text", "Save the message as .txt or .html.")
    body = next((one for one in bodies if one.get_content().strip()), bodies[0])
    text = body.get_content()
    reply = message["in-reply-to"] or message["references"]
    subject = (str(message["subject"] or "").rpartition(": ")[2] or "-") if reply else ""
    if body.get_content_subtype() == "html":
        soup = parse_page(text)
        words = len(soup.get_text(" ").split())
        for quoted in soup.select(_QUOTED):
            quoted.extract()
        own = len(soup.get_text(" ").split())
        words, blocks = (words - own) * bool(own), convert_html(str(soup) if own else text).blocks
        tops = (n for n, one in enumerate(blocks) if n and not _find_head(one.text.split("\n"), subject))
        end = next(tops, len(blocks))
        words += sum(len(one.text.split()) for one in blocks[end:])
        del blocks[end:]
    else:
        kept = _drop_quoted(text.split("\n"), subject)
        words, blocks = len(text.split()) - len(kept.split()), read_plain_text(kept, titled=False)
    names = [one.get_filename() or one.get_content_type() for one in message.iter_attachments()]
    flaws = [Flaw(f"the attachment {name} was not read", "Save it into the folder.") for name in names]
    flaws += tell_answered(words)
    day = getattr(message["date"], "datetime", None)
    about = Metadata(str(message["subject"] or ""), day and day.date(), flaws=tuple(flaws))
    sender = str(message["from"] or "")
    return Page(blocks, replace(about, attributes={"from": sender} if sender else {}))


def drop_answered(text: str) -> str:
    """Return a text, as many lines long, without the message that it answers.

    That is what has `>` behind a line with its time.
    """
    return kept if (kept := _ANSWERED.sub(lambda found: "\n" * found[0].count("\n"), text)).strip() else text


def tell_answered(words: int) -> list[Flaw]:
    """Return a flaw that counts the words of another message, if any."""
    what = f"{words} words that it quotes of another message were left out"
    return [Flaw(what, "Save that message, too.", lost=False)] if words else []


def _find_head(lines: list[str], subject: str) -> int:
    """Return where the head of another message begins: below a rule, or with an address or the subject of a reply."""
    heads = (n for n in range(len(lines) - HEAD + 1) if all(map(_FIELD.match, lines[n : n + HEAD])))
    texts = ((n, " ".join(lines[n : n + HEAD]), bool(n and _RULE.fullmatch(lines[n - 1]))) for n in heads)
    own = (n for n, text, ruled in texts if ruled or _ADDRESSED.search(text) or (subject and subject in text))
    return next(own, len(lines))


def _drop_quoted(lines: list[str], subject: str) -> str:
    """Return the lines of a message without those of another, unless it only hands that on.

    In a reply, which has a `subject`, the other may stand unmarked: below a head with that or a time, a line of its own
    with a time and a colon, or one with an address and a colon, `On ... wrote:`.
    """
    end = _find_head(lines, subject)
    leads = [n for n in range(1, end if subject else 0) if lines[n].rstrip().endswith(":") and not lines[n - 1].strip()]
    alone = (n for n in leads if _DATED.search(lines[n]) and not "".join(lines[n + 1 : n + 2]).strip())
    end = min([*alone, *(n for n in leads if _ADDRESSED.search(lines[n]))], default=end)
    answer = re.sub(r"(?m)^[^>\n].*:\n\n?(?=>)", "", drop_answered("\n".join(lines[:end])))
    own = [line for line in answer.split("\n") if not line.startswith(">")]
    while own and (not own[-1].strip() or (end < len(lines) and _RULE.fullmatch(own[-1]))):
        own.pop()
    return "\n".join(own) if own else "\n".join(lines)


def read_captions(text: str) -> list[Block]:
    """Return what is said in a film, each sentence whole."""
    blocks: list[Block] = []
    lines = text.split("\n")
    for written, run in groupby(range(len(lines)), lambda n: bool(lines[n].strip())):
        places = list(run)
        at = next((n for n in places if _TIMES.fullmatch(lines[n].strip())), None) if written else None
        if at is None:
            continue
        cue = [" ".join(_TAG.sub("", _SPEAKER.sub(r"\1: ", lines[n])).split()) for n in places if n > at]
        if len(cue) > 1 and all(map(_TURN.match, cue)):  # of two who speak
            blocks += (Block("paragraph", _TURN.sub("", one), places[0], places[-1] + 1) for one in cue)
            continue
        said = " ".join(filter(None, cue))
        last = blocks[-1] if blocks else None
        if last and said and last.text[-1] not in SENTENCE_ENDS and not _SPEAKER.match(lines[at + 1 : at + 2][0]):
            blocks[-1] = replace(last, text=f"{last.text} {said}", last=places[-1] + 1)
        elif said:
            blocks.append(Block("paragraph", said, places[0], places[-1] + 1))
    return blocks
