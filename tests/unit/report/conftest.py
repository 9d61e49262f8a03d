"""The shop's tables, written once: nobody changes them."""

import pytest

from tests.report.tables import shop, write_tables


@pytest.fixture(scope="session")
def rows():
    return shop()


@pytest.fixture(scope="session")
def tables(rows, tmp_path_factory):
    return write_tables(tmp_path_factory.mktemp("tables"), rows)
