"""The sides of a comparison, taken apart by its wording."""

from __future__ import annotations

import re

from program.models.rules.grammar import NAMED, PREP, WH
from program.models.rules.words import stems

LONGEST = 400  # characters of a clause that is looked at: the patterns take cubic time at worst
_PARALLEL = re.compile(
    rf"^(?:compare )?(?P<head>.+?) (?P<prep>{PREP}) (?P<a>[^,?]{{2,60}}?),? "
    rf"(?:and|against|versus|vs\.?) (?P=prep) (?P<b>[^,?]{{2,60}})$",
    re.IGNORECASE,
)
_COMPARE = re.compile(
    rf"^(?:compare|contrast)\s+(?!{WH}\b)(?P<a>\S+(?: \S+){{0,6}}?)\s+(?:"
    rf"and|with|to|against|versus|vs\.?)\s+(?P<b>\S+(?: \S+){{0,6}}?)(?:"
    rf"\s*,?\s+(?:on|for|in terms of|by|regarding|as to|in)\s+(?P<on>.+?))?[?.]*$",
    re.IGNORECASE,
)
_DIFFERENCE = re.compile(
    r"^(?:what(?:'s|’s| is| are)?\s+)?(?:the\s+)?differences?\s+(?:in\s+(?P<before>.+?)\s+)?be"
    r"tween\s+(?P<a>.+?)\s+and\s+(?P<b>.+?)(?:\s*,?\s+(?:in|on|for|when "
    r"it comes to|as to|regarding)\s+(?P<on>.+?))?[?.]*$",
    re.IGNORECASE,
)
_VERSUS = re.compile(
    r"^(?:compare\s+)?(?P<lead>.*?[:,]\s*)?(?P<a>[^:,]+?)\s+(?:vs\.?|versus"
    r"|compared (?:with|to))\s+(?P<b>[^:,?]+?)(?:\s*[,:]\s*(?P<on>[^,?]+?))?[?.]*$",
    re.IGNORECASE,
)
_CHOICE = re.compile(
    r"^(?P<ask>(?:which|who|what)\b[^,:?]*?\b(?P<more>\w+er|more \w+|less "
    r"\w+|fewer \w+|most \w+|\w+est|better|best|longer|more|less)\b[^,:"
    r"?]*)[,:]\s*(?P<a>[^,?]+?)\s+or\s+(?P<b>[^,?]+?)[?.]*$",
    re.IGNORECASE,
)
_BOTH = re.compile(
    r"^(?P<head>.*?)\bboth\s+(?P<a>(?:the |an? )?[\w-]+(?: [\w-]+){0,3}?)\s+and\s+(?P<b>(?:"
    r"the |an? )?[A-Z0-9][\w-]*(?: [A-Z0-9][\w-]*)*|(?:the |an? )?[\w-]+)(?P<tail>\b.*)$"
)
_NAME_PAIR = re.compile(
    rf"^(?P<head>.*?[\w,] )(?P<a>{NAMED})(?:, (?P<m>{NAMED}))?,? (?:and"
    rf"|or|versus|vs\.?|as well as) (?:(?P<prep>{PREP}) )?(?P<b>{NAMED})(?P<tail>(?:"
    rf"[ ,?].*)?)$"
)
_OF_LIST = re.compile(
    rf"^(?P<head>(?:{WH}\s+(?:is|are|was|were)|what's|give me|tell me"
    rf"|list|show me|name|state)\s+)(?P<items>(?:the |its |your )?[^,?]+?(?:"
    rf", (?:the )?[^,?]+?)*,? and (?:the )?[^,?]+?)(?P<tail>\s+(?:of|for"
    rf"|on|in|at|under|with)\s+(?-i:[A-Z]|the |an? |my |our |your )[^,?]*)[?.]*$",
    re.IGNORECASE,
)


def compared(text: str) -> list[str]:
    """One look-up for each side of a comparison, each of a pair of names, each of a list of attributes.

    `Compare A and B on noise` gives `noise of A` and `noise of B`; anything else comes back alone.
    """
    bare = text.strip(" ?.!")
    if len(bare) > LONGEST:
        return [text]
    if (found := _PARALLEL.match(bare)) and not re.search(r"\bbetween\b", found["head"]):
        return [f"{found['head']} {found['prep']} {side}" for side in (found["a"], found["b"])]
    if found := _COMPARE.match(bare) or _DIFFERENCE.match(bare) or _VERSUS.match(bare):
        parts = found.groupdict()
        if len(stems(parts.get("on") or "")) < 1 or re.match(WH, parts["on"], re.IGNORECASE):
            parts["on"] = ""
        about = parts.get("on") or parts.get("before") or (parts.get("lead") or "").strip(" ,:")
        return _sides(about, parts["a"], parts["b"])
    if found := _CHOICE.match(bare):
        return [f"{found['ask']}: {found['a']}", f"{found['ask']}: {found['b']}"]
    if found := _BOTH.match(bare):
        return [f"{found['head']}{side}{found['tail']}" for side in (found["a"], found["b"])]
    if (found := _NAME_PAIR.match(bare)) and not re.search(r"\bbetween $", found["head"]):
        prep = f"{found['prep']} " if found["prep"] else ""
        head = re.sub(rf"{prep}$", "", found["head"]) if prep else found["head"]
        firsts = [found["a"]] + ([found["m"]] if found["m"] else [])
        return [f"{found['head']}{side}{found['tail']}" for side in firsts] + [
            f"{head}{prep}{found['b']}{found['tail']}"
        ]
    if found := _OF_LIST.match(bare):
        items = [item for item in re.split(r",? and |, ", found["items"]) if item.strip()]
        if all(len(item.split()) <= 5 for item in items):
            return [f"{item}{found['tail']}" for item in items]
    return [text]


def _sides(about: str, a: str, b: str) -> list[str]:
    """Both sides with what they are compared in, said once in `the price of A and B` or `A and B prices`."""
    if about.lower().startswith("in "):  # a unit, not a subject: `A vs B noise, in dB`
        return [f"{side}, {about}" for side in _sides("", a, b)]
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
