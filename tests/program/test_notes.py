"""The notes of an answer's path: each reads as traces have it, and has words for the person who asked."""

import copy
import pickle

import orjson
import pytest

from ragc.answer import Trace
from ragc.notes import NoteKind, put_into_words

NOTES = [
    (
        NoteKind.FOLLOWS(question="How big is it?"),
        "follows on: How big is it?",
        "It follows on from what was said before, and was read as: How big is it?",
    ),
    (
        NoteKind.HISTORY_LEFT_OUT(why="conversation.follows_on: no reply in time"),
        "history left out: conversation.follows_on: no reply in time",
        "A step failed.",
    ),
    (NoteKind.LANGUAGE(code="de"), "language de", "It seems not to be in English (de)."),
    (
        NoteKind.REVIEWED(share=0.97),
        "reviewed .97",
        "Answered before, and reviewed; it is the same question with a chance of 97 %.",
    ),
    (NoteKind.GREETING(), "greeting", "It is a greeting."),
    (NoteKind.DIRECT(bases=()), "classify->direct[]", "It may need no looking up."),
    (
        NoteKind.PLANNED(route="complex", bases=("product", "billing")),
        "classify->complex[product,billing]",
        "It is a complex question, for: product, billing.",
    ),
    (NoteKind.SEARCHED(strategy="", n=2), "search(2)", "Searches made: 2."),
    (NoteKind.SEARCHED(strategy=" hybrid", n=2), "search hybrid(2)", "Searches made: 2."),
    (
        NoteKind.NOT_SEARCHED(source="web", why="No key"),
        "not searched: web (No key)",
        "Not searched, since it could not be reached or read: web.",
    ),
    (NoteKind.FOLLOWED(n=1), "follow(1)", "Looked up 1 more that hang on what was found."),
    (NoteKind.SQL(n=1), "sql(1)", "Queries of tables written: 1."),
    (
        NoteKind.NO_SQL(why="retriever.sql: no reply in time"),
        "no sql: retriever.sql: no reply in time",
        "A step failed.",
    ),
    (
        NoteKind.SQL_EMPTY(source="orders"),
        "sql refused or empty: orders",
        "A query was refused or found no row: orders.",
    ),
    (NoteKind.JUDGED(share=0.08), "judge .08", "What was found suffices with a chance of 8 %."),
    (
        NoteKind.LACKING(share=1.0, lacks="the price"),
        'judge 1.00 missing "the price"',
        "What was found suffices with a chance of 100 %; missing: the price.",
    ),
    (NoteKind.QUOTED(share=0.6), "quote .60", "The best words to quote answer it with a chance of 60 %."),
    (NoteKind.STATED(n=1, all=2), "stated 1/2", "1 of 2 statements stand in what they cite."),
    (NoteKind.WROTE_ANSWERED(), "ask: answered", "Written from the passages."),
    (NoteKind.WROTE_MISSING(), "ask: missing", "The passages that were found do not state it."),
    (NoteKind.WROTE_WHICH(), "ask: which", "The question may mean several things."),
    (NoteKind.WROTE_GENERAL(), "ask: general", "No document is needed."),
    (NoteKind.WROTE_QUOTE(), "ask: quote", "The best words of the passages are quoted."),
    (
        NoteKind.WRITTEN(share=0.8),
        "tokens .80",
        "The model would write just this with a chance of 80 %.",
    ),
    (NoteKind.SUPPORTED(share=0.9), "supported .90", "What it cites states it with a chance of 90 %."),
    (NoteKind.RESPONSIVE(share=0.29), "responsive .29", "The answer is about the question with a chance of 29 %."),
    (NoteKind.SWITCHED(strategy="keyword"), "switch->keyword", "Searched in another way: keyword."),
    (
        NoteKind.ECHO(predictor="generator.answer"),
        "echo of generator.answer",
        "What a language model wrote says nothing, and was dropped.",
    ),
    (
        NoteKind.NO_TEXT(predictor="generator.answer"),
        "no text of generator.answer",
        "What a language model wrote says nothing, and was dropped.",
    ),
    (NoteKind.LINKS_REMOVED(hosts="evil.example"), "links removed: evil.example", "Links removed: evil.example."),
    (NoteKind.FALLBACK(), "fallback", "Answered by what was there until then."),
    (NoteKind.UNRETRIEVED(), "unretrieved", "Answered by what the program knows, without a document."),
    (NoteKind.UNSURE(), "unsure", "The first answer was not sure enough."),
    (NoteKind.WHICH(n=3), "which of 3", "Asked back: the question leaves 3 choices open."),
    (NoteKind.ABSTAINED(), "abstain", "Said that it is not known."),
    (
        NoteKind.FAILED(why="generator.answer: no key is set"),
        "failed: generator.answer: no key is set",
        "A step failed.",
    ),
    (
        NoteKind.CONFIGURED(model="openai/a"),
        "openai/a writes, as DSPy is configured",
        "openai/a writes, as DSPy is configured",
    ),
    (
        NoteKind.UNREAD(model="openai/a"),
        "no readable reply from openai/a: took the safe default",
        "The reply of a model could not be read.",
    ),
    (
        NoteKind.CUT(),
        "a text was cut off: its last sentence was left out",
        "a text was cut off: its last sentence was left out",
    ),
    (
        NoteKind.STOOD_IN(why="no key", model="local/quoting", did="wrote"),
        "no key: local/quoting wrote",
        "A model failed, and another took its place.",
    ),
    (NoteKind.COLUMN(n=3), "column of 3", "A column was told whole: 3 cells."),
]


@pytest.mark.parametrize(("note", "line", "words"), NOTES)
def test_a_note_reads_as_traces_have_it_and_is_put_into_words(note, line, words):
    assert (str(note), put_into_words(note)) == (line, words)
    for other in (copy.deepcopy(note), pickle.loads(pickle.dumps(note))):
        assert (other, other.kind, put_into_words(other)) == (line, note.kind, words)
    assert orjson.loads(orjson.dumps(Trace("1", (note,), ()).path)) == [line]


@pytest.mark.parametrize("kind", NoteKind)
def test_a_trace_is_read_for_notes_of_every_kind(kind):
    found = [line for note, line, _ in NOTES if note.kind is kind]
    assert found and all(map(kind.begins, found))


def test_a_line_of_another_program_stays_as_it_is():
    assert put_into_words("looked twice") == "looked twice"
