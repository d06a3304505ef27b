"""The path of an answer in words, for a person who does not know the loop."""

from __future__ import annotations

import re

_CHANCE = r"(?P<share>[.\d]+)"
_WORDS = (
    (r"follows on: (.*)", "It follows on from what was said before, and was read as: {0}"),
    (r"language (.*)", "It seems not to be in English ({0})."),
    (rf"reviewed {_CHANCE}", "Answered before, and reviewed; it is the same question with a chance of {share}."),
    (r"greeting", "It is a greeting."),
    (r"classify->direct\[.*\]", "It may need no looking up."),
    (r"classify->(\w+)\[\]", "It is a {0} question."),
    (r"classify->(\w+)\[(?P<bases>.*)\]", "It is a {0} question, for: {bases}."),
    (r"search.*\((\d+)\)", "Searches made: {0}."),
    (r"not searched: (\S+) .*", "Not searched, since it could not be reached or read: {0}."),
    (r"follow\((\d+)\)", "Looked up {0} more that hang on what was found."),
    (r"sql\((\d+)\)", "Queries of tables written: {0}."),
    (r"sql refused or empty: (.*)", "A query was refused or found no row: {0}."),
    (rf"judge {_CHANCE}", "What was found suffices with a chance of {share}."),
    (rf'judge {_CHANCE} missing "(.*)"', "What was found suffices with a chance of {share}; missing: {1}."),
    (rf"quote {_CHANCE}", "The best words to quote answer it with a chance of {share}."),
    (r"ask: answered", "Written from the passages."),
    (r"ask: missing", "The passages that were found do not state it."),
    (r"ask: which", "The question may mean several things."),
    (r"ask: general", "No document is needed."),
    (r"ask: quote", "The best words of the passages are quoted."),
    (r"stated (\d+)/(\d+)", "{0} of {1} statements stand in what they cite."),
    (rf"supported {_CHANCE}", "What it cites states it with a chance of {share}."),
    (rf"responsive {_CHANCE}", "The answer is about the question with a chance of {share}."),
    (r"switch->(\w+)", "Searched in another way: {0}."),
    (r"(?:echo|no text) of .*", "What a language model wrote says nothing, and was dropped."),
    (r"links removed: (.*)", "Links removed: {0}."),
    (r"fallback", "Answered by what was there until then."),
    (r"unretrieved", "Answered by what the program knows, without a document."),
    (r"unsure", "The first answer was not sure enough."),
    (r"which of (\d+)", "Asked back: the question leaves {0} choices open."),
    (r"abstain", "Said that it is not known."),
    (r"(?:failed|no sql|history left out): .*", "A step failed."),
    (r"no readable reply from .*", "The reply of a model could not be read."),
    (r".*: \S+ (?:was asked|decided|wrote)", "A model failed, and another took its place."),
)


def put_into_words(note: str) -> str:
    """Return a note of the path in words; one that is so already as it is."""
    for pattern, words in _WORDS:
        if found := re.fullmatch(pattern, note, re.DOTALL):
            named = found.groupdict()
            share = f"{100 * float(named.get('share') or 0):.0f} %"
            return words.format(*found.groups(), share=share, bases=", ".join((named.get("bases") or "").split(",")))
    return note
