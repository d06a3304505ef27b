"""What was fitted to demonstrations earlier, on disk by their digests: a cache that may be deleted at any time."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from program.storage import DiskCache


class HeadFile:
    """A file of named arrays, as safetensors, that several processes may read and add to.

    `version` names the code that fits: what other code fitted is not read. A file that cannot be read or written is
    left alone: the cost is time.
    """

    def __init__(self, folder: Path, version: str) -> None:
        self.path = folder / "fitted.sqlite"
        self._file = DiskCache(self.path)
        self._version = version

    def close(self) -> None:
        """Lets go of the file, which must not be open when this process forks; the next use opens it anew."""
        self._file.close()

    def get(self, *keys: str) -> dict[str, NDArray[Any]]:
        """All arrays kept under those keys; none when a key lacks its own, or they are damaged."""
        from safetensors import SafetensorError
        from safetensors.numpy import load

        kept = self._file.get([self._key(key) for key in keys])
        try:
            return {} if len(kept) < len(keys) else {n: a for part in kept.values() for n, a in load(part).items()}
        except SafetensorError:
            return {}

    def put(self, arrays: Mapping[str, Mapping[str, NDArray[Any]]]) -> None:
        """Keeps arrays by key, but for those that are there already."""
        from safetensors.numpy import save

        new = {self._key(key): save(dict(named)) for key, named in arrays.items()}
        kept = self._file.get(list(new))
        if new := {key: content for key, content in new.items() if kept.get(key) != content}:
            self._file.put(new)

    def _key(self, key: str) -> str:
        return f"{self._version} {key}"
