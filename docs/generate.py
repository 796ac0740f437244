"""Writes the parts of the documentation that are made from the code; a test checks that they are up to date.

    python docs/generate.py

A part stands between `<!-- generated: NAME -->` and `<!-- end -->`, on lines of their own. A figure that is a constant
in the code stands in its line between `<!-- value: MODULE.NAME UNIT -->` and `<!-- end -->`: KiB or MiB of a number of
bytes; s, ms or µs of a number of seconds, of microseconds if its name ends with _US, of nanoseconds with _NS; as it
is without a unit.
"""

import ast
import importlib
import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import MISSING
from enum import Enum
from pathlib import Path

from scaler.agent.state.object_moves import OBJECT_TRANSITIONS
from scaler.agent.state.worker_moves import WORKER_TRANSITIONS
from scaler.config import (
    AgentConfig,
    Config,
    DashboardConfig,
    MetricsConfig,
    ProvisionConfig,
    SchedulerConfig,
    Setting,
    SymphonyConfig,
    TopConfig,
    settings,
)
from scaler.protocol import codec, codes, error_record, initiator, value_list
from scaler.protocol import messages as messages_module
from scaler.protocol.messages import cluster_view
from scaler.scheduler.state.transitions import TRANSITIONS

DOCS = Path(__file__).parent
ROOT = DOCS.parent
PART = re.compile(r"(<!-- generated: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
VALUE = re.compile(r"(<!-- value: ([\w.]+) ?(\S*) -->)[^\n]*?(<!-- end -->)")
#: constants of a module that are numbers, and the comment before them
FIGURE = re.compile(
    r"^((?:#:.*\n)+)((?:_?[A-Z][A-Z0-9_]*(?:, _?[A-Z][A-Z0-9_]*)*(?:: Final)? = [-+*/<>()\d._e, ]+\n)+)", re.MULTILINE
)
#: how many bytes or seconds a unit is
UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "s": 1.0, "ms": 1e-3, "µs": 1e-6}
#: how many seconds the unit is that a constant's name ends with
SCALES = {"_US": 1e-6, "_NS": 1e-9}


def states(transitions: dict[tuple[str, str], str], first: str) -> str:
    """A diagram and a table of legal moves."""
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {first}"]
    lines += [f"    {was.replace(' ', '_')} --> {becomes.replace(' ', '_')}" for was, becomes in transitions]
    ends = sorted({becomes for _, becomes in transitions} - {was for was, _ in transitions})
    lines += [f"    {end} --> [*]" for end in ends]
    lines += ["```", "", "| from | to | when |", "|---|---|---|"]
    lines += [f"| {was} | {becomes} | {why} |" for (was, becomes), why in transitions.items()]
    return "\n".join(lines)


def session() -> str:
    """A diagram and a table of what happens to a session, at its initiator."""
    moves: dict[tuple[str, str], list[str]] = {}
    rows = ["| in state | when | next state | |", "|---|---|---|---|"]
    for (state, cause), (after, why) in initiator.TRANSITIONS.items():
        if after is not state:
            moves.setdefault((state.value, after.value), []).append(cause.value)
        rows.append(f"| {state.value} | {cause.value} | {after.value} | {why} |")
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {initiator.State.AWAY.value}"]
    lines += [f"    {state} --> {after}: {', '.join(causes)}" for (state, after), causes in moves.items()]
    return "\n".join([*lines, "```", "", *rows])


def options() -> str:
    """A table of options for each program."""
    programs: dict[str, type[Config]] = {
        "scaler_scheduler": SchedulerConfig,
        "scaler_cluster": AgentConfig,
        "scaler_symphony_cluster": SymphonyConfig,
        "scaler_top": TopConfig,
        "scaler_ui": DashboardConfig,
        "scaler metrics": MetricsConfig,
    }
    tables = []
    for program, config in programs.items():
        lines = [f"### {program}", "", "| flag | environment | default | |", "|---|---|---|---|"]
        lines += [_option(setting) for setting in settings(config)]
        tables.append("\n".join(lines))
    return "\n\n".join(tables)


def provisioning() -> str:
    """A table of the settings of a provisioner."""
    lines = ["| setting | default | |", "|---|---|---|"]
    for setting in settings(ProvisionConfig):
        default = "" if setting.default in (None, (), MISSING) else f"`{setting.default}`"
        lines.append(f"| `{setting.name}` | {default} | {setting.option.help} |")
    return "\n".join(lines)


def _option(setting: Setting) -> str:
    if setting.default is MISSING:
        flag, default = setting.name.upper(), ""
    else:
        flag = f"--{setting.name.replace('_', '-')}"
        flag = ", ".join([*(other for other in setting.option.others if len(other) == 2), flag])
        default = "" if setting.default in (None, ()) else f"`{setting.default}`"
    choices = f" ({', '.join(setting.choices)})" if setting.choices else ""
    return f"| `{flag}` | `{setting.env_name}` | {default} | {setting.option.help}{choices} |"


def messages() -> str:
    """A table of the messages: number and member in the schema's union, and what each is."""
    lines = ["| ordinal | member | struct | |", "|---|---|---|---|"]
    schema = Path(codec.__file__).with_name("scaler.capnp").read_text()
    for cls, member in codec._MEMBERS.items():
        found = re.search(rf"^    {member} @(\d+) :(\w+);", schema, re.MULTILINE)
        assert found is not None, member
        carries = "" if found[2] == "Void" else f"`{found[2]}`"
        frames = ", payload frames" if cls.has_bodies else ""
        lines.append(f"| {found[1]} | `{member}` | {carries}{frames} | {(cls.__doc__ or '').splitlines()[0]} |")
    return "\n".join(lines)


def members(enumeration: type[Enum]) -> str:
    """A table of an enumeration: values, names, and the comment above each."""
    comments: dict[str, str] = {}
    comment: list[str] = []
    for line in inspect.getsource(enumeration).splitlines():
        line = line.strip()
        if line.startswith("#: "):
            comment.append(line[3:])
        elif " = " in line:
            comments[line.split(" = ")[0]] = " ".join(comment)
            comment = []
    unsaid = [member.name for member in enumeration if not comments[member.name]]
    assert not unsaid, f"{enumeration.__name__} does not say what these are: {unsaid}"
    lines = ["| | name | |", "|---|---|---|"]
    return "\n".join([*lines, *(f"| {m.value} | {m.name} | {comments[m.name]} |" for m in enumeration)])


def fields_of(*classes: type) -> str:
    """A table of what the structs of these classes have: fields as in the schema, and the comments above them."""
    lines = ["| struct | field | column | |", "|---|---|---|---|"]
    for cls in classes:
        comment: list[str] = []
        before = ""
        for line in inspect.getsource(cls).splitlines():
            line = line.strip()
            found = re.match(r"(\w+): (.+?)(?: = .*)?$", line)
            if line.startswith("#: "):
                comment.append(line[3:])
            elif found and found[1] in cls.__dataclass_fields__ and found[1] != "bodies":
                head, *tail = found[1].split("_")
                wire = head + "".join(part.capitalize() for part in tail)
                column = re.search(r"column\((\w+)\)", line)
                kind = column[1] if column else "texts" if found[2].startswith("tuple") else ""
                before = " ".join(comment) or before
                lines.append(f"| {cls.__name__} | `{wire}` | {kind} | {before} |")
                comment, before = [], "〃" if comment else before
    return "\n".join(lines)


def opcodes() -> str:
    """A table of what a list of results is made of."""
    lines = ["| opcode | | operand | |", "|---|---|---|---|"]
    for opcode in value_list.OPCODES:
        if isinstance(opcode, value_list.Counted):
            operand = f"u{8 * opcode.width}, and as many bytes"
        else:
            operand = f"{opcode.operand} bytes" if opcode.operand > 1 else ("1 byte" if opcode.operand else "")
        lines.append(f"| `{opcode.code:#04x}` | {opcode.name} | {operand} | {opcode.what} |")
    return "\n".join(lines)


def modules() -> str:
    """A table of all packages and their modules, each with the first line of its text."""
    lines = ["| | |", "|---|---|"]
    for name in ("scaler", "scaler_dask"):
        for package in sorted(path.parent for path in (ROOT / name).rglob("__init__.py")):
            lines.append(f"| **`{package.relative_to(ROOT)}/`** | **{_first_line(package / '__init__.py')}** |")
            others = sorted(path for path in package.glob("*.py") if path.name != "__init__.py")
            lines += [f"| `{path.name}` | {_first_line(path)} |" for path in others]
    return "\n".join(lines)


def _first_line(path: Path) -> str:
    text = ast.get_docstring(ast.parse(path.read_text()))
    assert text, f"{path} does not say what it is for"
    return text.splitlines()[0].replace("|", "\\|")


def value(name: str, unit: str) -> str:
    """A constant, in words."""
    module, _, constant = name.rpartition(".")
    found = getattr(importlib.import_module(module), constant)
    if not unit:
        return f"{found:,}"
    number = found * SCALES.get(constant[-3:], 1) / UNITS[unit]
    return f"{round(number, 6):,g} {unit}"


def figures() -> str:
    """For each package a table of its constants that are numbers, with what the line before each says of it."""
    parts = []
    for name in ("scaler", "scaler_dask"):
        for package in sorted(path.parent for path in (ROOT / name).rglob("__init__.py")):
            lines = [line for path in sorted(package.glob("*.py")) for line in _figures_of(path)]
            if lines:
                head = [f"## {package.relative_to(ROOT)}", "", _first_line(package / "__init__.py"), ""]
                parts.append("\n".join([*head, "| what | figure | where |", "|---|---|---|", *lines]))
    return "\n\n".join(parts)


def _figures_of(path: Path) -> Iterator[str]:
    for found in FIGURE.finditer(path.read_text()):
        said = " ".join(line.removeprefix("#:").strip() for line in found[1].splitlines()).replace("|", "\\|")
        numbers = ", ".join(f"`{figure}`" for figure in found[2].splitlines())
        yield f"| {said} | {numbers} | `{path.name}` |"


PARTS: dict[str, Callable[[], str]] = {
    "rows": lambda: states(
        {move: "; ".join(c.words for c in causes) for move, causes in TRANSITIONS.items()}, "waiting"
    ),
    "workers": lambda: states(WORKER_TRANSITIONS, "starting"),
    "objects": lambda: states(OBJECT_TRANSITIONS, "absent"),
    "session": session,
    "options": options,
    "provisioning": provisioning,
    "messages": messages,
    "roles": lambda: members(codes.Role),
    "forms": lambda: members(codes.Form),
    "flags": lambda: members(codes.Flag),
    "outcomes": lambda: members(codes.Outcome),
    "streams": lambda: members(codes.Stream),
    "object_kinds": lambda: members(codes.ObjectKind),
    "error_kinds": lambda: members(error_record.ErrorKind),
    "worker_flags": lambda: members(codes.WorkerFlag),
    "agent_flags": lambda: members(codes.AgentFlag),
    "leaving": lambda: members(codes.Leaving),
    "wishes": lambda: members(codes.Wish),
    "command": lambda: fields_of(messages_module.Command, messages_module.CommandResult),
    "worker_columns": lambda: fields_of(messages_module.WorkerColumns),
    "host_report": lambda: fields_of(messages_module.HostReport),
    "cluster_view": lambda: fields_of(
        cluster_view.ClusterView,
        cluster_view.SchedulerView,
        cluster_view.RowCounts,
        cluster_view.AgentColumns,
        cluster_view.ClientColumns,
        cluster_view.FunctionColumns,
        cluster_view.ObjectColumns,
        cluster_view.DemandColumns,
        cluster_view.FleetColumns,
    ),
    "encodings": lambda: members(codes.Encoding),
    "opcodes": opcodes,
    "modules": modules,
    "figures": figures,
}


def renewed(text: str) -> str:
    """A page with its generated parts and its figures as they should be."""
    text = PART.sub(lambda match: f"{match[1]}\n{PARTS[match[2]]()}\n\n{match[3]}", text)
    return VALUE.sub(lambda match: f"{match[1]}{value(match[2], match[3])}{match[4]}", text)


def pages() -> list[Path]:
    """All pages with generated parts or figures."""
    return [
        page for page in sorted(DOCS.rglob("*.md")) if PART.search(page.read_text()) or VALUE.search(page.read_text())
    ]


if __name__ == "__main__":
    for page in pages():
        page.write_text(renewed(page.read_text()))
