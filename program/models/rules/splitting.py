"""A question split into the one to four look-ups that it is made of."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from program.models.rules.sentences import split_sentences
from program.models.rules.words import content_stems, find_names

WH = r"(?:what(?:'s|’s)?|which|who(?:'s|’s)?|whom|whose|when|where|why|how(?:'s|’s)?)"
PREP = r"(?:by|for|from|in|to|up to|on|at|with|of|within|after|under|until|since|below|above)"
AUX = r"(?:is|are|was|were|do|does|did|can|could|will|would|should|shall|must|may|might|has|have|had|am)"
HOW = r"(?: (?:much|many|long|often|far|soon))?"
NAMED = r"(?:(?:the|a|an) )?[A-Z][\w’'-]*(?: (?:[A-Z][\w’'-]*|\d{1,3}))*"
SUBJECT = (
    r"(?:i|we|you|he|she|it|they|the|a|an|my|our|your|his|her|its|their|this|that|these|those|there|any|one|someone"
    r"|anyone|somebody|each|both|[A-Z][\w-]*)"
)
CLAUSE = rf"(?:{PREP}\s+)?{WH}\b|(?:{PREP}\s+)?(?:which|what)\b|{AUX}(?:n't|n’t)?\s+(?-i:{SUBJECT})\b"
MOST = 4
STORY = 25  # words of a leading sentence worth keeping before a look-up
BARE = 4  # a look-up of this few content words leans on the story before it
SHORT = 45  # words up to which a question for one fact is kept whole
_JOINT = re.compile(
    r"(?i)\s*(?:[,;:]\s*|\s[-–—]+\s*)?\b(?:and|plus|as well as|also|then|but|&)\s+(?:(?:also|then|if so|if not"
    rf"|,)\s*,?\s*)*(?={CLAUSE})|,?\s+and,?\s+(?=(?:if(?! so\b| not\b)|once|after|when|while|before"
    rf"|besides)\b[^,?]+?,?\s+(?:{CLAUSE}))|\s*;\s*(?={CLAUSE})|\s*,\s*(?=(?:{PREP}\s+)?(?:what|how|why)\b"
    rf"|{PREP}\s+(?:when|which)\b)"
)
_LEAD = re.compile(rf"(?i)^(?P<lead>[^:?]{{3,80}}): (?=(?:{CLAUSE}))")
_ASKS = re.compile(
    rf"(?i)\?\s*$|^(?:and |so |but |or |also |ok |okay |please |hi |hello )*(?:{CLAUSE}|tell|give|list|compare|explain"
    r"|describe|show|find|name|say)\b|\b(?:i|we) (?:need|want|would like|'d like|have) to (?:know|find out)|\bi(?:'m"
    r"| am) (?:asking|wondering)|\bwonder(?:ing)? (?:if|what|how|who|when)|\b(?:and|if so"
    rf"|if not),?\s+(?:{PREP}\s+)?(?:what|how|who|when|where|which|why)\b|\b(?:asks?|knows?|know|tell me"
    rf"|wonder)\s+(?:{WH}|if|whether|at what)\b|\bcompare\b|\bdifference between\b|\bversus\b|\bvs\b"
)
_HAS_WH = re.compile(rf"(?i)\b{WH}\b|^{AUX}\b|^(?:tell|give|list|compare|name|state|explain)\b")
_OPENING = re.compile(
    r"(?i)^(?:(?:and|so|but|also|then|ok|okay|please|hi|hello|hey|well|plus|anyway|secondly|first(?:ly)?|second|finally"
    r"|one more thing|quick question|two (?:things|questions)[^:?,]*|(?:just )?(?:for"
    r"|to) [^:?]{0,40}(?=:))\s*[,:;.-]*\s+)+"
)
_POLITE = re.compile(
    r"(?i)^(?:(?:can|could|would|will) (?:you|someone|anyone|anybody)(?: please| kindly)? (?:tell|let|give|explain"
    r"|remind|show)(?: to)?(?: me| us)?(?: know)?|(?:please )?(?:tell|remind) (?:me|us)|do you (?:know|happen to know)"
    r"|i(?:'d| would)? (?:need|want|like|just want) to know|i(?:'m| am) wondering|i wonder|let me know"
    rf"|any idea)\s*[,:]?\s+(?=(?:{PREP}\s+)?{WH}|if |whether |about )"
)
_PRONOUN = re.compile(r"(?i)\b(it|its|they|them|their)\b")
_POSSESSIVE = frozenset({"its", "their"})
_EACH = re.compile(r"(?i)\b(?:each(?: of them)?|both(?: of them)?(?! (?:the |an? )?(?-i:[A-Z]))|either)\b")
_TRAILING_WH = re.compile(rf"(?i)^(.+?),? and(?:,? if so,?)? ((?:{PREP} )?{WH}{HOW})\s*\??$")
_TWO_WH = re.compile(rf"(?i)^((?:{PREP} )?{WH}{HOW}),? (?:and|or) ((?:{PREP} )?{WH}{HOW}) (.+)$")
LONGEST = 400  # characters of a clause that is looked at: the patterns take cubic time at worst
_PARALLEL = re.compile(
    rf"(?i)^(?:compare )?(?P<head>.+?) (?P<prep>{PREP}) (?P<a>[^,?]{{2,60}}?),? (?:and|against|versus"
    r"|vs\.?) (?P=prep) (?P<b>[^,?]{2,60})$"
)
_COMPARE = re.compile(
    rf"(?i)^(?:compare|contrast)\s+(?!{WH}\b)(?P<a>\S+(?: \S+){{0,6}}?)\s+(?:and|with|to|against|versus"
    r"|vs\.?)\s+(?P<b>\S+(?: \S+){0,6}?)(?:\s*,?\s+(?:on|for|in terms of|by|regarding|as to"
    r"|in)\s+(?P<on>.+?))?[?.]*$"
)
_DIFFERENCE = re.compile(
    r"(?i)^(?:what(?:'s|’s| is| are)?\s+)?(?:the\s+)?differences?\s+(?:in\s+(?P<before>.+?)\s+)?between\s+"
    r"(?P<a>.+?)\s+and\s+(?P<b>.+?)(?:\s*,?\s+(?:in|on|for|when it comes to|as to|regarding)\s+(?P<on>.+?))?[?.]*$"
)
_VERSUS = re.compile(
    r"(?i)^(?:compare\s+)?(?P<lead>.*?[:,]\s*)?(?P<a>[^:,]+?)\s+(?:vs\.?|versus|compared (?:with"
    r"|to))\s+(?P<b>[^:,?]+?)(?:\s*[,:]\s*(?P<on>[^,?]+?))?[?.]*$"
)
_CHOICE = re.compile(
    r"(?i)^(?P<ask>(?:which|who|what)\b[^,:?]*?\b(?P<more>\w+er|more \w+|less \w+|fewer \w+|most \w+|\w+est|better|best"
    r"|longer|more|less)\b[^,:?]*)[,:]\s*(?P<a>[^,?]+?)\s+or\s+(?P<b>[^,?]+?)[?.]*$"
)
_NAME_PAIR = re.compile(
    rf"^(?P<head>.*?[\w,] )(?P<a>{NAMED})(?:, (?P<m>{NAMED}))?,? (?:and|or|versus|vs\.?"
    rf"|as well as) (?:(?P<prep>{PREP}) )?(?P<b>{NAMED})(?P<tail>(?:[ ,?].*)?)$"
)
_OF_LIST = re.compile(
    rf"(?i)^(?P<head>(?:{WH}\s+(?:is|are|was|were)|what's|give me|tell me|list|show me|name|state)\s+)(?P<items>(?:the "
    r"|its |your )?[^,?]+?(?:, (?:the )?[^,?]+?)*,? and (?:the )?[^,?]+?)(?P<tail>\s+(?:of|for|on|in|at|under"
    r"|with)\s+(?-i:[A-Z]|the |an? |my |our |your )[^,?]*)[?.]*$"
)
ENTITY = (
    r"(?:team|person|people|man|woman|company|firm|vendor|supplier|service|department|office|desk|manager|lead|leader"
    r"|head|boss|carrier|courier|provider|group|unit|site|warehouse|workshop|engineer|officer|partner|contractor"
    r"|organi[sz]ation|agency|tool|system|product|plan|model|device|city|town|country|state|region|author|writer"
    r"|director|film|movie|book|song|album|band|artist|actor|actress|player|club|school|university|college|museum"
    r"|river|island|institution|owner|founder|inventor|magazine|series|show|game|party|party leader|place|rota"
    r"|party member)s?"
)
_RELATIVE = re.compile(
    rf"(?i)\b(?:the|that|a|an|whichever) (?P<noun>(?:[\w-]+ ){{0,2}}?{ENTITY}) (?:(?P<that>that|which|who"
    r"|whose) (?P<rest>.+)|(?P<link>[a-z]+ing|behind|responsible for|in charge of|in which|where|by|from which"
    r"|on which|to whom|with which) (?P<obj>.+))$"
)
_OUTER = re.compile(r"(?i)\b(?:who|whom|whose|which|what|where)\b|\bname\b")
_ROLE_OF = re.compile(
    r"(?i)\b(?:the )?(?P<role>(?:lead(?:er)?|head|boss|manager|owner|director|founder|author|mother|father|wife|husband"
    r"|son|daughter|spouse|capital|president|chair|sibling|brother|sister|employer|birthplace)s?) of (?P<whom>the .+)$"
)


@lru_cache(maxsize=4_000)
def split_question(question: str) -> tuple[str, ...]:
    """Return one to four look-ups that together answer the question.

    Each names its subject. A question for one fact comes back alone, without the story around it.
    """
    asked, told = _asking_sentences(" ".join(question.split()))
    parts = [part for sentence in asked for part in _split_clauses(sentence)]
    subject = ""
    looked_up: list[str] = []
    for part in parts:
        named = _find_antecedent(part)
        whole = _resolve_pronoun(part, subject)
        subject = named or subject
        for one in _repeat_for_each(whole, find_names(question)):
            looked_up += [piece for side in split_comparison(one) for piece in split_chain(side)]
    tidy = dict.fromkeys(_tidy_query(text) for text in looked_up)
    looked_up = [text for text in tidy if content_stems(text) or (text and told)][:MOST]
    if not looked_up or (len(looked_up) == 1 and len(question.split()) <= SHORT):
        return (question.strip(),)
    return tuple(_with_story(text, told) for text in looked_up)


def _asking_sentences(question: str) -> tuple[list[str], list[str]]:
    """Part the sentences that ask from those that only tell; if none asks, all do."""
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


def _repeat_for_each(part: str, named: tuple[str, ...]) -> list[str]:
    """Write `How long on each?` once for each of the two things named before it."""
    if len(named) != 2 or not _EACH.search(part):
        return [part]
    return [_EACH.sub(name, part, count=1) for name in named]


def _split_clauses(sentence: str) -> Iterator[str]:
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
    """Write `When and where was X made?` and `When was X made and where?` as two."""
    if found := _TWO_WH.match(clause):
        yield f"{found[1]} {found[3]}"
        yield f"{found[2]} {found[3]}"
    elif found := _TRAILING_WH.match(clause):
        yield found[1]
        first = re.match(rf"(?:{PREP} )?{WH}{HOW}\b", found[1], re.IGNORECASE)
        yield found[2] + (found[1][first.end() :] if first else f" {found[1]}")
    else:
        yield clause


def _find_antecedent(part: str) -> str:
    found = [name for name in find_names(part) if len(name.split()) <= 4]
    if not found:
        return ""
    article = re.search(r"\b(the|a|an|my|our|your) $", part[: part.find(found[-1])], re.IGNORECASE)
    return f"{article[1]} {found[-1]}" if article else found[-1]


def _resolve_pronoun(part: str, subject: str) -> str:
    if not subject or subject.lower() in part.lower():
        return part
    found = _PRONOUN.search(part)
    if found:
        put = f"{subject}'s" if found[1].lower() in _POSSESSIVE else subject
        return part[: found.start()] + put + part[found.end() :]
    return part if find_names(part) else f"{part.rstrip(' ?')} ({subject})"


def _with_story(text: str, told: list[str]) -> str:
    """Put the story's last sentences before a short look-up, or its names behind a long one."""
    if told and len(told[-1].split()) <= STORY and len(set(content_stems(text))) <= BARE:
        kept: list[str] = []
        for sentence in reversed(told):
            if len(" ".join([*kept, sentence]).split()) > STORY:
                break
            kept.insert(0, sentence)
        return " ".join([*kept, text])
    named = [name for name in find_names(" ".join(told)) if len(name.split()) <= 4]
    missing = [name for name in named if name.lower() not in text.lower()]
    return f"{text.rstrip('?')} ({', '.join(missing[:2])})?" if missing else text


def _tidy_query(text: str) -> str:
    bare = _OPENING.sub("", text.strip(" ,;:.?!"))
    bare = " ".join(bare.split())
    return f"{bare[:1].upper()}{bare[1:]}?" if bare else ""


def split_comparison(text: str) -> list[str]:
    """Return a look-up for each thing that a comparison, pair or list names.

    `Compare A and B on noise` gives `noise of A` and `noise of B`; anything else comes back alone.
    """
    bare = text.strip(" ?.!")
    if len(bare) > LONGEST:
        return [text]
    if (found := _PARALLEL.match(bare)) and not re.search(r"\bbetween\b", found["head"]):
        return [f"{found['head']} {found['prep']} {side}" for side in (found["a"], found["b"])]
    if found := _COMPARE.match(bare) or _DIFFERENCE.match(bare) or _VERSUS.match(bare):
        parts = found.groupdict()
        if len(content_stems(parts.get("on") or "")) < 1 or re.match(WH, parts["on"], re.IGNORECASE):
            parts["on"] = ""
        about = parts.get("on") or parts.get("before") or (parts.get("lead") or "").strip(" ,:")
        return _write_sides(about, parts["a"], parts["b"])
    if found := _CHOICE.match(bare):
        return [f"{found['ask']}: {found['a']}", f"{found['ask']}: {found['b']}"]
    if (found := _NAME_PAIR.match(bare)) and not re.search(r"\bbetween $", found["head"]):
        prep = f"{found['prep']} " if found["prep"] else ""
        head = re.sub(rf"{prep}$", "", found["head"]) if prep else found["head"]
        firsts = [found["a"]] + ([found["m"]] if found["m"] else [])
        sides = [f"{found['head']}{side}{found['tail']}" for side in firsts]
        return [*sides, f"{head}{prep}{found['b']}{found['tail']}"]
    if found := _OF_LIST.match(bare):
        items = [item for item in re.split(r",? and |, ", found["items"]) if item.strip()]
        if all(len(item.split()) <= 5 for item in items):
            return [f"{item}{found['tail']}" for item in items]
    return [text]


def _write_sides(about: str, a: str, b: str) -> list[str]:
    """Write what both sides are compared in with each, as in `the price of A and B`."""
    if about.lower().startswith("in "):  # a unit, not a subject: `A vs B noise, in dB`
        return [f"{side}, {about}" for side in _write_sides("", a, b)]
    if about:
        return [f"{about} of {a}", f"{about} of {b}"]
    shared = re.match(rf"(?P<what>(?:the )?[a-z][\w -]*? (?:of|for|on|in) )(?={NAMED}$)", a)
    if shared and re.fullmatch(NAMED, b):
        return [a, shared["what"] + b]
    first, second = a.split(), b.split()
    if first[0] == second[0] and len(second) > len(first):  # `model 2` and `model 3 noise`
        return [" ".join([*first, *second[len(first) :]]), b]
    tail = re.search(r"(?P<what> [a-z][\w -]*)$", b)
    if tail and re.fullmatch(NAMED, a):
        return [a + tail["what"], b]
    return [a, b]


def split_chain(question: str) -> list[str]:
    """Return the inner look-ups of a chain first and the whole question last.

    `Who leads the team that runs payroll?` gives `Which team runs payroll` and the question itself.
    """
    bare = question.strip(" ?.!")
    if (found := _find_relative(bare)) is None:
        return [question]
    before = bare[: found.start()]
    middle = []
    role = _ROLE_OF.search(before + found.group())
    if role and before[: role.start()].strip().lower() not in {"", "who is", "who's", "what is", "what's"}:
        middle = [f"who is the {role['role']} of {_first_relation(role['whom'])}"]
    return [*split_chain(_inner_question(found)), *middle, question]


def _find_relative(bare: str) -> re.Match[str] | None:
    found = _RELATIVE.search(bare[:LONGEST])
    return found if found and _OUTER.search(bare[: found.start()]) else None


def _inner_question(found: re.Match[str]) -> str:
    """Write the relative clause as a question of its own: `which team runs payroll`."""
    if found["that"]:
        rest = found["rest"]
    elif found["link"].lower() in {"where", "in which"}:
        return f"where {found['obj']}"
    else:
        rest = f"is {found['link']} {found['obj']}"
    noun = found["noun"]
    if (found["that"] or "").lower() == "whose":
        return f"which {noun}'s {_first_relation(rest)}"
    wh = "who" if noun.lower() in {"person", "man", "woman", "people"} else f"which {noun}"
    return f"{wh} {_first_relation(rest)}"


def _first_relation(rest: str) -> str:
    """Cut what belongs to the outer question: `..., and where`, `... report to`."""
    rest = re.split(r",\s|\s\breport(?:s|ing)? to$", rest)[0]
    return re.sub(r"\s+(?:report to|based|located|born|called|named)$", "", rest)


@dataclass(frozen=True, slots=True)
class Relation:
    """A question about something that it names by a relation alone.

    `Who leads the team that runs payroll?` has the look-up `inner` `which team runs payroll`, the `noun` `team`, and
    the `frame` `Who leads {}?` for the name that is found.
    """

    inner: str
    noun: str
    frame: str


def find_relation(question: str) -> Relation | None:
    """Return the relation through which a question names its subject, or None."""
    bare = question.strip(" ?.!").replace("{", "(").replace("}", ")")
    if (found := _find_relative(bare)) is None:
        return None
    rest = found["rest"] or found["obj"]
    frame = f"{bare[: found.start()]}{{}}{rest[len(_first_relation(rest)) :]}?"
    return Relation(_inner_question(found), found["noun"], frame)
