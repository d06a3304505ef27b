"""The path of an answer in words, for a person who does not know the loop."""

from __future__ import annotations

import re

_WORDS = (
    (r"follows on: (.*)", r"It follows on from what was said before, and was read as: \1"),
    (r"classify->direct\[.*\]", "It may need no looking up."),
    (r"classify->(\w+)\[(.*)\]", r"It is a \1 question, for: \2."),
    (r"search.*\((\d+)\)", r"Searches made: \1."),
    (r"follow\((\d+)\)", r"Looked up \1 more that hang on what was found."),
    (r"judge ([.\d]+)", r"What was found suffices with a chance of \1."),
    (r'judge ([.\d]+) missing "(.*)"', r"What was found suffices with a chance of \1; missing: \2."),
    (r"quote ([.\d]+)", r"The best words to quote answer it with a chance of \1."),
    (r"endorse ([.\d]+)", r"With a language model beside, the best words to quote answer it with a chance of \1."),
    (r"(?:stated|ground) (\d+)/(\d+)", r"\1 of \2 statements stand in what they cite."),
    (r"responsive ([.\d]+)", r"The answer is about the question with a chance of \1."),
    (r"switch->(\w+)", r"Searched in another way: \1."),
    (r"conflict (.*)", r"Sources disagree: \1."),
    (r"generate strictly", "Written anew, from the passages alone."),
    (r"generate", "Written from the passages."),
    (r"fallback", "The passages that were found were quoted."),
    (r"no direct answer", "It could not be answered without looking up."),
    (r"unretrieved", "Answered without looking up."),
    (r"unsure", "The first answer was not sure enough."),
    (r"clarify.*", "Asked back."),
    (r"abstain", "Said that it is not known."),
)


def put_into_words(note: str) -> str:
    """Return a note of the path in words; one that is so already as it is."""
    for pattern, words in _WORDS:
        if found := re.fullmatch(pattern, note, re.DOTALL):
            return found.expand(words)
    return note
