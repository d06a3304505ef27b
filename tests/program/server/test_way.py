"""Every note that the loop puts on the path of an answer has words for the person who asked."""

import ast
import re
from importlib import import_module
from pathlib import Path

import pytest

from ragc.server.way import put_into_words

ROOT = Path(__file__).parents[3]
NOTES = {
    "follows on: How big is it?": "It follows on from what was said before, and was read as: How big is it?",
    "history left out: conversation.follows_on: no reply in time": "A step failed.",
    "language de": "It seems not to be in English (de).",
    "reviewed .97": "Answered before, and reviewed; it is the same question with a chance of 97 %.",
    "greeting": "It is a greeting.",
    "classify->direct[]": "It may need no looking up.",
    "classify->simple[]": "It is a simple question.",
    "classify->complex[product,billing]": "It is a complex question, for: product, billing.",
    "search(2)": "Searches made: 2.",
    "search hybrid(2)": "Searches made: 2.",
    "not searched: web (No key)": "Not searched, since it could not be reached or read: web.",
    "follow(1)": "Looked up 1 more that hang on what was found.",
    "sql(1)": "Queries of tables written: 1.",
    "no sql: retriever.sql: no reply in time": "A step failed.",
    "sql refused or empty: orders": "A query was refused or found no row: orders.",
    "judge .08": "What was found suffices with a chance of 8 %.",
    'judge 1.00 missing "the price"': "What was found suffices with a chance of 100 %; missing: the price.",
    "quote .60": "The best words to quote answer it with a chance of 60 %.",
    "stated 1/2": "1 of 2 statements stand in what they cite.",
    "ask: answered": "Written from the passages.",
    "ask: missing": "The passages that were found do not state it.",
    "ask: which": "The question may mean several things.",
    "ask: general": "No document is needed.",
    "ask: quote": "The best words of the passages are quoted.",
    "supported .90": "What it cites states it with a chance of 90 %.",
    "responsive .29": "The answer is about the question with a chance of 29 %.",
    "switch->keyword": "Searched in another way: keyword.",
    "echo of generator.answer": "What a language model wrote says nothing, and was dropped.",
    "no text of generator.answer": "What a language model wrote says nothing, and was dropped.",
    "links removed: evil.example": "Links removed: evil.example.",
    "fallback": "Answered by what was there until then.",
    "unretrieved": "Answered by what the program knows, without a document.",
    "unsure": "The first answer was not sure enough.",
    "which of 3": "Asked back: the question leaves 3 choices open.",
    "abstain": "Said that it is not known.",
    "failed: generator.answer: no key is set": "A step failed.",
    "openai/a writes, as DSPy is configured": "openai/a writes, as DSPy is configured",
    "no readable reply from openai/a: took the safe default": "The reply of a model could not be read.",
    "a text was cut off: its last sentence was left out": "a text was cut off: its last sentence was left out",
    "no key: local/quoting wrote": "A model failed, and another took its place.",
    "no key: local/minilm decided": "A model failed, and another took its place.",
    "no key: openai/b was asked": "A model failed, and another took its place.",
}


@pytest.mark.parametrize("note", NOTES)
def test_a_note_is_put_into_words(note):
    assert put_into_words(note) == NOTES[note]


def is_path(node):
    return getattr(node, "attr", getattr(node, "id", "")) == "path"


def list_noted(tree):
    """Yield each expression that is put on a path, or noted of a model's call."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if (node.func.attr == "append" and is_path(node.func.value)) or node.func.attr == "note":
                yield node.args[0]
        elif isinstance(node, ast.AugAssign | ast.AnnAssign) and is_path(node.target) and node.value is not None:
            lists = [one for one in ast.walk(node.value) if isinstance(one, ast.List | ast.ListComp)]
            yield from (one for found in lists for one in (found.elts if isinstance(found, ast.List) else [found.elt]))


def spell(node, module):
    """Return the patterns of the texts that an expression may be."""
    if isinstance(node, ast.Constant):
        return [re.escape(node.value)]
    if isinstance(node, ast.IfExp):
        return [*spell(node.body, module), *spell(node.orelse, module)]
    if isinstance(node, ast.FormattedValue):
        return spell(node.value, module)
    if isinstance(node, ast.JoinedStr):
        found = [""]
        for part in node.values:
            found = [f"{begun}{more}" for begun in found for more in spell(part, module)]
        return found
    if isinstance(node, ast.Name) and node.id.isupper():
        return [re.escape(getattr(module, node.id))]
    return [".+"]


def test_the_notes_above_are_all_that_are_made():
    patterns = []
    for folder in ("program/loop", "program/models"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
            for node in list_noted(ast.parse(path.read_text())):
                patterns += spell(node, import_module(module))
    assert len(patterns) > 25
    assert [one for one in patterns if not any(re.fullmatch(one, note) for note in NOTES)] == []
