import shutil
from pathlib import Path

import pytest
from word_embedder import WordEmbedder

from program.knowledge.ingest.folder import BaseSpec


@pytest.fixture
def embedder():
    return WordEmbedder()


@pytest.fixture
def knowledge(tmp_path):
    return shutil.copytree(Path(__file__).parent / "pages", tmp_path / "knowledge")


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
