"""The form of a list of results, and how the values of some of its rows are cut out of it, without an unpickler.

A worker writes the plain values of consecutive rows as one pickle of a list, at the speed of C. The list holds None,
bools, ints, floats, complex numbers, texts and bytes, nothing else; such a pickle consists of the opcodes in `OPCODES`.
It is looked into where that can't be helped, say when some of its rows had ended before: a pass over the opcodes gives
the code that makes each value, with what was written once and is referred to later put in place of the reference. So
each value, and any part of the list, stands by itself. Bytes that are anything else are a `ProtocolError`.
"""

from collections.abc import Sequence
from typing import NamedTuple

from scaler.errors import ProtocolError


class Opcode(NamedTuple):
    """One instruction of a list of results."""

    name: str
    code: int
    #: bytes of operand
    operand: int
    #: what it is for
    what: str


class Counted(NamedTuple):
    """An instruction whose operand is a length, little-endian, and as many bytes."""

    name: str
    code: int
    #: bytes of the length
    width: int
    what: str


_PLAIN = (
    Opcode("NONE", 0x4E, 0, "None"),
    Opcode("NEWTRUE", 0x88, 0, "True"),
    Opcode("NEWFALSE", 0x89, 0, "False"),
    Opcode("BININT1", 0x4B, 1, "an int: u8"),
    Opcode("BININT2", 0x4D, 2, "an int: u16, little-endian"),
    Opcode("BININT", 0x4A, 4, "an int: i32, little-endian"),
    Opcode("BINFLOAT", 0x47, 8, "a float: IEEE double, big-endian"),
)
_COUNTED = (
    Counted("LONG1", 0x8A, 1, "an int: two's complement, little-endian"),
    Counted("LONG4", 0x8B, 4, "an int: two's complement, little-endian; the length is signed, and not negative"),
    Counted("SHORT_BINUNICODE", 0x8C, 1, "a text: UTF-8, surrogates as they are"),
    Counted("BINUNICODE", 0x58, 4, "a text"),
    Counted("BINUNICODE8", 0x8D, 8, "a text"),
    Counted("SHORT_BINBYTES", 0x43, 1, "bytes"),
    Counted("BINBYTES", 0x42, 4, "bytes"),
    Counted("BINBYTES8", 0x8E, 8, "bytes"),
)
_STRUCTURE = (
    Opcode("PROTO", 0x80, 1, "begins the pickle; its operand is 4 or 5"),
    Opcode("FRAME", 0x95, 8, "says how many bytes belong together; without meaning here"),
    Opcode("EMPTY_LIST", 0x5D, 0, "begins the list"),
    Opcode("MARK", 0x28, 0, "begins a run of values"),
    Opcode("APPENDS", 0x65, 0, "ends a run of values"),
    Opcode("APPEND", 0x61, 0, "ends a single value that no MARK came before"),
    Opcode("MEMOIZE", 0x94, 0, "numbers what came before it, from 0; the list is one of the things numbered"),
    Opcode("BINGET", 0x68, 1, "the same as the thing with this number: u8"),
    Opcode("LONG_BINGET", 0x6A, 4, "the same as the thing with this number: u32, little-endian"),
    Opcode("STACK_GLOBAL", 0x93, 0, "behind the texts `builtins` and `complex`: the type of complex numbers"),
    Opcode("TUPLE2", 0x86, 0, "behind two floats: real and imaginary part"),
    Opcode("REDUCE", 0x52, 0, "behind the type and both parts: a complex number"),
    Opcode("STOP", 0x2E, 0, "ends the pickle"),
)
#: all there are
OPCODES: tuple[Opcode | Counted, ...] = (*_STRUCTURE, *_PLAIN, *_COUNTED)

_CODE = {opcode.name: opcode.code for opcode in OPCODES}
_OPERANDS = {opcode.code: opcode.operand for opcode in _PLAIN}
_WIDTHS = {opcode.code: opcode.width for opcode in _COUNTED}
_TEXTS = {_CODE["SHORT_BINUNICODE"], _CODE["BINUNICODE"], _CODE["BINUNICODE8"]}
_GETS = {_CODE["BINGET"]: 1, _CODE["LONG_BINGET"]: 4}

_LIST = bytes([_CODE["EMPTY_LIST"]])
_BUILTINS, _NAME = b"\x8c\x08builtins", b"\x8c\x07complex"
_COMPLEX = _BUILTINS + _NAME + bytes([_CODE["STACK_GLOBAL"]])
#: bytes of the code of a float, and of two of them as a tuple
_FLOAT_SIZE = 9
_PAIR_SIZE = 2 * _FLOAT_SIZE + 1

_BEGIN, _END = b"\x80\x05", bytes([_CODE["STOP"]])
#: bytes that references may stand for, in one list. A worker's list has texts of about 1 MiB
_REPEATED = 64 << 20


def each_value(body: bytes | memoryview, rows: int) -> list[bytes]:
    """Each value of the list in `body`, as a pickle of its own. ProtocolError unless these are `rows` values."""
    return [_BEGIN + code + _END for code in _values(bytes(body), rows)]


def cut_list(body: bytes | memoryview, rows: int, runs: Sequence[tuple[int, int]]) -> list[bytes]:
    """Of the list of `rows` values in `body`, the list of those in [lo, hi) for each run. Raises ProtocolError."""
    values = _values(bytes(body), rows)
    return [b"".join((_BEGIN, _LIST, b"(", *values[lo:hi], b"e", _END)) for lo, hi in runs]


def _values(data: bytes, rows: int) -> list[bytes]:
    """The code that makes each value, none of which refers to another."""
    try:
        values = _Reader(data).read()
    except IndexError:
        raise ProtocolError("a list of results is cut short") from None
    if len(values) != rows:
        raise ProtocolError(f"a list of results has {len(values)} values for {rows} rows")
    return values


class _Reader:
    """Goes over the opcodes of one pickle once. IndexError where it ends too early."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        #: the code of what was made and is not in the list yet
        self._stack: list[bytes] = []
        #: the code of what was numbered
        self._memo: list[bytes] = []
        #: the code of the values in the list
        self._values: list[bytes] = []
        #: bytes that references have stood for
        self._repeated = 0

    def read(self) -> list[bytes]:
        """The code of each value."""
        data, stack = self._data, self._stack
        if data[0] != _CODE["PROTO"] or data[1] not in (4, 5):
            raise ProtocolError("a list of results is no pickle of protocol 5")
        at = self._begin(2)
        marked = False
        while True:
            code = data[at]
            if code in _OPERANDS:
                end = at + 1 + _OPERANDS[code]
                stack.append(self._taken(at, end))
            elif code in _WIDTHS:
                end = self._counted(code, at)
                stack.append(self._taken(at, end))
            elif code == _CODE["MEMOIZE"]:
                end = at + 1
                self._memo.append(stack[-1])
            elif code in _GETS:
                end = at + 1 + _GETS[code]
                stack.append(self._recalled(int.from_bytes(self._taken(at + 1, end), "little")))
            elif code == _CODE["FRAME"]:
                end = at + 9
                self._taken(at, end)
            elif code == _CODE["MARK"] and not (marked or stack):
                end, marked = at + 1, True
            elif code == _CODE["APPENDS"] and marked:
                end, marked = at + 1, False
                self._append()
            elif code == _CODE["APPEND"] and not marked and len(stack) == 1:
                end = at + 1
                self._append()
            elif code == _CODE["STOP"] and not (marked or stack) and at + 1 == len(data):
                return self._values
            else:
                end = at + 1
                self._complex(code)
            at = end

    def _begin(self, at: int) -> int:
        """Where the first run of values begins."""
        data = self._data
        if data[at] == _CODE["FRAME"]:
            at += 9
        if data[at] != _CODE["EMPTY_LIST"]:
            raise ProtocolError("a list of results is no list")
        if data[at + 1] == _CODE["MEMOIZE"]:
            self._memo.append(_LIST)
            at += 1
        return at + 1

    def _taken(self, at: int, end: int) -> bytes:
        if end > len(self._data):
            raise IndexError
        return self._data[at:end]

    def _counted(self, code: int, at: int) -> int:
        """The end of an instruction whose operand has a length of its own."""
        start = at + 1 + _WIDTHS[code]
        size = int.from_bytes(self._taken(at + 1, start), "little", signed=code == _CODE["LONG4"])
        if size < 0:
            raise ProtocolError("a list of results has an int of a negative length")
        if code in _TEXTS:
            try:
                str(self._taken(start, start + size), "utf-8", "surrogatepass")
            except UnicodeDecodeError:
                raise ProtocolError("a list of results has a text that is not UTF-8") from None
        return start + size

    def _recalled(self, number: int) -> bytes:
        """The code of what has this number."""
        if number >= len(self._memo) or self._memo[number] == _LIST:
            raise ProtocolError("a list of results refers to what is no value of it")
        code = self._memo[number]
        self._repeated += len(code)
        if self._repeated > _REPEATED:
            raise ProtocolError(f"a list of results repeats more than {_REPEATED} bytes")
        return code

    def _complex(self, code: int) -> None:
        """One of the three steps that make a complex number, the only value that is made of others."""
        stack = self._stack
        made = b""
        if len(stack) > 1:
            first, second = stack[-2:]
            if code == _CODE["STACK_GLOBAL"] and (first, second) == (_BUILTINS, _NAME):
                made = _COMPLEX
            elif code == _CODE["TUPLE2"] and _is_float(first) and _is_float(second):
                made = first + second + b"\x86"
            elif code == _CODE["REDUCE"] and first == _COMPLEX and _is_pair(second):
                made = first + second + b"R"
        if not made:
            raise ProtocolError(f"a list of results has an opcode {code:#04x} where none belongs")
        stack[-2:] = [made]

    def _append(self) -> None:
        """What was made is in the list."""
        for code in self._stack:
            if code == _COMPLEX or _is_pair(code):
                raise ProtocolError("a list of results has a part of a complex number as a value")
        self._values += self._stack
        self._stack.clear()


def _is_float(code: bytes) -> bool:
    return code[0] == _CODE["BINFLOAT"] and len(code) == _FLOAT_SIZE


def _is_pair(code: bytes) -> bool:
    return code[0] == _CODE["BINFLOAT"] and len(code) == _PAIR_SIZE
