import pytest
from hypothesis import settings
from word_embedder import WordEmbedder

from program.knowledge.ingest.folder import BaseSpec

settings.register_profile("shared machine", deadline=None)  # other work on it is no failure
settings.load_profile("shared machine")

FILES = {
    "product/plans.md": """\
---
title: Plans
as_of: 2026-03-01
authority: official
---
# Plans

Every plan covers one site.

## Home Plus

Home Plus costs GBP 4.50 a month and keeps video for 14 days.

## Pro

Pro costs GBP 19 a month, for small landlords and shops, and keeps video for 30 days.
""",
    "product/batteries.md": """\
---
as_of: 2025-06-01
authority: informal
---
# Batteries

## How long they last

Four AA cells run a Warden lock for about nine months.

## Changing them

Slide the cover down and keep the door open while you change the cells.
""",
    "billing/refunds-2024.md": """\
---
title: Refunds
as_of: 2024-01-10
authority: official
---
# Refunds

## Prorated refunds

A yearly plan is refunded for unused months within 14 days of asking.
""",
    "billing/refunds.md": """\
---
title: Refunds
as_of: 2026-03-01
authority: official
supersedes: billing/refunds-2024.md
---
# Refunds

## Prorated refunds

A yearly plan is refunded for unused months within 30 days of asking.

## Invoices

Invoices are sent by email on the first day of the month.
""",
    "web/2026-11-03-outage.md": """\
# Remote unlock outage

Remote unlock was down for two hours on 3 November 2026.

## Cause

A hosting fault in Oslo stopped the lock command relay.
""",
}


@pytest.fixture
def embedder():
    return WordEmbedder()


@pytest.fixture
def knowledge(tmp_path):
    root = tmp_path / "knowledge"
    for name, text in FILES.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    return root


@pytest.fixture
def bases(knowledge):
    return [
        BaseSpec("product", path=knowledge / "product", about="devices and plans", asks=("Which plan?",)),
        BaseSpec("billing", path=knowledge / "billing", about="refunds, invoices", not_=("plans: product",)),
        BaseSpec("web", kind="web", path=knowledge / "web", about="dated pages"),
    ]


@pytest.fixture
def write(tmp_path):
    """Writes one file of the folder `base` and returns that folder."""

    def write_file(name, content):
        file = tmp_path / "base" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)
        return tmp_path / "base"

    return write_file
