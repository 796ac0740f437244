"""What is done to another library's module when that is imported."""

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from scaler.common.when_imported import when_imported

NAME = "imported_later"
BROKEN = "raise KeyboardInterrupt"


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # the file changes within a second
    finders = list(sys.meta_path)
    yield tmp_path / f"{NAME}.py"
    sys.modules.pop(NAME, None)
    sys.meta_path[:] = finders


def import_it() -> ModuleType:
    return importlib.import_module(NAME)


def test_it_is_done_once_and_nothing_is_left(file: Path) -> None:
    finders = list(sys.meta_path)
    seen: list[ModuleType] = []
    when_imported(NAME, seen.append)
    file.write_text("x = 1")
    assert seen == []
    assert [import_it()] == seen == [import_it()]
    assert sys.meta_path == finders


def test_an_import_that_was_interrupted_is_followed_by_another(file: Path) -> None:
    seen: list[ModuleType] = []
    when_imported(NAME, seen.append)
    file.write_text(BROKEN)
    with pytest.raises(KeyboardInterrupt):
        import_it()
    assert seen == []
    file.write_text("x = 1")
    assert [import_it()] == seen


def test_who_asks_where_a_module_is_does_not_import_it(file: Path) -> None:
    seen: list[ModuleType] = []
    when_imported(NAME, seen.append)
    file.write_text("x = 1")
    assert importlib.util.find_spec(NAME) is not None
    assert seen == []
    assert [import_it()] == seen


def test_another_finder_of_this_kind_may_ask_this_one(file: Path) -> None:
    class Finder:
        is_asking = False

        def find_spec(self, name: str, path: object, target: object = None) -> object:
            if name != NAME or self.is_asking:
                return None
            self.is_asking = True
            return importlib.util.find_spec(name)

    seen: list[ModuleType] = []
    sys.meta_path.insert(0, Finder())  # type: ignore[arg-type]
    when_imported(NAME, seen.append)
    file.write_text("x = 1")
    assert [import_it()] == seen


def test_a_loader_of_several_modules_tells_of_the_one(file: Path) -> None:
    class Loader:
        def create_module(self, spec: object) -> None:
            return None

        def exec_module(self, module: ModuleType) -> None:
            module.x = 1  # type: ignore[attr-defined]

    loader = Loader()

    class Finder:
        def find_spec(self, name: str, path: object, target: object = None) -> object:
            is_known = name.startswith(NAME)
            return importlib.util.spec_from_loader(name, loader) if is_known else None  # type: ignore[arg-type]

    seen: list[ModuleType] = []
    sys.meta_path.insert(0, Finder())  # type: ignore[arg-type]
    when_imported(NAME, seen.append)
    assert importlib.util.find_spec(NAME) is not None
    other = importlib.import_module(f"{NAME}_as_well")
    del sys.modules[other.__name__]
    assert seen == []
    assert [import_it()] == seen
