"""Holdfast without async: in a script, and in a notebook, whose thread has an event loop already."""

import asyncio
import os
import subprocess
import sys
import threading
from datetime import timedelta
from pathlib import Path

import pytest

from holdfast import HoldfastError, settings
from holdfast.store.memory import MemoryStore
from holdfast.sync import Host
from tests.host.box_servers import make_box

ROOT = Path(__file__).parents[2]


def make_host(tmp_path: Path) -> Host:
    (tmp_path / "config.toml").touch()
    environ = {
        "HOLDFAST_DATA_DIR": str(tmp_path / "data"),
        "HOLDFAST_SERVERS_USER_FILE": str(tmp_path / "mcp.json"),
        "HOLDFAST_SERVERS_HOST_FILE": str(tmp_path / "host.json"),
    }
    command = {
        "command": sys.executable,
        "args": ["-m", "tests.connect.counter_server"],
        "env": {"PYTHONPATH": str(ROOT)},
    }
    loaded = settings.load(tmp_path / "config.toml", environ)
    return Host(settings=loaded, store=MemoryStore(), servers={"shop": make_box, "counter": command})


def test_a_host_is_opened_in_one_cell_and_closed_in_another(tmp_path: Path):
    threads = {*threading.enumerate()}
    host = make_host(tmp_path)
    with pytest.raises(HoldfastError, match="The host is not open"):
        host.session()

    async def cell(what: str) -> object:
        """A cell of a notebook: code in a thread that runs an event loop."""
        match what:
            case "open":
                host.open()
                return host.session(user_id="ann")
            case _:
                host.close()
                return None

    session = host.open().session()
    other = asyncio.run(cell("open"))
    counts = [session.call("counter.count").text for _ in range(2)]
    orders = session.call("shop.order", {"item": "tea"}).raise_for_error().data["orders"]
    with host.session() as third:
        third_count = third.call("counter.count").text
        names = {tool.name for tool in third.tools()}
        answered = third.prompt("/tools shop").text
        prompts = third.list_prompts("shop")
    with host.reopen(third.context.session_id) as again:
        is_same = again.context.session_id == third.context.session_id
        reopened = again.call("shop.order", {"item": "tea"}).ok
    pruned = host.prune(timedelta(days=1))
    asyncio.run(cell("close"))

    assert (counts, orders, third_count, "shop.order" in names, pruned) == (["1", "2"], 1, "1", True, 0)
    assert ("shop.order" in answered, prompts, is_same, reopened) == (True, [], True, True)
    assert [repr(each).split(", ")[-1] for each in (session, other)] == ["closed>>"] * 2
    with pytest.raises(HoldfastError, match=r"The host is closed\. Make another one"):
        host.session()
    with pytest.raises(HoldfastError, match="Make another one"):
        host.open()
    with pytest.raises(AttributeError, match=r"Write: async with holdfast\.Host"):
        _ = session.subscribe  # type: ignore[attr-defined]  # pyright: ignore
    host.close()
    left = [thread.name for thread in {*threading.enumerate()} - threads if "sync" in thread.name]
    assert left == []


INTERRUPTED_CLOSE = """
import os, signal, threading
from holdfast.sync import Host
from holdfast.toolkit import Toolbox

signal.signal(signal.SIGINT, signal.default_int_handler)  # a background process ignores it

async def lifespan(box):
    yield
    os.kill(os.getpid(), signal.SIGINT)

host = Host(servers={"shop": Toolbox("shop", lifespan=lifespan)}).open()
host.session()
try:
    host.close()
except KeyboardInterrupt:
    threads = [thread.name for thread in threading.enumerate() if "sync" in thread.name]
    print(repr(host).split(",")[0], threads)
"""


def test_a_host_is_closed_even_if_the_user_interrupts_the_closing_of_a_session(tmp_path: Path):
    (tmp_path / "config.toml").touch()
    environ = {
        **os.environ,
        "HOLDFAST_CONFIG": str(tmp_path / "config.toml"),
        "HOLDFAST_DATA_DIR": str(tmp_path / "data"),
    }

    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED_CLOSE],
        cwd=tmp_path,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.stdout == "<sync <Host closed []\n", done.stderr


def test_an_option_that_is_wrong_is_an_error_at_once(tmp_path: Path):
    with make_host(tmp_path) as host, pytest.raises(HoldfastError, match="`ask` must be a function"):
        host.session(ask=lambda: True)  # type: ignore[arg-type]
