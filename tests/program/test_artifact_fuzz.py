"""A version whose content was damaged before it was sealed: each reader reads it, or says in a sentence that it cannot."""

import hashlib
import json
import re
import shutil
import sys
from contextlib import suppress

import numpy as np
import pytest
import safetensors.numpy as safetensors
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ragc import Outcome, load
from ragc.errors import IntegrityError, RagcError
from ragc.optimize.cli.main import main

BLANK = "0" * 64
ODD = 'null true -1 0 2 1e308 1e999 NaN "" "v2" "\\ud800" [] [[]] {} {"value":"x"} , \xff'.encode("latin-1").split(b" ")
SCALAR = re.compile(rb'"(?:[^"\\]|\\.)*"|-?[0-9][0-9.eE+-]*|true|false|null')
CONTAINER = re.compile(rb"\{[^{}]*\}|\[[^\[\]]*\]|[{}\[\],:]")
READERS = {
    "manifest.json": ("ask", "ls", "show shop@v2", "ls shop", "diff shop@v1 shop@v2"),
    "program.json": ("ask", "diff shop@v1 shop@v2"),
    "scores.jsonl": ("compare shop@v1 shop@v2",),
    "heads.safetensors": ("ask",),
}


@st.composite
def damaged(draw, content, name):
    """The bytes of a file in which one or two values, keys, tables or signs are others, or gone."""
    length = int.from_bytes(content[:8], "little") if name.endswith(".safetensors") else len(content)
    start = 8 if name.endswith(".safetensors") else 0
    text = content[start : start + length]
    for _ in range(draw(st.integers(1, 2))):
        found = [*draw(st.sampled_from([SCALAR, CONTAINER])).finditer(text)]
        if found:
            at = draw(st.sampled_from(found))
            text = text[: at.start()] + draw(st.sampled_from([b"", *ODD])) + text[at.end() :]
    return len(text).to_bytes(8, "little") + text + content[8 + length :] if start else text


def sealed(folder, contents):
    """A new folder of a version with these files, whose digests and seal are right wherever the manifest lets them be."""
    manifest = contents["manifest.json"]
    with suppress(ValueError, TypeError, KeyError, AttributeError):
        fields = json.loads(manifest)
        for entry in fields["files"]:
            if entry["path"] in contents:
                content = contents[entry["path"]]
                entry |= {"size": len(content), "digest": "sha256:" + hashlib.sha256(content).hexdigest()}
        if "seal" in fields:
            fields["seal"] = f"sha256:{BLANK}"
        blank = json.dumps(fields, indent=2).encode()
        manifest = blank.replace(BLANK.encode(), hashlib.sha256(blank).hexdigest().encode())
    place = folder / f"v2-{hashlib.sha256(manifest).hexdigest()[:8]}"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    for name, content in {**contents, "manifest.json": manifest}.items():
        (place / name).write_bytes(content)
    return place


@pytest.fixture(scope="module")
def root(compiled, tmp_path_factory):
    """An artifacts folder with the first version of a project, for a second to be put beside."""
    root = tmp_path_factory.mktemp("damaged")
    (first,) = (compiled / "artifacts/shop/versions").glob("v1-*")
    shutil.copytree(first, root / "shop/versions" / first.name)
    return root


@pytest.fixture(scope="module")
def files(compiled):
    (folder,) = (compiled / "artifacts/shop/versions").glob("v2-*")
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def read(root, files, compiled, monkeypatch, capfd):
    """Reads a version with another file in the place of its own; a `RagcError` may come of it, and nothing else."""

    def ragc(*arguments):
        monkeypatch.setattr(sys, "argv", ["ragc", *arguments, "--artifacts", str(root), "--debug"])
        with pytest.raises(SystemExit):
            main()

    def ask():
        answer = load("shop@v2", artifacts=root, project=compiled)("How long may I ask for my money back?")
        assert isinstance(answer.outcome, Outcome) and 0.0 <= answer.confidence <= 1.0

    def read(name, content, reader):
        place = sealed(root / "shop/versions", {**files, name: content})
        try:
            ask() if reader == "ask" else ragc(*reader.split())
        except RagcError as error:
            return error
        finally:
            shutil.rmtree(place)

    return read


@settings(max_examples=12, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_whatever_is_damaged_a_reader_reads_it_or_says_that_it_cannot(files, read, data):
    name = data.draw(st.sampled_from(sorted(READERS)))
    content = data.draw(damaged(files[name], name))
    error = read(name, content, data.draw(st.sampled_from(READERS[name])))
    assert error is None or (error.what and error.mend)


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("program.json", b"{", b""), ("program.json", b'"value": 1', b'"value": 1e999'),
        ("program.json", b'"value": 1', b'"value": NaN'), ("manifest.json", b'"fields":', b'"field":'),
        ("manifest.json", b'"structure": [', b'"structure": [7,'),
        ("heads.safetensors", b'"dtype":"F', b'"dtype":"G'), ("heads.safetensors", b'"head.', b'"nose.'),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_an_error_of_integrity(files, read, name, old, new):
    assert old in files[name]
    content = files[name].replace(old, new, -1 if name.endswith("safetensors") else 1)
    assert isinstance(read(name, content, "ask"), IntegrityError)


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_heads_of_what_is_no_number_are_refused(files, read, number):
    arrays = safetensors.load(files["heads.safetensors"])
    odd = {name: np.full_like(a, number) if a.dtype.kind == "f" else a for name, a in arrays.items()}
    assert isinstance(read("heads.safetensors", safetensors.save(odd), "ask"), IntegrityError)
