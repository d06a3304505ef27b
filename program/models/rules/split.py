"""A question as the two to four look-ups it is made of, by rules over words."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from program.models.rules.compare import compared
from program.models.rules.grammar import AUX, CLAUSE, HOW, PREP, WH
from program.models.rules.relations import chain
from program.models.rules.units import split_sentences
from program.models.rules.words import names, stems

MOST = 4
STORY = 25  # words of a leading sentence worth keeping before a look-up
BARE = 4  # a look-up of this few content words leans on the story before it
SHORT = 45  # words up to which a question for one fact is kept whole
_JOINT = re.compile(
    rf"\s*(?:[,;:]\s*|\s[-–—]+\s*)?\b(?:and|plus|as well as|also|then|but"
    rf"|&)\s+(?:(?:also|then|if so|if not|,)\s*,?\s*)*(?={CLAUSE})"
    rf"|,?\s+and,?\s+(?=(?:if(?! so\b| not\b)|once|after|when|while|before"
    rf"|besides)\b[^,?]+?,?\s+(?:{CLAUSE}))"
    rf"|\s*;\s*(?={CLAUSE})|\s*,\s*(?=(?:{PREP}\s+)?(?:what|how|why)\b|{PREP}\s+(?:when|which)\b)",
    re.IGNORECASE,
)
_LEAD = re.compile(rf"^(?P<lead>[^:?]{{3,80}}): (?=(?:{CLAUSE}))", re.IGNORECASE)
_ASKS = re.compile(
    rf"\?\s*$|^(?:and |so |but |or |also |ok |okay |please |hi |hello )*(?:"
    rf"{CLAUSE}|tell|give|list|compare|explain|describe|show|find"
    r"|name|say)\b|\b(?:i|we) (?:need|want|would like|'d like|have) to "
    r"(?:know|find out)|\bi(?:'m| am) (?:asking|wondering)|\bwonder(?:"
    r"ing)? (?:if|what|how|who|when)"
    rf"|\b(?:and|if so|if not),?\s+(?:{PREP}\s+)?(?:what|how|who|when"
    rf"|where|which|why)\b|\b(?:asks?|knows?|know|tell me|wonder)\s+(?:"
    rf"{WH}|if|whether|at what)\b|\bcompare\b|\bdifference between\b|\bversus\b"
    rf"|\bvs\b",
    re.IGNORECASE,
)
_HAS_WH = re.compile(rf"\b{WH}\b|^{AUX}\b|^(?:tell|give|list|compare|name|state|explain)\b", re.IGNORECASE)
_OPENING = re.compile(
    r"^(?:(?:and|so|but|also|then|ok|okay|please|hi|hello|hey|well|plus"
    r"|anyway|secondly|first(?:ly)?|second|finally|one more thing|quick "
    r"question"
    r"|two (?:things|questions)[^:?,]*|(?:just )?(?:for|to) [^:?]{0,40}(?=:))\s*[,:;.-]*\s+)+",
    re.IGNORECASE,
)
_POLITE = re.compile(
    r"^(?:(?:can|could|would|will) (?:you|someone|anyone|anybody)(?: please"
    r"| kindly)? (?:tell|let|give|explain|remind|show)(?: to)?(?: me| "
    r"us)?(?: know)?"
    r"|(?:please )?(?:tell|remind) (?:me|us)|do you (?:know|happen to "
    r"know)|i(?:'d| would)? (?:need|want|like|just want) to know|i(?:'m"
    r"| am) wondering|i wonder|let me know"
    rf"|any idea)\s*[,:]?\s+(?=(?:{PREP}\s+)?{WH}|if |whether |about )",
    re.IGNORECASE,
)
_PRONOUN = re.compile(r"\b(it|its|they|them|their)\b", re.IGNORECASE)
_POSSESSIVE = frozenset({"its", "their"})
_EACH = re.compile(r"\b(?:each(?: of them)?|both(?: of them)?(?! (?:the |an? )?(?-i:[A-Z]))|either)\b", re.IGNORECASE)
_TRAILING_WH = re.compile(rf"^(.+?),? and(?:,? if so,?)? ((?:{PREP} )?{WH}{HOW})\s*\??$", re.IGNORECASE)
_TWO_WH = re.compile(rf"^((?:{PREP} )?{WH}{HOW}),? (?:and|or) ((?:{PREP} )?{WH}{HOW}) (.+)$", re.IGNORECASE)


@lru_cache(maxsize=4_000)
def split(question: str) -> tuple[str, ...]:
    """One to four look-ups that together answer the question, each naming what it is about.

    A question for one fact comes back alone, without the story around it.
    """
    asked, told = _asking(" ".join(question.split()))
    parts = [part for sentence in asked for part in _clauses(sentence)]
    subject = ""
    looked_up: list[str] = []
    for part in parts:
        named = _antecedent(part)
        whole = _resolve(part, subject)
        subject = named or subject
        for one in _each(whole, names(question)):
            looked_up += [piece for side in compared(one) for piece in chain(side)]
    looked_up = [text for text in dict.fromkeys(_tidy(text) for text in looked_up) if stems(text) or (text and told)][
        :MOST
    ]
    if not looked_up or (len(looked_up) == 1 and len(question.split()) <= SHORT):
        return (question.strip(),)
    return tuple(_with_story(text, told) for text in looked_up)


def _asking(question: str) -> tuple[list[str], list[str]]:
    """The sentences that ask, and those that only tell; when none asks, all of them ask."""
    sentences = list(split_sentences(question))
    asked = [s for s in sentences if _ASKS.search(s)]
    if not asked:
        return [question], []
    told = [s for s in sentences if not _ASKS.search(s)]
    bare: list[str] = []
    for sentence in (_OPENING.sub("", s) for s in asked):
        lead = _LEAD.match(sentence)
        if lead and not _HAS_WH.search(lead["lead"]):
            told.append(f"{lead['lead']}:")
            bare.append(sentence[lead.end() :])
        else:
            bare.append(sentence)
    return bare, told


def _each(part: str, named: tuple[str, ...]) -> list[str]:
    """`How long on each?` once for each of the two things named before it."""
    if len(named) != 2 or not _EACH.search(part):
        return [part]
    return [_EACH.sub(name, part, count=1) for name in named]


def _clauses(sentence: str) -> Iterator[str]:
    """The clauses of one sentence that ask something each."""
    sentence = _POLITE.sub("", sentence)
    cuts = [0, *(m.end() for m in _JOINT.finditer(sentence)), len(sentence)]
    ends = [*(m.start() for m in _JOINT.finditer(sentence)), len(sentence)]
    if _TWO_WH.match(sentence) or _TRAILING_WH.match(sentence):
        cuts, ends = [0], [len(sentence)]
    pieces = [sentence[a:b].strip(" ,;") for a, b in zip(cuts, ends, strict=False)]
    pending = ""
    for i, piece in enumerate(pieces):
        # A lead without a question of its own ("On Pro, how ...") belongs to the clause after it.
        if i + 1 < len(pieces) and not _HAS_WH.search(piece) and not pending:
            pending = piece
            continue
        yield from _shared_tail(f"{pending}, {piece}" if pending else piece)
        pending = ""


def _shared_tail(clause: str) -> Iterator[str]:
    """`When and where was X made?` and `When was X made and where?` as two."""
    if found := _TWO_WH.match(clause):
        yield f"{found[1]} {found[3]}"
        yield f"{found[2]} {found[3]}"
    elif found := _TRAILING_WH.match(clause):
        yield found[1]
        first = re.match(rf"(?:{PREP} )?{WH}{HOW}\b", found[1], re.IGNORECASE)
        yield found[2] + (found[1][first.end() :] if first else f" {found[1]}")
    else:
        yield clause


def _antecedent(part: str) -> str:
    """What a pronoun in a later clause stands for: the last name of the clause before it, or nothing."""
    found = [name for name in names(part) if len(name.split()) <= 4]
    if not found:
        return ""
    article = re.search(r"\b(the|a|an|my|our|your) $", part[: part.find(found[-1])], re.IGNORECASE)
    return f"{article[1]} {found[-1]}" if article else found[-1]


def _resolve(part: str, subject: str) -> str:
    """The clause with its first pronoun replaced by the subject of the clause before."""
    if not subject or subject.lower() in part.lower():
        return part
    found = _PRONOUN.search(part)
    if found:
        put = f"{subject}'s" if found[1].lower() in _POSSESSIVE else subject
        return part[: found.start()] + put + part[found.end() :]
    return part if names(part) else f"{part.rstrip(' ?')} ({subject})"


def _with_story(text: str, told: list[str]) -> str:
    """The look-up behind the sentence that leads to it, or with the names that only the story gives."""
    if told and len(told[-1].split()) <= STORY and len(set(stems(text))) <= BARE:
        kept: list[str] = []
        for sentence in reversed(told):
            if len(" ".join([*kept, sentence]).split()) > STORY:
                break
            kept.insert(0, sentence)
        return " ".join([*kept, text])
    missing = [name for name in names(" ".join(told)) if name.lower() not in text.lower() and len(name.split()) <= 4]
    return f"{text.rstrip('?')} ({', '.join(missing[:2])})?" if missing else text


def _tidy(text: str) -> str:
    bare = _OPENING.sub("", text.strip(" ,;:.?!"))
    bare = " ".join(bare.split())
    return f"{bare[:1].upper()}{bare[1:]}?" if bare else ""
