"""Arguments that a function can't be called with are refused, and no others: only what its own code says counts."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import unittest.mock
from collections import namedtuple
from typing import Any

import pytest

from scaler.client.core.fitting import refuse_misfit


def two(a: Any, b: Any = 0) -> Any: ...


def one(a: Any) -> Any: ...


def keyword(a: Any, *, b: Any) -> Any: ...


def anything(*args: Any, **kwargs: Any) -> Any: ...


@functools.wraps(two)
def wrapped(connection: Any, *args: Any) -> Any: ...


@functools.wraps(anything)
def narrower(a: Any) -> Any: ...


def declared(*args: Any) -> Any: ...


declared.__signature__ = inspect.signature(one)  # type: ignore[attr-defined]


class Plain:
    def __init__(self, a: Any, b: Any = 0) -> None: ...

    def method(self, a: Any) -> None: ...

    @classmethod
    def of_class(cls, a: Any) -> None: ...

    @staticmethod
    def static(a: Any) -> None: ...

    def __call__(self, a: Any) -> None: ...


class Child(Plain): ...


class Empty: ...


class Made:
    def __new__(cls, a: Any) -> Made:
        return object.__new__(cls)


class Both(Plain):
    def __new__(cls, *args: Any) -> Any: ...


class Meta(type):
    def __call__(cls, *args: Any, **kwargs: Any) -> Any: ...


class OfMeta(metaclass=Meta):
    def __init__(self) -> None: ...


class Error(Exception): ...


Point = namedtuple("Point", "x y")


@dataclasses.dataclass
class Data:
    x: int
    y: int = 0


plain = Plain(1)

FITS = [
    (two, (1,), {}), (two, (1, 2), {}), (two, (), {"a": 1}), (two, (1,), {"b": 2}),
    (keyword, (1,), {"b": 2}), (anything, (1, 2), {"c": 3}), (lambda *a, b=1: a, (1, 2), {"b": 2}),
    (wrapped, (1, 2, 3, 4), {}), (declared, (1, 2, 3), {}),
    (plain.method, (1,), {}), (Plain.method, (plain, 1), {}), (Plain.of_class, (1,), {}), (Plain.static, (1,), {}),
    (plain, (1,), {}), (Plain, (1,), {}), (Child, (1,), {"b": 2}), (Made, (1,), {}), (Empty, (), {}),
    (Point, (1,), {"y": 2}), (Data, (1,), {}),
    (functools.partial(two, 1), (2,), {}), (functools.partial(two, b=1), (2,), {"b": 3}),
    (functools.partial(plain.method), (1,), {}), (functools.partial(functools.partial(two, 1), 2), (), {}),
    (functools.partial(int, base=2), ("1",), {}),
]  # fmt: skip

MISFITS = [
    (two, (), {}), (two, (1, 2, 3), {}), (two, (1,), {"c": 1}), (two, (1,), {"a": 1}), (keyword, (1,), {}),
    (keyword, (1, 2), {}), (wrapped, (), {}), (narrower, (1, 2), {}),
    (plain.method, (), {}), (Plain.method, (plain,), {}), (Plain.of_class, (), {}), (Plain.static, (), {}),
    (plain, (), {}), (Plain, (), {}), (Child, (1, 2, 3), {}), (Made, (), {}),
    (Point, (1,), {}), (Data, (), {}),
    (functools.partial(two, 1), (2, 3), {}), (functools.partial(plain.method, 1), (1,), {}),
]  # fmt: skip

#: not known, whatever they would do
UNKNOWN = [
    len, int, dict, "".join, [].append, functools.lru_cache(two), Both, OfMeta, Error, functools.partial(len),
    functools.partial(two, 1, 2, 3), unittest.mock.Mock(), unittest.mock.create_autospec(two), declared, 5,
]  # fmt: skip


@pytest.mark.parametrize(("function", "args", "kwargs"), FITS)
def test_what_fits_is_taken(function: Any, args: Any, kwargs: Any) -> None:
    function(*args, **kwargs)
    refuse_misfit(function, "f", args, kwargs)


@pytest.mark.parametrize(("function", "args", "kwargs"), MISFITS)
def test_what_does_not_fit_is_refused_as_the_call_would_be(function: Any, args: Any, kwargs: Any) -> None:
    with pytest.raises(TypeError):
        function(*args, **kwargs)
    with pytest.raises(TypeError, match=r"^a\.name\(\) does not take these arguments: "):
        refuse_misfit(function, "a.name", args, kwargs)


@pytest.mark.parametrize("function", UNKNOWN)
def test_what_is_not_known_is_left_alone(function: Any) -> None:
    refuse_misfit(function, "f", (1, 2, 3, 4, 5, 6), {"seven": 8})
