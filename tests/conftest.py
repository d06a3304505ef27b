"""What the tests share: quiet threads, and a small project of real files."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from xdist.plugin import pytest_xdist_auto_num_workers as one_for_each_core

settings.register_profile("untimed", deadline=None)  # tests do not time things
settings.load_profile("untimed")


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """One more than there are cores: many tests wait for a server, a kill or a lock."""
    return int(one_for_each_core(config)) + 1


LONG = (
    "test_interruptions.py",
    "test_compiler.py",
    "test_candidates.py",
    "test_safety.py",
    "test_faults.py",
    "test_fanout.py",
    "test_offline.py",
    "test_registry_crashes.py",
    "test_cli_compile.py",
    "test_looks.py",
    "test_cli.py",
    "test_processes.py",
    "test_lead.py",
    "test_keys.py",
    "test_artifact_fuzz.py",
)
"""The files that take longest, longest first: one that began last would be waited for by every other worker."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    places = {name: place for place, name in enumerate(LONG)}
    items.sort(key=lambda item: places.get(item.path.name, len(LONG)))


TOML = """name = "shop"
artifacts = "artifacts"

[knowledge.product]
path = "knowledge/product"
about = "kettles: sizes, power, how to clean them"
asks = ["How much water does the kettle hold?"]

[knowledge.billing]
path = "knowledge/billing"
about = "prices, refunds and invoices"
asks = ["How long do I have to ask for my money back?"]
"""
DOCUMENTS = {
    "product/kettles.md": """---
title: Kettles
as_of: 2026-01-01
authority: official
---
# Kettles
## Capacity
The Merle kettle holds 1.7 litres and the Wren kettle holds 0.8 litres.

## Descaling
Descale the kettle every 6 weeks with citric acid. Rinse it twice afterwards.

## Power
The Merle draws 2200 watts. The Wren draws 1000 watts, so it suits caravans.
""",
    "billing/refunds.md": """---
title: Refunds
as_of: 2026-03-01
authority: official
supersedes: billing/refunds-2024.md
---
# Refunds
## Money back
You can ask for your money back within 30 days of delivery. We pay it to the card you used.

## Business customers
Companies have 10 days to return a kettle, and pay a restocking fee of GBP 5.
""",
    "billing/refunds-2024.md": """---
title: Refunds
as_of: 2024-03-01
authority: official
---
# Refunds
## Money back
You can ask for your money back within 14 days of delivery.
""",
}
LABELLED = """\
{"id":"q1","question":"How much water does the Merle hold?","topic":"capacity","outcome":"answered","route":"simple","sources":["product"],"evidence":["product/kettles.md#capacity"],"facts":["1.7 litres"],"split":"train"}
{"id":"q2","question":"What is 12 times 12?","topic":"sums","outcome":"answered","route":"direct","facts":["144"],"split":"train"}
{"id":"q3","question":"How often should the kettle be descaled?","topic":"descaling","outcome":"answered","route":"simple","sources":["product"],"evidence":["product/kettles.md#descaling"],"facts":["6 weeks"],"split":"train"}
{"id":"q4","question":"Does the kettle come in green?","topic":"descaling","outcome":"abstain","route":"simple","sources":["product"],"split":"train"}
{"id":"q5","question":"How many days do I have to get my money back?","topic":"refunds","outcome":"answered","route":"simple","sources":["billing"],"evidence":["billing/refunds.md#money-back"],"facts":["30 days"],"not_facts":["14 days"],"split":"test"}
{"id":"q6","question":"How many watts does the Wren draw?","topic":"power","outcome":"answered","route":"simple","sources":["product"],"evidence":["product/kettles.md#power"],"facts":["1000 watts"],"split":"dev"}
"""


@pytest.fixture(scope="session")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small project folder: read it, do not change it."""
    return write_shop(tmp_path_factory.mktemp("shop"))


@pytest.fixture
def own_shop(tmp_path: Path) -> Path:
    """A small project folder of the test's own."""
    return write_shop(tmp_path / "shop")


def write_shop(folder: Path) -> Path:
    for name, text in DOCUMENTS.items():
        place = folder / "knowledge" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")
    (folder / "ragc.toml").write_text(TOML, encoding="utf-8")
    (folder / "labelled.jsonl").write_text(LABELLED, encoding="utf-8")
    return folder


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Callable[[], Sequence[Any]]:
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
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small project that was compiled: versions v1 (uncompiled) and v2 are in its artifacts folder."""
    from optimize.compiler.compile import compile_project
    from program.knowledge.project import Project

    folder = write_shop(tmp_path_factory.mktemp("compiled"))
    compile_project(Project.open(folder), trials=6)
    return folder
