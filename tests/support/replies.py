"""What a willing stand-in provider replies to ragc's prompts."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

_FORM = re.compile(r"Form: (\{.*\})")
_QUESTION = re.compile(r"<question>\n(.*?)\n</question>", re.DOTALL)
_PASSAGE = re.compile(r"<passage n=\"(\d+)\"[^>]*>\n(.*?)\n</passage>", re.DOTALL)


def read_form(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the object that a request's instructions show as the form of the reply, empty where a text is wanted."""
    form = _FORM.search(str(body["messages"][0]["content"]))
    return json.loads(form[1]) if form else {}


def obliging(body: Mapping[str, Any]) -> str:
    """Return that everything suffices and nothing is vague; for a text the first passage is quoted."""
    user = "\n".join(str(message["content"]) for message in body["messages"][1:])
    if form := read_form(body):
        asked = _QUESTION.search(user)
        texts = [asked[1] if asked else ""]
        return json.dumps({name: _fill(name, value, texts) for name, value in form.items()})
    if passage := _PASSAGE.search(user):
        return f"{passage[2].split('. ')[0].strip().rstrip('.')} [{passage[1]}]."
    return "I do not know."


def _fill(name: str, form: Any, texts: list[str]) -> Any:
    """Return nothing for a text or a list of records, the texts for a list of texts, a decision for a decision."""
    if isinstance(form, list):
        return texts if isinstance(form[0], str) else []
    if not isinstance(form, dict):
        return ""
    if "verdict" in form:
        no = name == "vague"
        return {"reason": "it seems so", "verdict": "no" if no else "yes", "probability": 0.1 if no else 0.9}
    options = list(form["probabilities"])
    chosen = "simple" if "simple" in options else options[0]
    rest = 0.2 / max(1, len(options) - 1)
    shares = {option: 0.8 if option == chosen else rest for option in options}
    return {"reason": "it seems so", "choice": chosen, "probabilities": shares}
