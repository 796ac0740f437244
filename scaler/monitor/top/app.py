"""The terminal of `scaler_top`: brings keys to what somebody looks at, and lines to the terminal. Needs Textual.

The screen is one widget that draws lines which were made for it; of a new screen only those that differ are sent. So
what a frame costs follows from the size of the terminal, not from the number of workers.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import time
from collections.abc import Callable
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.app import App, ComposeResult
from textual.geometry import Region, Size
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from scaler.monitor.output import place_of
from scaler.monitor.sayable import sayable
from scaler.monitor.top import layout
from scaler.monitor.top.layout import Line
from scaler.monitor.top.looking import QUIT, Looking
from scaler.monitor.top.screen import draw
from scaler.monitor.watcher import Seen

_STYLES = {
    layout.PLAIN: Style(),
    layout.TITLE: Style(bold=True, color="cyan"),
    layout.DIM: Style(dim=True),
    layout.HEAD: Style(bold=True),
    layout.CHOSEN: Style(reverse=True),
    layout.SORTED: Style(bold=True, reverse=True),
    layout.ALERT: Style(bold=True, color="red"),
    layout.RULE: Style(dim=True),
}
#: rows that a turn of the wheel moves
_WHEEL = 3


class Arrived(Message):
    """Something new has been seen; of several that wait the last is drawn, once."""

    def can_replace(self, message: Message) -> bool:
        """What is drawn is what is known then."""
        return isinstance(message, Arrived)


class TopView(Widget, can_focus=True):
    """All of the terminal."""

    DEFAULT_CSS = "TopView { width: 100%; height: 100%; background: transparent; }"

    def __init__(self, address: str, looking: Looking, clock: Callable[[], float]) -> None:
        super().__init__()
        self._address, self._clock = address, clock
        self.looking = looking
        #: told which worker's page is open, by agent and slot
        self.look_at: Callable[[list[tuple[int, int]]], None] = lambda workers: None
        #: what is known now; replaced as a whole, by another thread
        self.seen = Seen(None, True, clock(), "", 0)
        self._lines: list[Line] = []

    def draw(self) -> None:
        """Make the screen anew, and have drawn what is different."""
        before = self._lines
        place = place_of(self.looking.worker)
        self.look_at([] if place is None else [place])
        columns, height = self.size
        self._lines = draw(self.looking, self.seen, self._address, columns, height, self._clock())
        if len(before) != len(self._lines):
            self.refresh()
            return
        changed = [y for y, (old, new) in enumerate(zip(before, self._lines, strict=True)) if old != new]
        if changed:
            self.refresh(*[Region(0, y, columns, 1) for y in changed])

    def render_line(self, y: int) -> Strip:
        """The line of a number."""
        line = self._lines[y] if y < len(self._lines) else []
        segments = [Segment(text, _STYLES[style]) for text, style in line if text]
        return Strip(segments).adjust_cell_length(self.size.width)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """All there is."""
        return container.height

    def on_resize(self) -> None:
        """Another size is another screen."""
        self._lines = []
        self.draw()

    def on_key(self, event: events.Key) -> None:
        """Every key is ours: those of Textual's own have no meaning here."""
        event.stop()
        event.prevent_default()
        if event.key == "ctrl+z":
            self.app.action_suspend_process()
            return
        if self.looking.press(event.key, event.character, self.seen.snapshot) == QUIT:
            self.app.exit()
            return
        self.draw()

    def on_paste(self, event: events.Paste) -> None:
        """What is pasted belongs to the filter."""
        if self.looking.is_typing:
            for character in event.text:
                self.looking.press("", character, None)
            self.draw()

    def on_mouse_scroll_down(self) -> None:
        """The wheel."""
        self.looking.move(_WHEEL)
        self.draw()

    def on_mouse_scroll_up(self) -> None:
        """The wheel."""
        self.looking.move(-_WHEEL)
        self.draw()


class TopApp(App[None]):
    """The program."""

    ENABLE_COMMAND_PALETTE = False
    CSS = "Screen { background: transparent; overflow: hidden; }"
    BINDINGS: ClassVar = []

    def __init__(self, address: str, looking: Looking | None = None, clock: Callable[[], float] = time.time) -> None:
        """`address` is what is watched, as users write it; `arrived` is called with what is seen there."""
        super().__init__(ansi_color=True)
        self.view = TopView(address, looking or Looking(), clock)
        self._is_ready = False
        #: of where Textual draws
        self._encoding = getattr(sys.__stderr__, "encoding", None)

    def compose(self) -> ComposeResult:
        """One widget."""
        yield self.view

    def on_mount(self) -> None:
        """From now on it can be told of what is seen."""
        with contextlib.suppress(NotImplementedError):  # Windows: there it ends as any program
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self.exit)
        self.app_resume_signal.subscribe(self, lambda app: self.refresh(layout=True))  # the shell has had the terminal
        self.view.focus()
        self._is_ready = True
        self.view.draw()

    def arrived(self, seen: Seen) -> None:
        """Something new was seen; from any thread, and before there is a terminal, too."""
        self.view.seen = sayable(seen, self._encoding)
        if self._is_ready:
            self.post_message(Arrived())

    def on_arrived(self) -> None:
        """Draw it."""
        self.view.draw()

    async def action_quit(self) -> None:
        """Textual's own key for it."""
        self.exit()
