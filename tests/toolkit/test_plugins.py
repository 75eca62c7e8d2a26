"""Plugins are loaded by name. All of their tools are added, with a prefix, or none."""

import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.toolkit import Toolbox

good = Toolbox("good")
GONE = good.code("GONE", http=410, hint="It is gone.")


@good.tool(name="look", operation="query", codes=["GONE"])
async def look() -> str:
    """Look."""
    return "seen"


def made() -> Toolbox:
    return good


def broken() -> Toolbox:
    raise ImportError("no such library")


def leaving() -> Toolbox:
    raise SystemExit(0)


nothing = {"not": "a toolbox"}

clashing = Toolbox("clashing")


@clashing.tool(name="a")
async def a() -> None:
    """A."""


@clashing.tool(name="look")
async def also_look() -> None:
    """Clash with an existing tool."""


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pretend that packages with these entry points are installed."""
    here = "tests.toolkit.test_plugins"
    group = "holdfast.toolkit"
    found = [
        EntryPoint("good", f"{here}:good", group),
        EntryPoint("made", f"{here}:made", group),
        EntryPoint("leaving", f"{here}:leaving", group),
        EntryPoint("evil\x1b[2J", f"{here}:good", group),
        EntryPoint("broken", f"{here}:broken", group),
        EntryPoint("nothing", f"{here}:nothing", group),
        EntryPoint("missing", f"{here}:missing", group),
        EntryPoint("clashing", f"{here}:clashing", group),
        EntryPoint("twice", f"{here}:good", group),
        EntryPoint("twice", f"{here}:made", group),
    ]
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: found)  # pyright: ignore


@pytest.mark.promise("KIT-16")
@pytest.mark.parametrize("name", ["good", "made"])
def test_plugin_tools_get_the_plugins_name_as_prefix(name: str):
    box = Toolbox("box")

    box.plug_in(name)

    assert list(box.tools) == [f"{name}_look"]
    assert [code.name for code in box.tools[f"{name}_look"].codes][1:2] == ["GONE"]


@pytest.mark.promise("KIT-16")
def test_plugin_that_is_not_named_is_not_loaded():
    assert list(Toolbox("box").tools) == []


@pytest.mark.promise("KIT-16")
@pytest.mark.parametrize(
    "name", ["unheard-of", "broken", "leaving", "nothing", "missing", "twice", "clashing"]
)
def test_failing_plugin_raises_and_adds_nothing(name: str):
    box = Toolbox("box")
    box.tool(name="clashing_look")(look)

    with pytest.raises(HoldfastError) as refused:
        box.plug_in(name)

    assert (refused.value.code, refused.value.message.count(f"The plugin {name!r}")) == (codes.BAD_PLUGIN, 1)
    assert list(box.tools) == ["clashing_look"]


@pytest.mark.promise("KIT-16")
@pytest.mark.parametrize(
    "name", ["", "evil\x1b[2J", "gооd", "../good", "good\n", "a" * 65, "good:made", "-x"]
)
def test_plugin_with_a_hostile_name_is_refused(name: str):
    with pytest.raises(HoldfastError) as refused:
        Toolbox("box").plug_in(name)

    assert (refused.value.code, refused.value.message.isprintable()) == (codes.BAD_PLUGIN, True)


def test_names_of_installed_plugins_are_safe_to_print():
    with pytest.raises(HoldfastError) as refused:
        Toolbox("box").plug_in("unheard-of")

    assert "good" in refused.value.message
    assert "evil" not in refused.value.message


@pytest.mark.promise("KIT-16")
def test_server_with_a_failing_plugin_does_not_start(tmp_path: Path):
    script = tmp_path / "server.py"
    script.write_text("from holdfast.toolkit import Toolbox\nToolbox('box').main()\n")

    done = subprocess.run(
        [sys.executable, script, "--plugin", "unheard-of"],
        capture_output=True,
        text=True,
        check=False,
        timeout=20,
    )

    assert (done.returncode, done.stdout) == (1, "")
    assert "[BAD_PLUGIN]" in done.stderr
