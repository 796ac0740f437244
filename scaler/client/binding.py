"""Writing constants into a call, and taking large values out of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from scaler.client.nodes import Call, Key, is_large


class Binder:
    """Turns calls whose dependencies are not all rows into steps whose are."""

    def __init__(self, rows: Mapping[Key, int], constants: Mapping[Key, Any], targets: Mapping[Key, Key]) -> None:
        self._rows = rows
        self._constants = constants
        self._targets = targets
        #: large values, each once
        self.shared: list[Any] = []
        #: id of a shared value -> its (negative) number as a dependency
        self._numbers: dict[int, int] = {}

    def bind(self, key: Key, call: Call) -> tuple[tuple[Any, ...], list[int]]:
        """Return the call as a step, and what it still depends on: rows, and shared values as negative numbers."""
        needed: dict[int, int] = {}
        values: list[tuple[bool, Any]] = []
        for name in call.dependencies:
            name = self._targets.get(name, name)
            row = self._rows.get(name)
            if row is None and self.share(self._constants[name]):
                row = self._numbers[id(self._constants[name])]
            if row is None:
                values.append((True, self._constants[name]))
            else:
                values.append((False, needed.setdefault(row, len(needed))))
        count = len(call.dependencies)
        args: Sequence[Any] = call.args if call.args is not None else [None] * count
        fill = call.fill if call.args is not None else [number for i in range(count) for number in (i, i)]
        step = (key, *self._rewrite(call.function, args, fill, call.inner, values, needed))
        return step, list(needed)

    def share(self, value: Any) -> bool:
        """Take a value out if it is large; say whether it is."""
        if id(value) in self._numbers:
            return True
        if not is_large(value):
            return False
        self.shared.append(value)
        self._numbers[id(value)] = -len(self.shared)
        return True

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
            if place not in filled and self.share(arg):
                template[place] = None
                places += place, needed.setdefault(self._numbers[id(arg)], len(needed))
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
