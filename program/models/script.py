"""What a stand-in provider is told: how slow, how faulty, and what to reply."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from program.errors import SettingsError

Brain = Callable[[Mapping[str, Any]], str]
"""From the body of a chat request to the text of the reply."""

FAULTS = (
    "rate_limited",  # 429 with Retry-After
    "server_error",  # 500
    "unauthorized",  # 401, quoting the key in OpenAI's words
    "overloaded",  # 529
    "stalled",  # accepted, never answered
    "dropped",  # the connection is cut in the middle of the reply
    "wrong_type",  # 200 with a page of HTML
    "cut_body",  # 200 with half a JSON body
    "cut_reply",  # a whole body, half a text
    "no_choices",
    "refusal",
    "wrong_label",
    "prose",  # the reply inside chatter and a fence
    "huge",  # 100 kB
    "surrogates",
    "tool_call",
    "no_usage",
    "thought",  # no word before the tokens of the reply are used up
    "cut_off",  # half a text, and the word that it is cut off
    "wild_usage",  # counts below zero, or past all measure
)
HUGE = 100_000
REFUSAL = "I'm sorry, but I can't help with that request."
_WRONG_LABEL = re.compile(r'("(?:verdict|choice)"\s*:\s*")[^"]*"')
_DECIDE = re.compile(r"Decide now: ([\w, ]+)\. Reply with the JSON object alone\.")
_NUMBER = re.compile(r"_\d+$")  # of one part among several
_FORM = re.compile(r"Form: (\{.*\})")
_QUESTION = re.compile(r"<question>\n(.*?)\n</question>", re.DOTALL)
_ABOUT = re.compile(r"^- [\w, ]+_\d+: task \d+, (.*)$", re.MULTILINE)
_NUMBERS = re.compile(r"\bpassages? (\d+(?:, \d+)*)")
_INPUT = re.compile(r"<(\w+)(?: n=\"(\d+)\")?>\n(.*?)\n</\1>", re.DOTALL)
_PASSAGE = re.compile(r"<passage n=\"(\d+)\"[^>]*>\n(.*?)\n</passage>", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Wanted:
    """One value that a prompt of ragc's wants decided: `key` in the reply, the output's `name`, and what it is about.

    `inputs` are the texts by name (question, claim, answer), `passages` those shown with them.
    """

    key: str
    name: str
    inputs: Mapping[str, str]
    passages: tuple[str, ...]


def wanted(body: Mapping[str, Any]) -> list[Wanted]:
    """Every value that a request wants decided, be it one decision or several together; none of another request."""
    user = str(body["messages"][1]["content"])
    keys = _DECIDE.search(user)
    if keys is None:
        return []
    passages = dict(_PASSAGE.findall(user))
    inputs = {(name, n): text for name, n, text in _INPUT.findall(user) if name != "passage"}
    about = {key: line[1] for line in _ABOUT.finditer(user) for key in line[0].partition(":")[0][2:].split(", ")}
    if not about:
        given = {name: text for (name, _), text in inputs.items()}
        return [Wanted(key, key, given, tuple(passages.values())) for key in keys[1].split(", ")]
    return [
        Wanted(
            key,
            _NUMBER.sub("", key),
            {name: text for (name, n), text in inputs.items() if re.search(rf"\b{name} {n}(?!\d)", about[key])},
            tuple(passages[n] for list_ in _NUMBERS.findall(about[key]) for n in list_.split(", ")),
        )
        for key in keys[1].split(", ")
    ]


@dataclass(frozen=True, slots=True)
class Script:
    """How the server behaves. `faults` gives each fault's share in [0, 1]; at most one befalls a request.

    Delays are in seconds: `delay` is the median before a reply (or its first token) and `spread` the sigma of the
    logarithm; `token_delay` lies between streamed words. So many requests are served `at_once`, the rest wait; 0: all.
    `cached` is the share of a prompt's tokens that are said to have been cached. A form (`response_format`) that a
    request names is `kept`, `ignored` or `refused`.
    """

    faults: Mapping[str, float] = field(default_factory=dict)
    delay: float = 0.0
    spread: float = 0.0
    token_delay: float = 0.0
    retry_after: float = 0.02
    stall: float = 60.0
    seed: int = 0
    replies: tuple[tuple[str, str], ...] = ()
    at_once: int = 0
    cached: float = 0.0
    forms: str = "kept"

    @classmethod
    def read(cls, path: str | Path) -> Script:
        """The script of a JSON file. Raises `SettingsError` for an unknown key or fault."""
        try:
            content = json.loads(Path(path).read_text(encoding="utf-8"))
            content["replies"] = tuple((when, reply) for when, reply in content.get("replies", {}).items())
            script = cls(**content)
        except (OSError, ValueError, TypeError, AttributeError) as error:
            raise SettingsError(f"{path} is not a script: {error}.", "See docs/models.md for one.") from error
        if unknown := set(script.faults) - set(FAULTS):
            raise SettingsError(f"{path} names unknown faults: {', '.join(sorted(unknown))}.", "Use those of FAULTS.")
        return script

    def reply(self, body: Mapping[str, Any]) -> str:
        """The reply of the first pattern that the last message matches, else a plain sentence."""
        last = str(body["messages"][-1]["content"])
        return next((text for pattern, text in self.replies if re.search(pattern, last)), "A plain reply.")


def spoilt(text: str, fault: str) -> str:
    """The reply as a fault leaves it."""
    match fault:
        case "thought":
            return ""
        case "cut_reply" | "cut_off":
            return text[: max(1, len(text) * 2 // 3)]
        case "refusal":
            return REFUSAL
        case "wrong_label":
            return _WRONG_LABEL.sub(r'\1perhaps-not"', text)
        case "prose":
            return f"Certainly! Here is what you asked for:\n\n```json\n{text}\n```\n\nLet me know if you need more."
        case "huge":
            return text + " and so on" * (HUGE // 10)
        case "surrogates":
            return text + " \ud83d\udc00\ud800"
    return text


def obliging(body: Mapping[str, Any]) -> str:
    """What a willing model replies to ragc's prompts: everything is relevant, and the first passage is quoted."""
    system = str(body["messages"][0]["content"])
    user = "\n".join(str(message["content"]) for message in body["messages"][1:])
    if wanted := _DECIDE.search(user):
        return json.dumps({name: _decided(_NUMBER.sub("", name), system) for name in wanted[1].split(", ")})
    if form := _FORM.search(system):
        asked = _QUESTION.search(user)
        texts = [asked[1] if asked else ""]
        fields = json.loads(form[1])
        return json.dumps({name: _filled(value, texts) for name, value in fields.items()})
    if passage := _PASSAGE.search(user):
        return f"{passage[2].split('. ')[0].strip().rstrip('.')} [{passage[1]}]."
    return "I do not know."


def _filled(form: Any, texts: list[str]) -> Any:
    """Nothing for a text or a list of records, the texts for a list of texts."""
    return "" if not isinstance(form, list) else texts if isinstance(form[0], str) else []


def _decided(name: str, system: str) -> dict[str, Any] | str:
    if f"\n- {name} (a text)" in system:
        return ""
    options = re.search(rf"^- {name} \(one of ([^)]+)\)", system, re.MULTILINE)
    if options is None:
        no = name == "vague"
        return {"reason": "it seems so", "verdict": "no" if no else "yes", "probability": 0.1 if no else 0.9}
    labels = options[1].split(", ")
    chosen = "simple" if "simple" in labels else labels[0]
    rest = 0.2 / max(1, len(labels) - 1)
    return {
        "reason": "it seems so",
        "choice": chosen,
        "probabilities": {n: 0.8 if n == chosen else rest for n in labels},
    }
