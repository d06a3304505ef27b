"""What was computed of texts, kept on disk."""

import pytest

from program.storage import DiskCache


@pytest.fixture
def path(tmp_path):
    return tmp_path / "vectors.sqlite"


def test_what_was_put_is_there_for_another_reader(path):
    DiskCache(path).put({"a": b"1", "half \ud800 a character": b"2"})
    assert DiskCache(path).get(["a", "b", "half \ud800 a character"]) == {"a": b"1", "half \ud800 a character": b"2"}


def test_a_full_file_keeps_what_comes_and_lets_the_older_half_go(path):
    file = DiskCache(path, most=400_000)
    earlier = {str(n): bytes(1_000) for n in range(500)}
    file.put(earlier)
    file.put({"last": b"new"})
    assert file.get(["0", "499", "last"]) == {"499": earlier["499"], "last": b"new"}
    for n in range(20):
        file.put({f"{n} {k}": bytes(1_000) for k in range(100)})
    assert path.stat().st_size < 1_000_000


@pytest.mark.parametrize("content", [b"", b"no database" * 200])
def test_a_file_that_cannot_be_read_costs_time_only(path, content):
    path.write_bytes(content)
    file = DiskCache(path)
    file.put({"a": b"1"})
    assert file.get(["a"]) == ({} if content else {"a": b"1"})


def test_what_is_put_again_takes_the_place_of_what_was_kept(path):
    file = DiskCache(path)
    file.put({"a": b"damaged"})
    file.put({"a": b"whole"})
    assert file.get(["a"]) == {"a": b"whole"}


def test_a_closed_file_is_opened_anew_when_it_is_used(path):
    file = DiskCache(path)
    assert not path.exists()
    file.put({"a": b"1"})
    file.close()
    assert not path.with_name(f"{path.name}-wal").exists()  # the last connection is gone
    assert file.get(["a"]) == {"a": b"1"}
