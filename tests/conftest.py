"""What the tests share: quiet threads, and a small project of real files."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # else it is looked for on the network, for seconds
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # else each of hundreds of processes compiles every module for itself

import shutil
from pathlib import Path

import pytest
from filelock import FileLock
from hypothesis import settings
from xdist.plugin import pytest_xdist_auto_num_workers as one_for_each_core

settings.register_profile("quick", deadline=None, max_examples=50)  # tests do not time things
settings.load_profile("quick")


def pytest_xdist_auto_num_workers(config):
    """One more than there are cores: many tests wait for a server, a kill or a lock."""
    return int(one_for_each_core(config)) + 1


LONG = (
    "interruptions example_data looks compiler reader_training caps candidates cli programs keys search offline faults"
    " registry_crashes safety"
).split()
"""The files that take longest, longest first: one that began last would be waited for by every other worker."""


def pytest_collection_modifyitems(items):
    places = {f"test_{name}.py": place for place, name in enumerate(LONG)}
    items.sort(key=lambda item: places.get(item.path.name, len(LONG)))


def write_shop(folder):
    """A small project of real files in a folder that is made."""
    return shutil.copytree(Path(__file__).parent / "support" / "shop", folder, dirs_exist_ok=True)


def add_toml(folder, toml):
    """Add to the settings of a project; return it opened."""
    from ragc.knowledge.project import Project

    with (folder / "ragc.toml").open("a") as file:
        file.write(f"{toml}\n")
    return Project.open(folder)


@pytest.fixture(scope="session")
def shop(tmp_path_factory):
    """A small project folder: read it, do not change it."""
    return write_shop(tmp_path_factory.mktemp("shop"))


@pytest.fixture
def own_shop(tmp_path):
    """A small project folder of the test's own."""
    return write_shop(tmp_path / "shop")


@pytest.fixture
def spans(monkeypatch):
    """The OpenTelemetry spans that were exported so far."""
    sdk = pytest.importorskip("opentelemetry.sdk.trace")
    from opentelemetry import trace
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter, provider = InMemorySpanExporter(), sdk.TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    return exporter.get_finished_spans


@pytest.fixture(scope="session")
def compiled(tmp_path_factory, worker_id):
    """A small project that was compiled: versions v1 (uncompiled) and v2 are in its artifacts folder.

    The worker that needs it first compiles it, and the others copy that.
    """
    from ragc.knowledge.project import Project
    from ragc.optimize.compiler.compile import compile_project

    folder = tmp_path_factory.mktemp("compiled")
    run = folder if worker_id == "master" else tmp_path_factory.getbasetemp().parent
    made = run / "made"
    with FileLock(run / "made.lock"):
        if not (made / "artifacts").exists():
            compile_project(Project.open(write_shop(made)))
    return shutil.copytree(made, folder / "shop")
