"""Warnings of tasks, issued again where the caller sees them."""

from __future__ import annotations

import json
import warnings

import pytest

from scaler.client.task_warnings import TaskWarnings


class Plain(UserWarning):
    pass


class OfTwo(UserWarning):
    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code}: {text}")


class Formatting(UserWarning):
    def __init__(self, code: int) -> None:
        super().__init__(f"code {code}")


class Stubborn(FutureWarning):
    """Has no text without its constructor."""

    def __init__(self, code: int, *, text: str) -> None:
        self.code, self.text = code, text

    def __str__(self) -> str:
        return f"{self.code}: {self.text}"


@pytest.mark.parametrize(
    ("warning", "comes_as"),
    [
        (Plain("so"), Plain),
        (OfTwo(1, "so"), OfTwo),
        (Formatting(1), Formatting),
        (Stubborn(1, text="so"), FutureWarning),
        (RuntimeWarning(), RuntimeWarning),
        (RuntimeWarning("a", 2), RuntimeWarning),
    ],
)
def test_a_warning_comes_with_its_text_whatever_its_constructor_takes(
    warning: Warning, comes_as: type[Warning]
) -> None:
    known, kind = TaskWarnings(), type(warning)
    known.add(json.dumps([kind.__module__, kind.__qualname__, str(warning), "there.py", 7]))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        known.issue()
    assert [(type(each.message), str(each.message), each.lineno) for each in caught] == [(comes_as, str(warning), 7)]


@pytest.mark.parametrize(
    "text", ["", "{", "[" * 100_000, "3", "[1, 2]", '["m", "n", 3, "file", 1]', '["m", "n", "text", "file", null]']
)
def test_what_is_no_warning_is_passed_over_and_the_next_one_comes(text: str) -> None:
    """A task may have written over what its worker says."""
    of_tasks = TaskWarnings()
    of_tasks.add(text)
    of_tasks.add(json.dumps(["builtins", "UserWarning", "so", "task.py", 3]))
    with pytest.warns(UserWarning, match="^so$"):
        of_tasks.issue()
