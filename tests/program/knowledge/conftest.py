import shutil
from pathlib import Path

import pytest
from word_embedder import WordEmbedder

from ragc.settings import DocumentsSettings, WebSettings


@pytest.fixture
def embedder():
    return WordEmbedder()


@pytest.fixture
def knowledge(tmp_path):
    return shutil.copytree(Path(__file__).parent / "pages", tmp_path / "knowledge")


@pytest.fixture
def bases(knowledge):
    pages = {name: str(knowledge / name) for name in ("product", "billing", "web")}
    return {
        "product": DocumentsSettings(path=pages["product"], about="devices and plans", asks=("Which plan?",)),
        "billing": DocumentsSettings(path=pages["billing"], about="refunds, invoices", not_=("plans: product",)),
        "web": WebSettings(kind="web", path=pages["web"], about="dated pages"),
    }


@pytest.fixture
def write(tmp_path):
    """Writes one file of the folder `base` and returns that folder."""

    def write_file(name, content):
        file = tmp_path / "base" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)
        return tmp_path / "base"

    return write_file
