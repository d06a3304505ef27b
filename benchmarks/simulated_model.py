"""A model that writes, of known strength, in place of one behind a key: it knows the labels, and leaks them by chance.

`simulate(project)` returns the brain of a server (`tests.support.provider`). A model named `sim-80` is right about .80
of the questions, by a hash of the question: what `sim-60` knows `sim-80` knows too. Asked for an answer it is right
where every fact stands in the passages shown: it writes the labelled answer with citations. Where they do not hold it,
it says what is missing, with a labelled look-up as its query. It asks back about a vague question, and answers one that
needs no document. Where it is not right, a third each: it states something wrong; it refuses what is there, or answers
what is not; it asks back where nothing is open, or answers where something is. Half of what is wrong is a sentence of
another passage, half the right answer with other numbers. Plain RAG's prompt knows answers and `none` alone.

It measures whether evidence reaches a model, whether it is asked when that pays, and whether its right answers are
delivered. Instructions, layouts and demonstrations never matter to it.
"""

from __future__ import annotations

import hashlib
import html
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ragc.knowledge.project import Project
from ragc.loop.reply import NOTHING, ReplyKind
from ragc.optimize.labelled.dataset import LabelledQuestion, read_labelled
from ragc.passage import Passage
from ragc.serve.opening import open_library
from ragc.text.facts import states
from ragc.text.pieces import split_sentences

CHANGED = "Morwen"  # a name that no document has
WORDS = 4  # of a sentence that may be stated wrongly, more than these
_PASSAGE = re.compile(r'<passage n="(\d+)"([^>]*)>\n(.*?)\n</passage>', re.DOTALL)
_TITLE = re.compile(r'title="([^"]*)"')
_NUMBER = re.compile(r"\d+")


def simulate(project: Project) -> Callable[[Mapping[str, Any]], str]:
    """Return the brain of a server that plays models of known strength on a project's labelled questions."""
    return _Oracle(read_labelled(project.labelled, project.folder), open_library(project).passages()).reply


@dataclass(frozen=True, slots=True)
class _Shown:
    """A passage of a prompt, and which of the library's it is."""

    n: int
    title: str
    text: str
    id: str = ""

    @property
    def whole(self) -> str:
        return f"{self.title}\n{self.text}"


@dataclass
class _Oracle:
    """What is labelled of each question, and the library's passages by their titles."""

    questions: Sequence[LabelledQuestion]
    passages: Sequence[Passage]
    by_text: dict[str, LabelledQuestion] = field(init=False)
    by_title: dict[str, list[Passage]] = field(init=False)

    def __post_init__(self) -> None:
        self.by_text = {_bare(question.question): question for question in self.questions}
        self.by_title = defaultdict(list)
        for passage in self.passages:
            self.by_title[_bare(passage.title)].append(passage)

    def reply(self, body: Mapping[str, Any]) -> str:
        """Return the reply to a request for an answer or a SELECT; nothing to any other."""
        system, user = (str(body["messages"][at]["content"]) for at in (0, -1))
        strength = int(str(body["model"]).rpartition("-")[2]) / 100
        question = self.by_text.get(_bare(_read_field(user, "question")))
        if question is None:
            return NOTHING
        if "SELECT" in system:
            return question.sql if _draw(question.id, "sql") < strength else ""
        shown = self._read_passages(user)
        right = _draw(question.id, "answer") < strength
        if ReplyKind.MISSING not in system:
            return self._write_plainly(question, shown, right)
        return self._write(question, shown) if right else self._err(question, shown)

    def _write(self, question: LabelledQuestion, shown: Sequence[_Shown]) -> str:
        if question.outcome == "clarify":
            return _ask_back(shown)
        if question.route == "direct":
            return f"{ReplyKind.GENERAL}: {question.answer}"
        if self._holds_all(question, shown):
            return self._cite(question, shown)
        known = {passage.id for passage in shown}
        lacks = [n for n, one in enumerate(question.evidence) if one not in known]
        looked_up = [*question.sub_queries, question.question]
        query = looked_up[min(lacks[0], len(looked_up) - 1)] if lacks else ""
        return f"{ReplyKind.MISSING}: a part of it\nQUERY: {query}".strip()

    def _err(self, question: LabelledQuestion, shown: Sequence[_Shown]) -> str:
        way = int(3 * _draw(question.id, "error"))
        answerable = question.route == "direct" or self._holds_all(question, shown)
        if way == 1 and (answerable or question.outcome == "clarify"):
            return f"{ReplyKind.MISSING}: it"
        if way == 2 and question.outcome != "clarify":
            return _ask_back(shown)
        return self._state_wrongly(question, shown)

    def _write_plainly(self, question: LabelledQuestion, shown: Sequence[_Shown], right: bool) -> str:
        if not right:
            return self._state_wrongly(question, shown)
        held = question.outcome in (None, "answered") and self._holds_all(question, shown)
        return self._cite(question, shown) if held else NOTHING

    def _holds_all(self, question: LabelledQuestion, shown: Sequence[_Shown]) -> bool:
        """Tell whether all facts, or all evidence, stand in the passages shown; of a SELECT, all facts in its rows."""
        gold = self._list_bearing(question, shown)
        if question.route == "direct":
            return False
        stated = all(any(states(one.whole, forms) for one in gold) for forms in question.alternatives)
        whole = not question.sql and {*question.evidence} <= {one.id for one in gold}
        return bool(question.facts and stated) or bool(question.evidence and whole)

    def _list_bearing(self, question: LabelledQuestion, shown: Sequence[_Shown]) -> list[_Shown]:
        wanted = {*question.evidence}
        return [
            one
            for one in shown
            if one.id in wanted or one.id.partition("#")[0] in wanted or (question.sql and not one.id)
        ]

    def _cite(self, question: LabelledQuestion, shown: Sequence[_Shown]) -> str:
        bearing, cited = self._list_bearing(question, shown), list[str]()
        forms = [form for one in question.alternatives for form in one]
        for sentence in split_sentences(question.answer):
            told = [form for form in forms if states(sentence, form)]
            marks = [one.n for one in bearing if any(states(one.whole, form) for form in told)]
            marks = marks or [one.n for one in bearing]
            cited.append(f"{sentence.rstrip(' .')} {''.join(f'[{n}]' for n in marks)}.")
        return " ".join(cited)

    def _state_wrongly(self, question: LabelledQuestion, shown: Sequence[_Shown]) -> str:
        forms = [form for one in question.alternatives for form in one]
        sentences = [(one.n, said.strip()) for one in shown for said in split_sentences(one.text)]
        beside = [
            (n, said) for n, said in sentences if len(said.split()) > WORDS and not any(states(said, f) for f in forms)
        ]
        if beside and _draw(question.id, "beside") < 0.5:
            n, said = beside[int(_draw(question.id, "which") * len(beside))]
            return f"{said.rstrip(' .')} [{n}]."
        said = _NUMBER.sub(lambda found: str(int(found[0]) * 3 // 2 + 1), question.answer or "Yes, for GBP 11 a month")
        for form in forms:
            said = re.sub(re.escape(form), CHANGED, said, flags=re.IGNORECASE) if states(said, form) else said
        return f"{said.rstrip(' .')} [{shown[0].n}]." if shown else said

    def _read_passages(self, user: str) -> list[_Shown]:
        found = []
        for n, rest, text in _PASSAGE.findall(user):
            title = html.unescape(title[1]) if (title := _TITLE.search(rest)) else ""
            own = self.by_title.get(_bare(title), [])
            words = {*_bare(text).split()}
            best = max(own, key=lambda one: len(words & {*_bare(one.text).split()}), default=None)
            found.append(_Shown(int(n), title, text.replace("&lt;", "<"), best.id if best else ""))
        return found


def _ask_back(shown: Sequence[_Shown]) -> str:
    options = (f"- {one.title.rpartition(' > ')[2]}" for one in shown[:3])
    return "\n".join([f"{ReplyKind.WHICH}: Which do you mean?", *options])


def _draw(*key: str) -> float:
    """Return a number in [0, 1) that is the same for the same key."""
    return int.from_bytes(hashlib.blake2b("|".join(key).encode(), digest_size=7).digest(), "big") / 2**56


def _read_field(user: str, name: str) -> str:
    found = re.search(rf"<{name}>\n(.*?)\n</{name}>", user, re.DOTALL)
    return html.unescape(found[1].replace("&lt;", "<")) if found else ""


def _bare(text: str) -> str:
    return " ".join(re.sub(r"[>＞﹥\"']", " ", html.unescape(text.replace("&lt;", "<"))).split()).casefold()
