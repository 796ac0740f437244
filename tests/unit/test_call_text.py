"""Calls that options name."""

import pytest

from scaler.common.call_text import CallText
from scaler.config import AgentConfig, OptionError


@pytest.mark.parametrize(
    ("text", "value"),
    [("builtins:abs(-2)", 2), ("os.path:join('a', 'b')", "a/b"), ("builtins:dict", {}), ("json:loads('[1]')", [1])],
)
def test_a_call_is_made(text, value):
    assert CallText.parse(text).call() == value


@pytest.mark.parametrize("text", ["", "abs", "abs(1)", ":abs", "m:", "m:f(x)", "m:f(1", "m n:f", "m:f()()", "m:1"])
def test_what_is_no_call_is_an_error_that_says_the_form(text):
    with pytest.raises(OptionError, match=r"preload is no call: .*module:function"):
        AgentConfig("tcp://127.0.0.1:1", preload=text)
