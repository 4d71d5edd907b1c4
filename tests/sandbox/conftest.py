"""Sandboxes for the tests: at whatever level this machine gives, so that they run anywhere."""

import pytest

from tipprobe.sandbox import IsolationError, Sandbox


@pytest.fixture(scope="session")
def sandbox():
    with Sandbox(workers=1, min_isolation="process") as pool:
        yield pool


@pytest.fixture(scope="session", params=["process", "seccomp", "landlock", "namespaces"])
def at_level(request):
    """One sandbox per level; levels this machine does not have are skipped."""
    with Sandbox(workers=1, min_isolation=request.param, max_isolation=request.param) as pool:
        try:
            pool.isolation  # noqa: B018 - proves the level
        except IsolationError as error:
            pytest.skip(str(error))
        yield pool
