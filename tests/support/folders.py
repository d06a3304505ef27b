"""Shows import-linter the package as it is installed: the folder `program` is `ragc`, and `optimize` is within it."""

from pathlib import Path

from grimp.adaptors.packagefinder import ImportLibPackageFinder
from grimp.application.config import settings
from importlinter.contracts.protected import ProtectedContract

__all__ = ["ProtectedContract"]

ROOT = Path(__file__).parents[2]


class Folders(ImportLibPackageFinder):
    def determine_package_directories(self, package_name, file_system):
        assert package_name == "ragc"
        return {str(ROOT / "program"), str(ROOT / ".paths" / "optimize" / "ragc")}


settings.configure(PACKAGE_FINDER=Folders())  # import-linter reads this file for the contract, before any package
