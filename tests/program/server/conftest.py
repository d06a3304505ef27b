"""A server over a small project that was never compiled."""

import pytest

from tests.conftest import write_shop
from tests.serving import serving


@pytest.fixture(scope="session")
def shop_folder(tmp_path_factory):
    return write_shop(tmp_path_factory.mktemp("served"))


@pytest.fixture(scope="session")
def address(shop_folder):
    """A server of a project that was never compiled."""
    with serving(shop_folder) as found:
        yield found
