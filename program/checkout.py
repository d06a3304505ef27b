"""At the root of a checkout its folders can be imported too: `program` is `ragc`, and `optimize` is `ragc.optimize`.

No module is loaded twice: whatever is imported under a folder's name is the module of the package.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any


class _Folder(MetaPathFinder, Loader):
    """Finds the modules of a folder in the package that it is."""

    def __init__(self, folder: str, package: str) -> None:
        self.folder, self.package = folder, package

    def find_spec(self, fullname: str, *_: object) -> ModuleSpec | None:
        """Return a spec for a module within the folder, and for no other."""
        return ModuleSpec(fullname, self) if fullname.startswith(f"{self.folder}.") else None

    def exec_module(self, module: ModuleType) -> None:
        """Put the package's module in the place of one just made."""
        sys.modules[module.__name__] = import_module(module.__name__.replace(self.folder, self.package, 1))

    def get_code(self, fullname: str) -> Any:
        """Return a module's code, which `python -m` runs."""
        spec: Any = find_spec(fullname.replace(self.folder, self.package, 1))
        return spec.loader.get_code(spec.name)


def import_as(folder: str, package: str) -> None:
    """Let a folder's name stand for the package that it is."""
    sys.meta_path.insert(0, _Folder(folder, package))
    sys.modules[folder] = import_module(package)
