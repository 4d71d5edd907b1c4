"""One sandbox for the tests of problems that are graded in process."""

import pytest

from tipprobe.sandbox import Sandbox


@pytest.fixture(scope="session")
def sandbox():
    with Sandbox(1, min_isolation="process") as pool:
        yield pool
