"""Calls that options name, as `package.module:function(1, name="x")`."""

from __future__ import annotations

import ast
import importlib
from typing import Any, NamedTuple

_FORM = "the form is module:function or module:function(1, name='x'), with literals as arguments"


class CallText(NamedTuple):
    """What is to be called."""

    module: str
    function: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    @staticmethod
    def parse(text: str) -> CallText:
        """Read such a text. Raises ValueError, which says the form.

        >>> CallText.parse("numpy:seterr(all='raise')")
        CallText(module='numpy', function='seterr', args=(), kwargs={'all': 'raise'})
        """
        module, separator, call = text.strip().partition(":")
        try:
            node = ast.parse(call.strip(), mode="eval").body
            args, kwargs = (), {}
            if isinstance(node, ast.Call):
                args = tuple(ast.literal_eval(arg) for arg in node.args)
                kwargs = {word.arg: ast.literal_eval(word.value) for word in node.keywords if word.arg}
                node = node.func
        except (SyntaxError, ValueError):
            node = None
        is_module = bool(separator) and all(part.isidentifier() for part in module.split("."))
        if node is None or not is_module or not _is_name(node):
            raise ValueError(f"is no call: {text!r}; {_FORM}")
        return CallText(module, ast.unparse(node), args, kwargs)

    def call(self) -> Any:
        """Import the module and call the function. Raises what that raises."""
        found: Any = importlib.import_module(self.module)
        for name in self.function.split("."):
            found = getattr(found, name)
        return found(*self.args, **self.kwargs)


def _is_name(node: ast.AST) -> bool:
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name)
