"""What the text says that tells versions of a class apart, and what it takes to make it."""

import subprocess
import sys
from typing import Any

import pytest
from support.elsewhere import Elsewhere

from scaler.serialize import class_versions, payload


def made(source: str) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(source, names)
    return names


def version(kind: type) -> str | None:
    return class_versions.version_of(kind, payload._contents_of)


def test_a_class_has_one_version_until_it_changes_and_the_same_when_it_changes_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kind = made("class C:\n  rates = {'a': [1]}\n  def m(self): return 1")["C"]
    first = version(kind)
    with monkeypatch.context() as patch:
        patch.setattr(class_versions, "made_and_watched", None)  # nothing is looked at anew
        assert [version(kind) for _ in range(3)] == [first] * 3
    kind.rates["a"].append(2)
    assert first is not None
    assert version(kind) != first
    kind.rates["a"].pop()
    assert version(kind) == first


def test_what_another_class_is_is_no_part_of_it() -> None:
    names = made("class A: rate = 1\nclass B(A):\n  def m(self): return A.rate")
    first, other = version(names["B"]), version(names["A"])
    names["A"].rate = 2
    assert version(names["B"]) == first
    assert version(names["A"]) != other


@pytest.mark.parametrize(("source", "times"), [("bytearray(100)", 3), ("bytearray(1 << 20)", 1)])
def test_what_may_change_unseen_is_pickled_each_time_unless_it_is_large(source: str, times: int) -> None:
    names = made(f"class Held:\n  __slots__ = ('x',)\nclass C:\n  held = Held()\nC.held.x = {source}")
    pickled: list[type] = []

    def contents(kind: type) -> Any:
        pickled.append(kind)
        return payload._contents_of(kind)

    versions = {class_versions.version_of(names["C"], contents) for _ in range(3)}
    assert len(pickled) == times
    assert len(versions) == 1
    assert (versions == {None}) == (times == 1)


def test_a_class_that_cannot_be_pickled_has_none() -> None:
    def generator() -> Any:
        yield

    class Local:
        pass

    Local.__doc__ = generator()  # type: ignore[assignment]  # names of this kind are never left out
    assert version(Local) is None


SOURCE = """
X = {1: "one"}
class A:
    rate: int = 1
    def m(self, y=2): return X, B
class B(A):
    @property
    def p(self): return super().m()
"""


@pytest.mark.parametrize("name", ["A", "B"])
def test_where_a_class_came_to_it_has_the_version_that_it_came_with(name: str) -> None:
    """Else workers that give each other its instances would take them for others each time."""
    kind = made(SOURCE)[name]
    pickled, there = payload.dumps(kind), Elsewhere()
    with there.inside():
        assert version(payload.loads(pickled)) == version(kind)


def test_pickles_grow_by_a_few_bytes_for_each_class() -> None:
    script = (
        "import pickletools, sys\nsys.path[:] = {path!r}\nfrom scaler.serialize import payload\n"
        "class A: pass\nclass B: pass\n"
        "with_versions = len(payload.dumps_by_value((A, B)))\npayload.class_versions.version_of = lambda *_: None\n"
        "print(with_versions - len(payload.dumps_by_value((A, B))))"
    )
    command = [sys.executable, "-c", script.replace("{path!r}", repr(sys.path))]
    assert 0 < int(subprocess.run(command, capture_output=True, check=True).stdout) <= 2 * 40
