"""A service that follows an alias, on a compiled project whose alias really moves."""

import asyncio
import logging
import shutil
from concurrent.futures import ThreadPoolExecutor

import pytest

from optimize.registry.aliases import promote_version, roll_back
from program import Answer, load
from program.errors import VersionError
from program.serve import follow

QUESTION = "How many watts does the Wren draw?"


@pytest.fixture
def root(compiled, tmp_path):
    """The compiled project's versions; production is v1."""
    shutil.copytree(compiled / "artifacts", tmp_path / "artifacts")
    promote_version("shop@v1", "production", root=tmp_path / "artifacts")
    return tmp_path / "artifacts"


@pytest.fixture
def rag(root, compiled):
    return load("shop@production", artifacts=root, project=compiled, follow=True)


def test_the_next_question_after_a_move_is_answered_by_the_new_version(rag, root):
    before = rag.current
    assert rag(QUESTION).version == "shop@v1"
    assert rag.current is before, "without a move nothing is loaded again"
    promote_version("shop@v2", "production", root=root)
    assert rag(QUESTION).version == "shop@v2"
    roll_back("shop", root=root)
    assert rag(QUESTION).version == "shop@v1"
    (root / "shop/aliases/production.json").unlink()
    assert rag(QUESTION).version == "shop@v1", "an alias that is lost leaves the old version at work"


def test_latest_is_followed_too(compiled, root):
    (newest,) = (root / "shop/versions").glob("v2-*")
    newest.rename(root / "aside")
    rag = load("shop@latest", artifacts=root, project=compiled, follow=True)
    assert rag(QUESTION).version == "shop@v1"
    (root / "aside").rename(newest)
    assert rag(QUESTION).version == "shop@v2"


def test_a_version_that_does_not_load_is_told_once_and_taken_up_when_it_is_mended(rag, root, caplog, monkeypatch):
    promote_version("shop@v2", "production", root=root)
    (folder,) = (root / "shop/versions").glob("v2-*")
    sound = (folder / "program.json").read_bytes()
    (folder / "program.json").write_bytes(sound[:-1] + b" ")
    with caplog.at_level(logging.WARNING, logger="program.serve.follow"):
        assert [rag(QUESTION).version for _ in range(3)] == ["shop@v1"] * 3
        monkeypatch.setattr(follow, "RETRY_SECONDS", 0.0)
        rag._retry_at = 0.0
        assert rag(QUESTION).version == "shop@v1"
    (told,) = caplog.messages
    assert "shop@production moved" in told and "program.json was changed" in told
    (folder / "program.json").write_bytes(sound)
    assert [rag(QUESTION).version for _ in range(2)] == ["shop@v2"] * 2


@pytest.mark.parametrize("ref", ["shop@v1", "./somewhere"])
def test_what_never_moves_cannot_be_followed(ref, root, compiled):
    with pytest.raises(VersionError):
        load(ref, artifacts=root, project=compiled, follow=True)
    with pytest.raises(VersionError, match="no shop@canary"):
        load("shop@canary", artifacts=root, project=compiled, follow=True)


def test_many_threads_asking_while_the_alias_moves_get_whole_answers_of_one_version(rag, root, compiled):
    alone = {}
    for version in ("shop@v1", "shop@v2"):
        answer = load(version, artifacts=root, project=compiled)(QUESTION)
        alone[version] = (answer.text, answer.confidence, answer.trace.path)

    def ask(n):
        if n == 10:
            promote_version("shop@v2", "production", root=root)
        return rag(QUESTION)

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(ask, range(60)))
    assert {a.version for a in answers} == {"shop@v1", "shop@v2"}
    assert all((a.text, a.confidence, a.trace.path) == alone[a.version] for a in answers)
    assert rag(QUESTION).version == "shop@v2"


async def test_tasks_on_one_event_loop_switch_between_questions_and_a_stream_does_not_switch_within(rag, root):
    answers = []
    async for event in rag.stream(QUESTION):
        if not answers:
            promote_version("shop@v2", "production", root=root)
        answers.append(event)
    assert isinstance(answers[-1], Answer) and answers[-1].version == "shop@v1"
    together = await asyncio.gather(*(rag.aask(QUESTION) for _ in range(8)))
    assert {answer.version for answer in together} <= {"shop@v1", "shop@v2"}
    assert (await rag.aask(QUESTION)).version == "shop@v2"
