"""Writing constants into a call, and taking out of it large values and what stands for values in the cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from scaler.graph.nodes import Call, Key, is_large
from scaler.graph.remote_value import RemoteValue


class Binder:
    """Turns calls whose dependencies are not all rows into steps whose are."""

    def __init__(
        self, places: Mapping[Key, int], rows: Sequence[int], targets: Mapping[Key, Key], constants: Mapping[Key, Any]
    ) -> None:
        self._places = places
        self._rows = rows
        self._targets = targets
        self._constants = constants
        #: large values and what stands for one in the cluster, each once
        self.shared: list[Any] = []
        #: id of a value -> its (negative) number as a dependency; 0 if it is not large
        self._numbers: dict[int, int] = {}

    def bind(self, key: Key, call: Call) -> tuple[tuple[Any, ...], tuple[int, ...]]:
        """Return the call as a step, and what it still depends on: rows, and shared values as negative numbers."""
        needed: dict[int, int] = {}
        values: list[tuple[bool, Any]] = []
        for name in call.dependencies:
            name = self._targets.get(name, name)
            if name in self._places:
                row = self._rows[self._places[name]]
            else:
                value = _here(self._constants[name])
                row = self.share(value)
                if not row:
                    values.append((True, value))
                    continue
            values.append((False, needed.setdefault(row, len(needed))))
        count = len(call.dependencies)
        args: Sequence[Any] = call.args if call.args is not None else [None] * count
        fill = call.fill if call.args is not None else [number for i in range(count) for number in (i, i)]
        step = (key, *self._rewrite(call.function, args, fill, call.inner, values, needed))
        return step, tuple(needed)

    def share(self, value: Any) -> int:
        """Take a value out if it is large, or in the cluster; its number as a dependency, or 0."""
        number = self._numbers.get(id(value))
        if number is None:
            number = 0
            if is_large(value):
                self.shared.append(value)
                number = -len(self.shared)
            self._numbers[id(value)] = number
        return number

    def _rewrite(
        self,
        function: Any,
        args: Sequence[Any],
        fill: Sequence[int],
        inner: Any,
        values: Sequence[tuple[bool, Any]],
        needed: dict[int, int],
    ) -> tuple[Any, ...]:
        """Return (function, args, fill, inner) with constants in place and large arguments as dependencies."""
        template = list(args)
        places: list[int] = []
        filled = set(fill[::2])
        filled.update(place for place, _ in inner)
        for place, arg in enumerate(template):
            if place in filled:
                continue
            template[place] = arg = _here(arg)
            if number := self.share(arg):
                template[place] = None
                places += place, needed.setdefault(number, len(needed))
        for place, index in zip(fill[::2], fill[1::2], strict=True):
            is_constant, value = values[index]
            if is_constant:
                template[place] = value
            else:
                places += place, value
        calls = []
        for place, (inner_function, inner_args, inner_fill, deeper) in inner:
            calls.append((place, self._rewrite(inner_function, inner_args, inner_fill, deeper, values, needed)))
        return function, tuple(template), tuple(places), tuple(calls)


def _here(value: Any) -> Any:
    return value.value_or_self() if isinstance(value, RemoteValue) else value
