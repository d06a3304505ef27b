"""Relational chains: a question about something that is itself named only by a relation."""

from __future__ import annotations

import re

_ENTITY = (
    r"(?:team|person|people|man|woman|company|firm|vendor|supplier|service|department|office|desk|manager|lead|leader|head|boss|carrier|courier"
    r"|provider|group|unit|site|warehouse|workshop|engineer|officer|partner|contractor|organi[sz]ation|agency|tool|system|product|plan|model|device"
    r"|city|town|country|state|region|author|writer|director|film|movie|book|song|album|band|artist|actor|actress|player|club|school|university"
    r"|college|museum|river|island|institution|owner|founder|inventor|magazine|series|show|game|party|party leader|place|rota|party member)s?"
)
_VERB = r"(?!(?:i|we|you|they|he|she|it)\b)[\w'-]+"
_RELATIVE = re.compile(
    rf"\b(?:the|that|a|an|whichever) (?P<noun>(?:[\w-]+ ){{0,2}}?{_ENTITY}) (?:(?P<that>that|which|who) (?P<rest>.+)|(?P<ing>[a-z]+ing|behind|responsible for|in charge of|in which|where|by|from which|on which|to whom|with which) (?P<obj>.+))$",
    re.IGNORECASE,
)
_OUTER = re.compile(r"\b(?:who|whom|whose|which|what|where)\b|\bname\b", re.IGNORECASE)
_ROLE_OF = re.compile(
    r"\b(?:the )?(?P<role>(?:lead(?:er)?|head|boss|manager|owner|director|founder|author|mother|father|wife|husband|son|daughter|spouse|capital|president|chair|sibling|brother|sister|employer|birthplace)s?) of (?P<whom>the .+)$",
    re.IGNORECASE,
)


def chain(question: str) -> list[str]:
    """The inner look-ups first and the whole question last; the question alone when it holds no chain.

    `Who leads the team that runs avocet?` gives `Which team runs avocet` and the question itself.
    """
    bare = question.strip(" ?.!")
    found = _RELATIVE.search(bare)
    if not found or not _OUTER.search(bare[: found.start()]):
        return [question]
    noun = found["noun"]
    wh = "who" if noun.lower() in {"person", "man", "woman", "people"} else f"which {noun}"
    rest = found["rest"] if found["that"] else f"{_linked(found['ing'])} {found['obj']}"
    rest = _first_relation(rest)
    inner = f"{wh} {rest}"
    middle: list[str] = []
    before = bare[: found.start()]
    if role := _ROLE_OF.search(before + found.group()):
        if role["whom"].startswith("the") and _OUTER.search(before[: role.start()]) and before[: role.start()].strip().lower() not in {"who is", "who's"}:
            middle = [f"who is the {role['role']} of {role['whom']}"]
    return [*chain(inner), *middle, question]


def _linked(word: str) -> str:
    """`behind` needs a verb before it, `running` does not read badly without one."""
    return f"is {word}"


def _first_relation(rest: str) -> str:
    """The relative clause without what belongs to the outer question: `..., and where`, `... report to`."""
    rest = re.split(r",\s|\s\breport(?:s|ing)? to$", rest)[0]
    return re.sub(r"\s+(?:report to|based|located|born|called|named)$", "", rest)
