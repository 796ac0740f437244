"""scaler_top's own part of the terminal: keys come in, lines go out, and snapshots come from another thread."""

import asyncio
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.programs import environment
from support.waiting import DEADLINE, patience
from textual import events
from textual.pilot import Pilot

from bench.synthetic import SyntheticCluster
from scaler.cli import top
from scaler.cli.command import call
from scaler.monitor import Seen, Snapshot
from scaler.monitor.top.app import TopApp

NOW = 1_700_000_000.0


def seen(snapshot: Snapshot | None, version: int = 1, is_connected: bool = True) -> Seen:
    return Seen(snapshot, is_connected, NOW, "", version)


def shown(app: TopApp) -> list[str]:
    """What the terminal shows."""
    return [app.view.render_line(y).text.rstrip() for y in range(app.view.size.height)]


async def shows(app: TopApp, pilot: Pilot[None], words: str, lines: int | None = None) -> str:
    """Wait until the terminal shows this, in so many lines; all that it shows."""
    end = time.monotonic() + patience(DEADLINE)
    while words not in (text := "\n".join(shown(app))) or text.count("\n") + 1 != (lines or text.count("\n") + 1):
        assert time.monotonic() < end, f"waited in vain for {words!r} in\n{text}"
        await pilot.pause(0.01)
    return text


def run(steps: object, size: tuple[int, int] = (120, 40)) -> TopApp:
    """Runs the program under a test; snapshots come from a thread, as a watcher's do."""
    app = TopApp("tcp://127.0.0.1:2345", clock=lambda: NOW)
    cluster = SyntheticCluster(agents=3, workers=20)

    def arrive(is_connected: bool = True) -> Snapshot:
        snapshot = cluster.snapshot()
        thread = threading.Thread(target=app.arrived, args=(seen(snapshot, snapshot.number, is_connected),))
        thread.start()
        thread.join()
        return snapshot

    async def main() -> None:
        assert callable(steps)
        async with app.run_test(size=size) as pilot:
            await steps(app, pilot, arrive)

    asyncio.run(main())
    return app


def test_what_arrives_is_shown_and_keys_act_on_it() -> None:
    async def steps(app: TopApp, pilot: Pilot[None], arrive: object) -> None:
        assert callable(arrive)
        assert any("waiting for the first snapshot" in line for line in shown(app))
        snapshot = arrive()
        await shows(app, pilot, "\nTotal 60 worker(s)")
        await pilot.press("m")
        await shows(app, pilot, " [rss] ")
        largest = max(range(60), key=snapshot.workers.memory.__getitem__)
        assert any(line.startswith(f"{snapshot.workers.pids[largest]}|") for line in shown(app))
        await pilot.press("2")
        await shows(app, pilot, "\nTotal 3 agent(s)")
        await pilot.press("slash", *"host-0002", "enter")
        await shows(app, pilot, "\nTotal 3 agent(s), 1 shown")
        arrive(is_connected=False)
        await shows(app, pilot, "no scheduler since")

    run(steps)


def test_names_are_shown_as_they_are_and_mean_nothing() -> None:
    async def steps(app: TopApp, pilot: Pilot[None], arrive: object) -> None:
        assert callable(arrive)
        await pilot.press("3")
        snapshot = arrive()
        names = ("[bold red]x[/]", "[@click=app.quit]y[/]", *snapshot.functions.names[2:])
        snapshot.view.functions.names = names
        app.arrived(seen(snapshot, 9))
        await pilot.press("n")
        assert names[1] in await shows(app, pilot, names[0])

    run(steps)


def test_another_size_is_another_screen() -> None:
    async def steps(app: TopApp, pilot: Pilot[None], arrive: object) -> None:
        assert callable(arrive)
        arrive()
        for columns, lines in [(80, 24), (20, 5), (60, 15), (250, 80)]:
            await pilot.resize_terminal(columns, lines)
            await shows(app, pilot, "needs 60x15: enlarge" if columns == 20 else "\nTotal 60", lines)

    run(steps)


def test_the_wheel_moves_the_chosen_row_and_pasted_text_goes_to_the_filter() -> None:
    async def steps(app: TopApp, pilot: Pilot[None], arrive: object) -> None:
        assert callable(arrive)
        arrive()
        app.view.on_mouse_scroll_down()
        app.view.on_mouse_scroll_down()
        app.view.on_mouse_scroll_up()
        assert app.view.looking.cursor == 3
        app.view.on_paste(events.Paste("qqq"))
        assert app.view.looking.by == "cpu"
        await pilot.press("slash")
        app.view.on_paste(events.Paste("host\x1b[2J\n-0003"))
        assert app.view.looking.text == "host[2J-0003"

    run(steps)


@pytest.mark.parametrize("key", ["Q", "ctrl+c", "ctrl+q"])
def test_a_key_ends_the_program(key: str) -> None:
    async def steps(app: TopApp, pilot: Pilot[None], arrive: object) -> None:
        await pilot.press(key)

    assert run(steps).return_code == 0


def test_what_arrives_before_there_is_a_terminal_is_shown_when_there_is() -> None:
    app = TopApp("tcp://127.0.0.1:2345", clock=lambda: NOW)
    app.arrived(seen(SyntheticCluster(1, 2).snapshot()))

    async def main() -> None:
        async with app.run_test(size=(120, 40)) as pilot:
            await shows(app, pilot, "\nTotal 2 worker(s)")

    asyncio.run(main())


# ---- the command ---------------------------------------------------------------------------------------------------
def test_without_textual_the_command_says_in_one_line_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "textual", None)
    monkeypatch.setattr(top, "_has_terminal", lambda: True)
    assert call(top.command, "scaler_top", ["ipc:///tmp/nothing"]) == 1
    said = capsys.readouterr().err
    assert "pip install scaler[top]" in said
    assert said.count("\n") == 1


def test_a_dumb_terminal_gets_one_screen_as_text(monkeypatch: pytest.MonkeyPatch) -> None:
    for stream in ("stdin", "stdout", "stderr"):
        monkeypatch.setattr(sys, stream, SimpleNamespace(isatty=lambda: True))
    monkeypatch.setenv("TERM", "xterm")
    assert top._has_terminal()
    monkeypatch.setenv("TERM", "dumb")
    assert not top._has_terminal()


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["ipc:///tmp/nothing-is-there"], 1, "no scheduler is there"),
        (["tcp://127.0.0.1:1"], 1, "nothing listens"),
        (["127.0.0.1:2345"], 2, "is no address"),
        (["ipc://relative"], 2, "the form is ipc:///path"),
        ([], 2, "ADDRESS"),
        (["--interval", "0", "ipc:///tmp/x"], 2, "interval must be at least 0.1"),
        (["--view", "tasks", "ipc:///tmp/x"], 2, "workers"),
    ],
)
@pytest.mark.parametrize("way", [[], ["--once"], ["--json"]], ids=str)
def test_what_is_wrong_is_said_in_one_line(
    arguments: list[str], code: int, words: str, way: list[str], capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.delenv("SCALER_ADDRESS", raising=False)
    monkeypatch.setattr(top, "_has_terminal", lambda: not way)
    assert call(top.command, "scaler_top", [*way, *arguments]) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert words in err
    assert err.count("\n") == 1


def test_the_pictures_show_what_is_shown() -> None:
    make = Path(__file__).parents[2] / "docs" / "pictures" / "make_top.py"
    ended = subprocess.run(
        [sys.executable, str(make), "--check"],
        capture_output=True,
        text=True,
        timeout=120,
        env=environment(),
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert not [file for file in make.parent.glob("top-*.svg") if "@font-face" in file.read_text()]
