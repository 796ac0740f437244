"""What `make check` asks of the code beyond import-linter's own contracts; `setup.cfg` uses both.

`no_circles`: no module imports itself through others, not even for its types or inside a function.

`sole_writer`: of all `modules` only `writer` changes the attribute `attribute`, whatever object it is an attribute of:
assigns it or to a part of it, deletes it, or calls one of its methods that change a column.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import grimp
from importlinter import Contract, ContractCheck, fields, output

#: methods of a column, list, set or dict that change it
_CHANGING = frozenset(
    (
        *("add", "append", "byteswap", "clear", "difference_update", "discard", "extend", "frombytes", "insert"),
        *("intersection_update", "pop", "popitem", "remove", "reverse", "setdefault", "sort"),
        *("symmetric_difference_update", "update"),
    )
)


def circles(graph: grimp.ImportGraph) -> list[set[str]]:
    """The modules that reach each other: largest sets, each of at least two (Tarjan's algorithm)."""
    found: list[set[str]] = []
    lowest: dict[str, int] = {}
    path: list[str] = []

    def visit(module: str) -> int:
        index = lowest[module] = len(lowest)
        start = len(path)
        path.append(module)
        for imported in sorted(graph.find_modules_directly_imported_by(module)):
            if imported not in lowest:
                lowest[module] = min(lowest[module], visit(imported))
            elif imported in path:
                lowest[module] = min(lowest[module], lowest[imported])
        if lowest[module] == index:
            if len(path) - start > 1:
                found.append(set(path[start:]))
            del path[start:]
        return lowest[module]

    for module in sorted(graph.modules):
        if module not in lowest:
            visit(module)
    return found


def _shortest(graph: grimp.ImportGraph, circle: set[str]) -> list[str]:
    """One way round, as short as any."""
    ways = []
    for module in sorted(circle):
        for imported in sorted(graph.find_modules_directly_imported_by(module) & circle):
            way = graph.find_shortest_chain(imported, module)
            assert way is not None
            ways.append([module, *way])
    return min(ways, key=lambda way: (len(way), way))


class NoCircles(Contract):
    """No module imports itself through others."""

    type_name = "no_circles"

    def check(self, graph: grimp.ImportGraph, verbose: bool) -> ContractCheck:
        """All circles of the packages."""
        found = [_shortest(graph, circle) for circle in circles(graph)]
        return ContractCheck(kept=not found, metadata={"circles": found})

    def render_broken_contract(self, check: ContractCheck) -> None:
        """Each circle by its shortest way."""
        for way in check.metadata["circles"]:
            output.print_error(f"A circle: {' -> '.join(way)}")


def writes(source: str, attribute: str) -> list[int]:
    """The lines of a module that change `….attribute`, also by a local name for it."""
    tree = ast.parse(source)
    functions = [node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
    lines = set(_writes_to(tree, attribute, frozenset()))
    for function in functions:
        lines.update(_writes_to(function, attribute, frozenset(_names_of(function, attribute))))
    return sorted(lines)


def _writes_to(scope: ast.AST, attribute: str, names: frozenset[str]) -> Iterator[int]:
    for node in ast.walk(scope):
        if isinstance(node, (ast.Attribute, ast.Subscript)) and not isinstance(node.ctx, ast.Load):
            changed = node if isinstance(node, ast.Attribute) else node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _CHANGING:
            changed = node.func.value
        else:
            continue
        by_name = isinstance(changed, ast.Name) and changed.id in names
        if by_name or (isinstance(changed, ast.Attribute) and changed.attr == attribute):
            yield node.lineno


def _names_of(function: ast.AST, attribute: str) -> Iterator[str]:
    """What `….attribute` is called in a function: `name = ….attribute`, also as one of several."""
    for node in ast.walk(function):
        if not isinstance(node, (ast.Assign, ast.NamedExpr)):
            continue
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            pairs = [(target, node.value)]
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                pairs = list(zip(target.elts, node.value.elts, strict=False))
            for name, value in pairs:
                if isinstance(name, ast.Name) and isinstance(value, ast.Attribute) and value.attr == attribute:
                    yield name.id


class SoleWriter(Contract):
    """One module alone changes an attribute; several, if records of several kinds have one of this name."""

    type_name = "sole_writer"
    modules = fields.StringField()
    writer = fields.SetField(subfield=fields.StringField())
    attribute = fields.StringField()

    def check(self, graph: grimp.ImportGraph, verbose: bool) -> ContractCheck:
        """The lines of other modules that change it; the writer has to be one of the modules."""
        within: str = self.modules  # type: ignore[assignment]
        modules = {within, *graph.find_descendants(within)}
        writers: set[str] = set(self.writer)  # type: ignore[call-overload]
        found = [
            f"{module} changes .{self.attribute} in line {line}; only {' and '.join(sorted(writers))} may"
            for module in sorted(modules - writers)
            for line in writes(_source(module), str(self.attribute))
        ]
        found += [
            f"{writer} does not change .{self.attribute}: has it moved?"
            for writer in sorted(writers)
            if writer not in modules or not any(writes(_source(writer), str(self.attribute)))
        ]
        return ContractCheck(kept=not found, metadata={"found": found})

    def render_broken_contract(self, check: ContractCheck) -> None:
        """Line by line."""
        for text in check.metadata["found"]:
            output.print_error(text)


def _source(module: str) -> str:
    path = Path(*module.split("."))
    return (path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text()
