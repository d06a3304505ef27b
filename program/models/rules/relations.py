"""Relational chains: a question about something that is itself named only by a relation."""

from __future__ import annotations

import re
from dataclasses import dataclass

LONGEST = 400  # characters of a clause that is looked at
ENTITY = (
    r"(?:team|person|people|man|woman|company|firm|vendor|supplier|service"
    r"|department|office|desk|manager|lead|leader|head|boss|carrier|courier"
    r"|provider|group|unit|site|warehouse|workshop|engineer|officer|partner"
    r"|contractor|organi[sz]ation|agency|tool|system|product|plan|model"
    r"|device"
    r"|city|town|country|state|region|author|writer|director|film|movie"
    r"|book|song|album|band|artist|actor|actress|player|club|school|university"
    r"|college|museum|river|island|institution|owner|founder|inventor"
    r"|magazine|series|show|game|party|party leader|place|rota|party member)s?"
)
_VERB = r"(?!(?:i|we|you|they|he|she|it)\b)[\w'-]+"
_RELATIVE = re.compile(
    rf"\b(?:the|that|a|an|whichever) (?P<noun>(?:[\w-]+ ){{0,2}}?{ENTITY}) "
    rf"(?:(?P<that>that|which|who|whose) (?P<rest>.+)|(?P<link>[a-z]+ing|behind"
    rf"|responsible for|in charge of|in which|where|by|from which|on which"
    rf"|to whom|with which) (?P<obj>.+))$",
    re.IGNORECASE,
)
_OUTER = re.compile(r"\b(?:who|whom|whose|which|what|where)\b|\bname\b", re.IGNORECASE)
_ROLE_OF = re.compile(
    r"\b(?:the )?(?P<role>(?:lead(?:er)?|head|boss|manager|owner|director"
    r"|founder|author|mother|father|wife|husband|son|daughter|spouse|capital"
    r"|president|chair|sibling|brother|sister|employer|birthplace)s?) "
    r"of (?P<whom>the .+)$",
    re.IGNORECASE,
)


def chain(question: str) -> list[str]:
    """The inner look-ups first and the whole question last; the question alone when it holds no chain.

    `Who leads the team that runs payroll?` gives `Which team runs payroll` and the question itself.
    """
    bare = question.strip(" ?.!")
    if (found := _relation(bare)) is None:
        return [question]
    before = bare[: found.start()]
    middle = []
    role = _ROLE_OF.search(before + found.group())
    if role and before[: role.start()].strip().lower() not in {"", "who is", "who's", "what is", "what's"}:
        middle = [f"who is the {role['role']} of {_first_relation(role['whom'])}"]
    return [*chain(_inner(found)), *middle, question]


def _relation(bare: str) -> re.Match[str] | None:
    """The relative clause behind a question about something else."""
    found = _RELATIVE.search(bare[:LONGEST])
    return found if found and _OUTER.search(bare[: found.start()]) else None


def _inner(found: re.Match[str]) -> str:
    """The relative clause as a question of its own: `which team runs payroll`."""
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
    """The relative clause without what belongs to the outer question: `..., and where`, `... report to`."""
    rest = re.split(r",\s|\s\breport(?:s|ing)? to$", rest)[0]
    return re.sub(r"\s+(?:report to|based|located|born|called|named)$", "", rest)


@dataclass(frozen=True, slots=True)
class Link:
    """A question about something that it names by a relation alone.

    `inner` is the look-up for that thing, `noun` what it is, `frame` the question with `{}` for its name.
    """

    inner: str
    noun: str
    frame: str


def link(question: str) -> Link | None:
    """`Who leads the team that runs payroll?` as `which team runs payroll`, `team` and `Who leads {}?`."""
    bare = question.strip(" ?.!").replace("{", "(").replace("}", ")")
    if (found := _relation(bare)) is None:
        return None
    rest = found["rest"] or found["obj"]
    return Link(_inner(found), found["noun"], f"{bare[: found.start()]}{{}}{rest[len(_first_relation(rest)) :]}?")
