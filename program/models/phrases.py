"""What a few words say when they say it plainly: a verdict, a label, nothing at all, or that a model will not reply.

Each takes only phrases that can be meant one way; whatever else a model wrote, it is asked once more.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

LONGEST = 200  # characters of a plain phrase
_YES, _NO = r"(?:yes|y|true)", r"(?:no|n|false)"
_MARKS = re.compile(r"[*_`\"“”‘]+")
_BARE = re.compile(rf"(?:(?P<yes>{_YES})|(?P<no>{_NO}))(?:\s*[.,;:!–—-]+\s*(?P<rest>[^\d\s].*))?")
_HEDGED = re.compile(
    r"[?]|[.;!]\s+\S|\b(?:or|if|but|however|unless|except|although|though|yet|part\w*|wait|wrong|hardly|barely|scarcely|"
    r"almost|maybe|perhaps|possibly|probably|mostly|actually|sorry|correct\w*|mistake\w*|whether|only|until|doubt\w*|"
    r"question\w*|reflection|second|depends|un\w*|in(?:sufficient|correct))\b"
)
_DENIED = re.compile(r"\b(?:not?|never|neither|nor|none|nothing|without|cannot|false|lacks?|fails?|denies)\b|n't\b")
_AFFIRMED = re.compile(r"\b(?:yes|true|indeed)\b")
_UNSURE = {"unsure", "unclear", "unknown", "undecided"}
_SUBJECT = r"(?:(?:it|this|that|the \w+) )?"
_IS = r"(?:(?:is|are|was|were|seems) )?"
_NOTHING = {"", "none", "n/a", "na", "null", "nothing", "empty", "nothing is missing", "not applicable", "-"}
_REFUSAL = re.compile(
    r"\W*(?:(?:i['’]?m|i am|we are|we['’]re)\s+(?:very |so |really )?sorry|sorry|apologies|my apologies|i apologi[sz]e|"
    r"unfortunately)\b.{0,60}?\b(?:can(?:no|['’])t|can not|unable|not able|won['’]t|not allowed|must decline)\b"
    r"|\W*(?:i|we)(?:['’]m| am| are|['’]re)?\s+(?:can(?:no|['’])t|can not|unable|not able|won['’]t|will not)"
    r"\s+(?:to\s+)?(?:help|assist|comply|answer|provide|do that|fulfil|discuss|continue|engage|respond|process|be able)"
    r"|\W*as an ai\b",
    re.IGNORECASE | re.DOTALL,
)
_PAGE = re.compile(r"\s*<(?:!doctype|html|head|body)\b", re.IGNORECASE)


def verdict(name: str, said: str) -> str | None:
    """`yes`, `no` or `unsure` of an output of that name; None when the words say none of them plainly."""
    text = _plain(said)
    if text is None:
        return None
    if text in _UNSURE:
        return "unsure"
    wanted = re.escape(name.replace("_", " ").casefold())
    if bare := _BARE.fullmatch(text):
        says, rest = ("yes" if bare["yes"] else "no"), bare["rest"] or ""
        contrary = _DENIED if says == "yes" else _AFFIRMED
        affirmed = says == "no" and re.search(rf"\b{wanted}\b", rest) and not _DENIED.search(rest)
        return None if _HEDGED.search(rest) or contrary.search(rest) or affirmed else says
    if re.fullmatch(rf"{_SUBJECT}{_IS}(?:fully |clearly )*{wanted}", text):
        return "yes"
    denied = rf"{_SUBJECT}(?:{_IS}(?:clearly )?(?:not |un|in|ir|non[ -]?)|(?:isn't|aren't|wasn't) ){wanted}"
    return "no" if re.fullmatch(denied, text) else None


def label(said: str, labels: Sequence[str]) -> str | None:
    """The label that the words are, or plainly give (`The route is simple.`)."""
    text = _plain(said)
    if text is None:
        return None
    given = re.fullmatch(
        r"(?:(?:it|this|that|(?:the|my)(?: \w+){1,2}|i(?: would)?) (?:is|are|choose|pick|seems)(?: the)? )?(.+)", text
    )
    found = [each for each in labels if given and each.casefold().replace("_", " ") in (text, given[1])]
    return found[0] if len(found) == 1 else None


def is_nothing(said: str) -> bool:
    """True for a word that stands for an empty text (`None.`, `N/A`)."""
    return said.strip(" .!()[]*`\"'\n").casefold() in _NOTHING


def is_no_reply(text: str) -> bool:
    """True when a text is a refusal, or a page that a server sent in place of a reply."""
    return bool(_REFUSAL.match(text) or _PAGE.match(text))


def _plain(said: str) -> str | None:
    """The words in lower case, without marks around them and a full stop; None when they are too many, or none."""
    if len(said) > LONGEST:
        return None
    text = _MARKS.sub(" ", said.replace("’", "'")).strip().strip("'").strip("-•> ").rstrip(".! ,;:")
    return " ".join(text.split()).casefold() or None
