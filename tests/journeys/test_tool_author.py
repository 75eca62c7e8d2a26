"""What an author of tools sees in a terminal and in a pipe: each advice works if it is followed to the letter."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.sandbox.bwrap.bwrap import BwrapSandbox
from tests.commands import run_holdfast
from tests.journeys.editor import environment
from tests.journeys.terminal import PATIENCE
from tests.journeys.test_first_tool_page import SCRIPT

SHOP = '''
from typing import Literal

from holdfast.toolkit import Toolbox, ToolError

box = Toolbox("shop", envelope="{envelope}")
SOLD_OUT = box.code("SOLD_OUT", http=409, hint="Order tea.")


@box.tool(codes=["SOLD_OUT"])
def order(item: str) -> str:
    """{description}"""
    print("asked for", item)
    if item == "cake":
        raise ToolError(SOLD_OUT, "There is no cake left.")
    return str(int(item))


@box.prompt
def praise(dish: str, style: Literal["short", "long"] = "short") -> str:
    return dish


@box.resource("shop://{{number}}")
def bill(number: str) -> str:
    return number


@box.resource("shop://menu")
def menu() -> str:
    return "tea"


box.main()
'''


def write_shop(file: Path, envelope: str = "meta", description: str = "Order something.") -> None:
    file.write_text(SHOP.format(envelope=envelope, description=description))


def add(home: Path, name: str, **entry: object) -> None:
    (home / "mcp.json").write_text(json.dumps({"mcpServers": {name: entry}}))


def run(home: Path, cwd: Path, *words: str, typed: str = "") -> "subprocess.CompletedProcess[str]":
    return run_holdfast(*words, cwd=cwd, env=environment(home), input=typed, timeout=PATIENCE)


@pytest.mark.promise("WSP-04")
def test_a_confined_tool_works_in_the_workspaces_folder_or_says_that_it_cannot_see_it(
    home: Path, cwd: Path, tmp_path: Path, bwrap: BwrapSandbox
):
    script, elsewhere = tmp_path / "notes.py", tmp_path / "elsewhere"
    script.write_text(SCRIPT)
    (cwd / "notes").mkdir()
    (cwd / "notes" / "first.txt").write_text("hello")
    elsewhere.mkdir()
    entry = {"command": sys.executable, "args": [str(script)], "trust_level": "sandboxed", "cwd": "/"}
    add(home, "notes", pin_tools=False, **entry)
    run(home, cwd, "workspaces", "add", str(cwd), "--name", "blog")

    inside = run(home, cwd, "call", "notes.list_notes")
    outside = run(home, elsewhere, "call", "--trust", "sandboxed", "--workspace", "blog", "notes.list_notes")

    assert json.loads(inside.stdout)["items"] == ["first"]
    assert outside.returncode == 1
    assert "This server cannot see the folder of the workspace 'blog'" in outside.stderr
    assert (
        "Hint: Open the session in the workspace's folder, in Holdfast's commands with --cwd FOLDER"
        in outside.stderr
    )


def test_a_piped_dev_session_shows_tools_printed_lines_templates_and_where_the_log_is(home: Path, cwd: Path):
    write_shop(cwd / "shop.py")
    typed = "\n".join(
        (
            "/tools",
            '/call shop.order {"item": "x"}',
            "/call shop.odrer {}",
            "/call shop.zzz {}",
            "/resources shop",
            "/prompts shop",
            "/logs shop",
            "",
        )
    )

    shown = run(home, cwd, "dev", "--mode", "auto", "shop.py", typed=typed)

    assert "- shop.order [" in shown.stdout
    assert "Its log has the details: /logs shop" in shown.stdout
    assert "| asked for x" in shown.stdout
    assert "Did you mean 'shop.order'?" in shown.stdout
    assert "There is no tool 'shop.zzz'. The tools of 'shop' are: " in shown.stdout
    assert "- shop shop://{number}" in shown.stdout
    assert "- shop praise (dish, style?)" in shown.stdout
    assert "(1 tool)" in shown.stderr


@pytest.mark.parametrize("envelope", ["content", "meta"])
def test_a_failure_with_the_authors_own_code_looks_the_same_in_both_envelopes(
    home: Path, cwd: Path, envelope: str
):
    write_shop(cwd / "shop.py", envelope)
    add(home, "shop", command=sys.executable, args=[str(cwd / "shop.py")])

    failed = run(home, cwd, "call", "shop.order", '{"item": "cake"}')

    assert (failed.returncode, failed.stderr) == (
        1,
        "Error: SOLD_OUT: There is no cake left.\nHint: Order tea.\n",
    )


@pytest.mark.slow
def test_changed_tools_are_approved_by_the_advised_command_without_a_terminal(home: Path, cwd: Path):
    write_shop(cwd / "shop.py")
    add(home, "shop", command=sys.executable, args=[str(cwd / "shop.py")])
    run(home, cwd, "tools", "shop")
    write_shop(cwd / "shop.py", description="Order anything.")

    refused = run(home, cwd, "call", "shop.order", '{"item": "1"}')
    first = refused.stderr.strip().rpartition("approve it: holdfast ")[2].split()
    shown = run(home, cwd, *first)
    advised = " ".join(shown.stdout.split()).rpartition("To approve them, run: holdfast ")[2].split()
    approved = run(home, cwd, *advised)
    unknown = run(home, cwd, "servers", "approve", "shpo")

    assert (shown.returncode, "Order anything." in shown.stdout) == (1, True)
    assert (approved.returncode, run(home, cwd, "call", "shop.order", '{"item": "1"}').returncode) == (0, 0)
    assert "Did you mean 'shop'?" in unknown.stderr


def test_a_file_that_does_not_call_main_is_named_as_the_reason(home: Path, cwd: Path):
    (cwd / "silent.py").write_text("answer = 42\n")
    (cwd / "broken.py").write_text('raise SystemExit("Error: the box is broken")\n')

    probed = run(home, cwd, "probe", "--", sys.executable, "silent.py")
    tried = run(home, cwd, "dev", "silent.py", typed="/tools\n")
    broken = run(home, cwd, "probe", "--", sys.executable, "broken.py")

    assert "probably does not call box.main()" in probed.stderr
    assert "probably does not call box.main()" in tried.stderr
    assert "| Error: the box is broken" in broken.stderr
    assert "Hint: Correct the error that the server wrote to standard error" in broken.stderr


def test_the_failure_of_a_remote_server_names_no_log(home: Path, cwd: Path):
    write_shop(cwd / "shop.py")
    server = subprocess.Popen(
        [sys.executable, "shop.py", "--http", "0.0.0.0:0"],
        cwd=cwd,
        env=environment(home),
        stderr=subprocess.PIPE,
        text=True,
    )
    assert server.stderr is not None
    try:
        line = next(line for line in server.stderr if "shop: connect to " in line)
        url = line.strip().rpartition(" ")[2]
        add(home, "shop", type="http", url=f"{url}/")  # the slash at the end is harmless

        failed = run(home, cwd, "call", "shop.order", '{"item": "x"}')
    finally:
        server.terminate()
        server.wait(PATIENCE)
        server.stderr.close()

    assert url.startswith("http://127.0.0.1:")
    assert "Hint: This is a bug in the server. It has no log on this machine." in failed.stderr
