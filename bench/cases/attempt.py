"""A figure that an engine may fail at without the rest of its case."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from bench.results import Sample


def attempt(figure: str, engine: str, measure: Callable[[], Iterator[Sample]]) -> Iterator[Sample]:
    """The samples of `measure`; one without a value, noting the error, where it fails."""
    try:
        yield from measure()
    except Exception as error:
        print(f"{figure} on {engine}: {type(error).__name__}: {error}")
        yield Sample(figure, engine, None, 0, f"fails: {type(error).__name__}")
