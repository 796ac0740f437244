"""What the documentation says about the code: the parts made from it are up to date, and every link leads somewhere."""

import doctest
import importlib
import importlib.util
import pkgutil
import re
import shlex
from pathlib import Path
from types import ModuleType

import click
import pytest

import scaler
from scaler import errors
from scaler.cli.main import SECTIONS
from scaler.cli.main import command as scaler_command
from scaler.cli.provision import read

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


def _generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_what_is_made_from_the_code_is_up_to_date() -> None:
    generator = _generator()
    assert {page.name for page in generator.pages()} >= {"architecture.md", "protocol.md", "running.md", "states.md"}
    for page in generator.pages():
        text = page.read_text()
        assert text == generator.renewed(text), f"run `python docs/generate.py`: {page.name} is not up to date"


def test_a_figure_in_the_text_is_that_of_the_code() -> None:
    renewed = _generator().renewed
    size, start, end = "scaler.protocol.messages.INLINE_LIMIT", "<!-- value: ", "<!-- end -->"
    text = f"under {start}{size} KiB -->7 KiB{end} or {start}{size} -->7{end}, not 7 KiB"
    assert renewed(text) == f"under {start}{size} KiB -->128 KiB{end} or {start}{size} -->131,072{end}, not 7 KiB"


@pytest.mark.parametrize(
    ("name", "constant", "unit", "words"),
    [
        ("PLANTED", 0.008, "ms", "8 ms"),
        ("PLANTED", 2.5, "s", "2.5 s"),
        ("PLANTED_US", 100_000, "µs", "100,000 µs"),
        ("PLANTED_US", 100_000, "ms", "100 ms"),
        ("PLANTED_NS", 4_000_000, "ms", "4 ms"),
        ("PLANTED", 1 << 20, "MiB", "1 MiB"),
        ("PLANTED", 32, "", "32"),
    ],
)
def test_a_constant_is_written_in_the_unit_that_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, name: str, constant: float, unit: str, words: str
) -> None:
    monkeypatch.setattr(errors, name, constant, raising=False)
    assert _generator().value(f"scaler.errors.{name}", unit) == words


def test_the_list_of_modules_has_each_with_its_first_line() -> None:
    listed = _generator().modules()
    assert "| `hello.py` | What every process says of itself in `Hello`, and the number of its session. |" in listed
    files = [path for name in ("scaler", "scaler_dask") for path in (ROOT / name).rglob("*.py")]
    assert len(listed.splitlines()) == 2 + len(files)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if "://" not in target:
            name, _, heading = target.partition("#")
            path = page.parent / name if name else page
            assert path.exists(), f"{page.name} links to {target}"
            headings = [re.sub(r"\W+", "-", line.strip("# ").lower()) for line in _headings(path)] if heading else []
            assert not heading or heading in headings, f"{page.name} links to {target}"


def _headings(path: Path) -> list[str]:
    return [line for line in path.read_text().splitlines() if line.startswith("#")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_file_that_is_named_is_there(page: Path) -> None:
    for name in re.findall(r"`((?:scaler|scaler_dask|tests|docs|bench|examples)/[\w./]+)`", page.read_text()):
        made = name.startswith("bench/results/")  # by running it
        assert made or (ROOT / name).exists(), f"{page.name} names {name}"


def test_every_decision_is_in_the_index() -> None:
    index = (ROOT / "docs" / "index.md").read_text()
    for page in (ROOT / "docs").rglob("*.md"):
        if page.name != "index.md":
            assert f"]({page.relative_to(ROOT / 'docs')})" in index, page.name


def test_every_example_in_a_docstring_is_right() -> None:
    finder, runner = doctest.DocTestFinder(), doctest.DocTestRunner()
    for module in pkgutil.walk_packages(scaler.__path__, "scaler."):
        for test in finder.find(importlib.import_module(module.name)):
            if test.examples:  # running one without costs as much: the debugger looks at all files once more
                runner.run(test)
        assert not runner.failures, module.name
    assert runner.tries > 10


def test_every_error_is_public_and_in_the_tree_and_on_the_page() -> None:
    page = (ROOT / "docs" / "client-api.md").read_text()
    for name, value in vars(errors).items():
        if isinstance(value, type) and issubclass(value, errors.ScalerError):
            assert f" {name} " in (errors.__doc__ or ""), name
            assert getattr(scaler, name) is value
            assert f"`{name}`" in page or name in ("ScalerError", "TaskFailed", "ProtocolError"), name


#: a line of a shell: the program, and what it is given up to a comment, a pipe and the like
SHELL_LINE = re.compile(r"^(?:    |(?: {4})?[\w-]*\$ +)(scaler(?:_[a-z]+)*) +([^#|&>\n]+)", re.MULTILINE)


def test_every_line_of_a_shell_is_one_that_the_programs_take(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(click.Path, "convert", lambda _, path, *__: path)  # of files that are not here
    for program, words in [line for page in PAGES for line in SHELL_LINE.findall(page.read_text())]:
        arguments = shlex.split(words)
        if program != "scaler":
            arguments.insert(0, {"scaler_symphony_cluster": "symphony"}.get(program, program.removeprefix("scaler_")))
        command: click.Command = scaler_command
        while isinstance(command, click.Group):
            command = command.commands[arguments.pop(0)]
        command.make_context(program, arguments)


def test_the_help_of_all_programs_has_each_in_a_section() -> None:
    text = scaler_command.get_help(click.Context(scaler_command, terminal_width=80))
    assert re.findall(r"^(\w.*):$", text, re.MULTILINE) == ["Options", *SECTIONS]
    listed = re.findall(r"^  ([a-z][a-z-]+) {2,}\S", text, re.MULTILINE)
    assert sorted(listed) == sorted(scaler_command.commands)


def test_every_file_for_a_provisioner_that_is_shown_can_be_read(tmp_path: Path) -> None:
    shown = [block for page in PAGES for block in re.findall(r"^```toml\n(.*?)^```", page.read_text(), re.S | re.M)]
    files = [block for block in shown if "provider = " in block]
    assert len(files) > 2
    for block in files:
        (tmp_path / "shown.toml").write_text(block)
        assert read(tmp_path / "shown.toml", {}, {})[0].address
