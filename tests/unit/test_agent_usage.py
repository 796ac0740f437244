"""When the agent looks at its workers: soon after they get rows, often while they run some, seldom otherwise."""

import pytest

from scaler.agent.usage import BUSY, FIRST, QUIET, Usage


@pytest.fixture
def usage(tmp_path):
    usage = Usage()
    usage.sample({}, {}, 100.0, str(tmp_path))
    return usage


def test_a_row_that_comes_is_looked_at_soon(usage):
    assert usage.due == 100.0 + QUIET
    usage.note(True, 100.2)
    assert usage.due == 100.2 + FIRST


def test_while_rows_run_looks_follow_each_other(usage, tmp_path):
    usage.note(True, 100.2)
    usage.sample({}, {}, 100.25, str(tmp_path))
    assert usage.due == 100.25 + BUSY
    usage.note(True, 100.3)
    assert usage.due == 100.25 + BUSY


def test_a_short_row_is_not_looked_at(usage):
    usage.note(True, 100.2)
    usage.note(False, 100.201)
    assert usage.due == 100.0 + QUIET
