"""A service that follows an alias, on a compiled project whose alias really moves."""

import asyncio
import logging
import shutil
from concurrent.futures import ThreadPoolExecutor

import pytest

from optimize.registry.aliases import promote_version, roll_back
from program import Answer, load
from program.errors import VersionError
from program.serve import follow as following

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


def damage(root, number):
    (folder,) = (root / "shop/versions").glob(f"v{number}-*")
    path = folder / "program.json"
    sound = path.read_bytes()
    path.write_bytes(sound[:-1] + b" ")
    return lambda: path.write_bytes(sound)


def test_the_next_question_after_a_move_is_answered_by_the_new_version(rag, root):
    versions = [rag(QUESTION).version]
    promote_version("shop@v2", "production", root=root)
    versions.append(rag(QUESTION).version)
    roll_back("shop", root=root)
    versions.append(rag(QUESTION).version)
    assert versions == ["shop@v1", "shop@v2", "shop@v1"]


def test_without_a_move_nothing_is_loaded_again(rag):
    before = rag.current
    assert rag(QUESTION).text
    assert rag.current is before


def test_latest_is_followed_too(compiled, root):
    (newest,) = (root / "shop/versions").glob("v2-*")
    newest.rename(root / "aside")
    rag = load("shop@latest", artifacts=root, project=compiled, follow=True)
    assert rag(QUESTION).version == "shop@v1"
    (root / "aside").rename(newest)
    assert rag(QUESTION).version == "shop@v2"


def test_a_version_that_does_not_load_is_told_once_and_the_old_one_goes_on(rag, root, caplog):
    promote_version("shop@v2", "production", root=root)
    damage(root, 2)
    with caplog.at_level(logging.WARNING, logger="program.serve.follow"):
        versions = [rag(QUESTION).version for _ in range(3)]
    assert versions == ["shop@v1"] * 3
    (told,) = caplog.messages
    assert "shop@production moved" in told
    assert "program.json was changed" in told


def test_a_version_that_is_mended_is_taken_up_when_it_is_tried_again(rag, root, caplog, monkeypatch):
    promote_version("shop@v2", "production", root=root)
    mend = damage(root, 2)
    monkeypatch.setattr(following, "RETRY_SECONDS", 0.0)
    assert [rag(QUESTION).version for _ in range(2)] == ["shop@v1"] * 2
    mend()
    assert [rag(QUESTION).version for _ in range(2)] == ["shop@v2"] * 2
    assert len([m for m in caplog.messages if "moved" in m]) == 1


def test_an_alias_that_is_lost_leaves_the_old_version_at_work(rag, root):
    (root / "shop/aliases/production.json").unlink()
    assert rag(QUESTION).version == "shop@v1"


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


async def test_tasks_on_one_event_loop_switch_between_questions(rag, root):
    first = await rag.aask(QUESTION)
    promote_version("shop@v2", "production", root=root)
    answers = await asyncio.gather(*(rag.aask(QUESTION) for _ in range(8)))
    assert first.version == "shop@v1"
    assert {answer.version for answer in answers} <= {"shop@v1", "shop@v2"}
    assert (await rag.aask(QUESTION)).version == "shop@v2"


async def test_a_stream_ends_on_the_version_it_began_with(rag, root):
    answers = []
    async for event in rag.stream(QUESTION):
        if not answers:
            promote_version("shop@v2", "production", root=root)
        answers.append(event)
    assert isinstance(answers[-1], Answer)
    assert answers[-1].version == "shop@v1"
    assert [e async for e in rag.stream(QUESTION)][-1].version == "shop@v2"
