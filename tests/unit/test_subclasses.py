"""Functions of a script that find plug-ins by the subclasses of a base class."""

import gc
import sys
import types
from collections.abc import Callable
from typing import Any

import pytest
from support.elsewhere import Elsewhere

from scaler.serialize.call import decode_function, encode_function
from scaler.serialize.function import FunctionCache

BASE = """
class Plugin:
    @classmethod
    def names(cls): return sorted(each.__name__ for each in cls.__subclasses__())
class Csv(Plugin):
    suffix = '.csv'
class Json(Plugin): pass
class Json5(Json): pass
"""
FUNCTIONS = {
    "named": "def f(): return sorted(each.__name__ for each in Plugin.__subclasses__())",
    "in a function inside": "def f():\n  def g(): return Plugin.__subclasses__()\n"
    "  return sorted(each.__name__ for each in g())",
    "by a class method": "def f(): return Plugin.names()",
    "by a helper": "def names(base): return sorted(each.__name__ for each in base.__subclasses__())\n"
    "def f(): return names(Plugin)",
}


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], dict[str, Any]]:
    module = types.ModuleType("a_script_of_plugins")

    def run(source: str) -> dict[str, Any]:
        exec(source, module.__dict__)
        return module.__dict__

    monkeypatch.setitem(sys.modules, module.__name__, module)
    return run


def called(data: bytes | memoryview) -> Any:
    with Elsewhere().inside():
        function, _ = decode_function(data)
        gc.collect()
        return function()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_subclasses_go_along_with_what_asks_for_them(script: Callable[[str], dict[str, Any]], name: str) -> None:
    names, cache = script(BASE + FUNCTIONS[name]), FunctionCache()
    first = cache.capture(names["f"])
    assert called(first.payload) == ["Csv", "Json"]
    assert cache.capture(names["f"]) is first
    script("class Xml(Plugin): pass")
    assert called(cache.capture(names["f"]).payload) == ["Csv", "Json", "Xml"]


def test_they_are_as_they_are_now_and_know_theirs(script: Callable[[str], dict[str, Any]]) -> None:
    names = script(
        BASE + "def f(): return [(each.__name__, getattr(each, 'suffix', ''), len(each.__subclasses__())) "
        "for each in Plugin.__subclasses__()]"
    )
    cache = FunctionCache()
    assert called(cache.capture(names["f"]).payload) == [("Csv", ".csv", 0), ("Json", "", 1)]
    names["Csv"].suffix = ".tsv"
    assert called(cache.capture(names["f"]).payload) == [("Csv", ".tsv", 0), ("Json", "", 1)]


def test_those_that_have_no_name_and_those_of_who_asks_for_none_stay(script: Callable[[str], dict[str, Any]]) -> None:
    names = script(BASE + "def f(): return Csv.suffix\ndef g(): return len(Plugin.__subclasses__())\n")
    unnamed = type("Local", (names["Plugin"],), {"__module__": "a_script_of_plugins"})
    assert called(encode_function(names["g"])) == 2
    assert unnamed in names["Plugin"].__subclasses__()
    plain = script("class Plain: pass\nclass Derived(Plain): pass\ndef h(): return Plain")
    assert b"Derived" not in encode_function(plain["h"])
