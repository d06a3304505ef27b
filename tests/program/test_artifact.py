"""A compiled program on disk and back: what loads or is refused, and a service that follows an alias."""

import asyncio
import gc
import json
import logging
import shutil
import subprocess
import sys
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest

from ragc import Answer, Outcome, load
from ragc.errors import IntegrityError, ModelError, SettingsError, VersionError
from ragc.knowledge.library import Library
from ragc.loop.policy import read_setting
from ragc.models.embedded.features import WordRarity
from ragc.optimize.registry import versions as registry
from ragc.optimize.registry.aliases import promote_version, roll_back
from ragc.serve import follow
from ragc.serve.artifact import describe_structure
from ragc.serve.opening import open_latest
from ragc.serve.reference import read_manifest, resolve

QUESTION = "How many watts does the Wren draw?"


def version_folder(project, number):
    (found,) = (project / "artifacts/shop/versions").glob(f"v{number}-*")
    return found


@pytest.fixture
def changed(compiled, tmp_path):
    """Publishes version 2 of the compiled project again, its manifest or state changed first; loads the result."""

    def publish(manifest=lambda fields: None, state=lambda parts: None):
        folder = version_folder(compiled, 2)
        fields = json.loads((folder / "manifest.json").read_bytes())
        files = {name: (folder / name).read_bytes() for name in read_manifest(folder).files}
        parts = json.loads(files["program.json"])
        manifest(fields)
        state(parts)
        files["program.json"] = json.dumps(parts).encode()
        ref = registry.publish_version("shop", fields, files, tmp_path / "artifacts")
        return load(ref, artifacts=tmp_path / "artifacts", project=compiled)

    return publish


HEAVY = "dspy torch numpy pydantic onnxruntime starlette uvicorn mcp sse_starlette jinja2".split()
VERB = "from ragc.optimize.cli.main import app; app(args={}, standalone_mode=False)"
CHEAP = {
    "load": ("from ragc import load", HEAVY),
    "help": (VERB.format(["--help"]), HEAVY[-5:]),
    "ls": (VERB.format(["ls", "--artifacts", "none"]), ["dspy", "torch", "scipy", "onnxruntime", *HEAVY[-5:-1]]),
}


@pytest.mark.parametrize("code, heavy", CHEAP.values(), ids=CHEAP)
def test_neither_importing_load_nor_a_verb_without_questions_costs_a_model_or_a_server(code, heavy):
    code = f"import sys; {code}; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_loaded_version_answers_under_its_name_the_same_each_time(compiled):
    first, again = (load("shop@v2", artifacts=compiled / "artifacts")(QUESTION) for _ in range(2))
    assert first.version == "shop@v2" and isinstance(first.outcome, Outcome) and first.citations
    assert (first.text, first.confidence, first.trace.path) == (again.text, again.confidence, again.trace.path)


def test_versions_differ_only_by_what_they_hold_and_points_are_applied(compiled):
    before, after = (load(f"shop@v{n}", artifacts=compiled / "artifacts") for n in (1, 2))
    assert describe_structure(before) == describe_structure(after)
    assert not before.classifier.route.demos and after.classifier.route.demos
    points = read_manifest(version_folder(compiled, 2)).section("points")
    assert set(points) == {"quality", "balanced", "economy"} and read_setting(after) == pytest.approx(
        points["balanced"]
    )
    for point, setting in points.items():
        rag = load("shop@v2", artifacts=compiled / "artifacts", point=point)
        assert {name: pytest.approx(value) for name, value in setting.items()} == read_setting(rag)
    kinds = {path.suffix for path in (compiled / "artifacts").rglob("*") if path.is_file()}
    assert kinds <= {".json", ".jsonl", ".safetensors", ".html", "", ".lock"}, "no pickle, nothing that runs"


def test_an_unknown_point_option_or_version_is_refused_by_name(compiled, own_shop):
    with pytest.raises(VersionError, match="balanced"):
        load("shop@v2", artifacts=compiled / "artifacts", point="cheapest")
    with pytest.raises(VersionError, match="v2"):
        load("shop@v9", artifacts=compiled / "artifacts")
    for nothing in (None, 7, b"shop@v2"):
        with pytest.raises(VersionError, match=r"named by text or a Path, not by .*Write name@v7"):
            load(nothing, artifacts=compiled / "artifacts", follow=nothing == 7)
    with pytest.raises(TypeError, match="pont"):
        load("shop@v2", artifacts=compiled / "artifacts", pont="balanced")
    with pytest.raises(
        VersionError, match=r"no compiled version that is not worse than its parent, so no point economy.*ragc compile"
    ):
        open_latest(own_shop, point="economy")
    assert open_latest(own_shop).runtime.version == ""
    assert open_latest(compiled).runtime.version == "shop@v2"


ODD = [
    ("policy.k", 1), ("policy.k", 13), ("policy.dense_weight", "high"), ("policy.route", True), ("policy.k", None),
    ("judge.sufficiency:sufficient", 1.5), ("judge.sufficiency:sufficient", -0.1), ("classifier.route:route=simple", 0),
    ("policy.unheard_of", 1),
]  # fmt: skip


def test_every_difference_is_in_the_one_error(changed):
    def manifest(fields):
        (judge,) = [one for one in fields["program"]["structure"] if one.get("predictor") == "judge.sufficiency"]
        judge["fields"][0][0] = "asked"
        del fields["program"]["structure"][-1]
        fields["models"] |= {"embedder": "sha256:0", "reader": f"sha256:{'5' * 64}"}
        fields["points"] |= {f"odd {n}": {name: value} for n, (name, value) in enumerate(ODD)}

    with pytest.raises(IntegrityError) as error:
        changed(
            manifest, lambda p: (p["policy.sentences"].update(value=-3), p.pop("judge.missing"), p.update(other={}))
        )
    for part in (
        "missing here: judge.sufficiency(asked: str (in)", "missing in the artifact: judge.sufficiency(question: str (in)",
        "missing in the artifact: knob policy.", "embedder sha256:0 there", "reader sha256:55555555 there",
        "policy.sentences is -3, outside [1, 6]", "its state has no judge.missing", "its state has a surplus other",
        "policy.k is 13 at odd 1, outside [2, 12]", *(f" at odd {n}" for n in range(len(ODD) - 1)),
        "unknown setting at odd 8: policy.unheard_of",
    ):  # fmt: skip
        assert part in error.value.what
    assert "ragc compile" in error.value.mend
    with pytest.raises(IntegrityError, match="the order of the predictors differs"):
        changed(lambda fields: fields["program"]["structure"].reverse())
    with pytest.raises(IntegrityError, match="compiled with the embedding model acme/e5, the project names local") as e:
        changed(lambda fields: fields["models"].update(embed="acme/e5"))
    assert 'embed = "acme/e5"' in e.value.mend and "ragc index" in e.value.mend


def test_knowledge_that_changed_since_is_answered_from_with_a_warning(own_shop, compiled, caplog):
    page = own_shop / "knowledge/product/kettles.md"
    page.write_text(page.read_text().replace("1000 watts", "1234 watts"))
    with caplog.at_level(logging.WARNING, logger="ragc"):
        rag = load("shop@v2", artifacts=compiled / "artifacts", project=own_shop)
    assert "shop@v2 was compiled over other documents, or another reading of them" in caplog.text
    assert any("1234" in passage.text for passage in rag.runtime.library.passages())


@pytest.mark.parametrize(("here", "told"), [("3.4.1", False), ("3.4.9", False), ("3.5.0", True), ("4.0.0", True)])
def test_another_release_of_what_answers_is_told_on_load(compiled, monkeypatch, caplog, here, told):
    sealed = resolve("shop@v2", compiled / "artifacts").section("env")
    assert sealed["dspy"].startswith("3.4.")
    monkeypatch.setattr("ragc.serve.opening.version", {**sealed, "dspy": here}.__getitem__)
    with caplog.at_level(logging.WARNING, logger="ragc"):
        load("shop@v2", artifacts=compiled / "artifacts", project=compiled)
    assert (f"shop@v2 was sealed under dspy {sealed['dspy']} (here {here})" in caplog.text) is told


@pytest.fixture
def keyless(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    return monkeypatch


def test_a_model_without_its_key_is_refused_and_another_than_at_compile_time_is_told(compiled, keyless, caplog):
    keyless.setenv("RAGC_MODELS__WRITE", "openai/gpt-4o-mini")
    with pytest.raises(ModelError, match=r"write.*OPENAI_API_KEY"):
        load("shop@v2", artifacts=compiled / "artifacts")
    keyless.setenv("OPENAI_API_KEY", "none")
    with caplog.at_level(logging.WARNING, logger="ragc"):
        load("shop@v2", artifacts=compiled / "artifacts")
    assert "shop@v2 was compiled with write = local/reader and runs with openai/gpt-4o-mini." in caplog.text


def test_verify_tells_what_keeps_a_version_from_loading_and_a_broken_project_is_not_told_to_be_lost(
    changed, compiled, tmp_path
):
    with pytest.raises(IntegrityError):
        changed(lambda fields: fields["points"]["economy"].update({"policy.k": 99}))
    checked = registry.verify_by_loading("shop@v1", tmp_path / "artifacts", compiled)
    assert "policy.k is 99 at economy" in checked.problems[0] and "ragc compile" in checked.mend
    assert registry.verify_version("shop@v1", tmp_path / "artifacts").sound, "its bytes are as they were sealed"
    assert registry.verify_by_loading("shop@v2", compiled / "artifacts").sound
    lost = registry.verify_by_loading("shop@v1", tmp_path / "artifacts")
    assert lost.sound and "is not at" in lost.note
    moved = shutil.copytree(compiled, tmp_path / "moved")
    (moved / "ragc.toml").write_text("name = [", encoding="utf-8")
    with pytest.raises(SettingsError, match=r"ragc\.toml") as stop:
        load("shop@v1", artifacts=moved / "artifacts")
    assert "is not at" not in stop.value.what


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


def test_a_version_that_was_replaced_leaves_its_library_and_its_features_to_be_freed(compiled, root):
    def count_kept():
        gc.collect()
        kinds = (Library, WordRarity)
        return [sum(type(found) is kind for found in gc.get_objects()) for kind in kinds]

    def ask_and_replace(times):
        for _ in range(times):
            load("shop@v2", artifacts=root, project=compiled)(QUESTION)
        return count_kept()

    assert ask_and_replace(4) == ask_and_replace(4) == count_kept()


def test_a_version_that_is_followed_no_more_is_freed_though_a_server_froze_it(rag, root):
    before = weakref.ref(rag.current)
    gc.freeze()
    try:
        promote_version("shop@v2", "production", root=root)
        assert rag(QUESTION).version == "shop@v2" and before() is None
        assert gc.get_freeze_count(), "what is open is frozen again"
    finally:
        gc.unfreeze()


def test_a_version_that_does_not_load_is_told_once_and_taken_up_when_it_is_mended(rag, root, caplog, monkeypatch):
    promote_version("shop@v2", "production", root=root)
    (file,) = (root / "shop/versions").glob("v2-*/program.json")
    sound = file.read_bytes()
    file.write_bytes(sound[:-1] + b" ")
    with caplog.at_level(logging.WARNING, logger="ragc.serve.follow"):
        assert [rag(QUESTION).version for _ in range(3)] == ["shop@v1"] * 3
        monkeypatch.setattr(follow, "RETRY_SECONDS", 0.0)
        rag._retry_at = 0.0
        assert rag(QUESTION).version == "shop@v1"
    (told,) = caplog.messages
    assert "shop@production moved" in told and "program.json was changed" in told
    file.write_bytes(sound)
    assert [rag(QUESTION).version for _ in range(2)] == ["shop@v2"] * 2


@pytest.mark.parametrize("ref", ["shop@v1", "./somewhere"])
def test_what_never_moves_cannot_be_followed(ref, root, compiled):
    with pytest.raises(VersionError):
        load(ref, artifacts=root, project=compiled, follow=True)
    with pytest.raises(VersionError, match="no shop@canary"):
        load("shop@canary", artifacts=root, project=compiled, follow=True)


def test_many_threads_asking_while_the_alias_moves_get_whole_answers_of_one_version(rag, root, compiled):
    def whole(answer):
        return answer.text, answer.confidence, answer.trace.path

    def ask(n):
        if n == 10:
            promote_version("shop@v2", "production", root=root)
        return rag(QUESTION)

    alone = {v: whole(load(v, artifacts=root, project=compiled)(QUESTION)) for v in ("shop@v1", "shop@v2")}
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(ask, range(60)))
    assert {a.version for a in answers} == {*alone} and all(whole(a) == alone[a.version] for a in answers)
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
