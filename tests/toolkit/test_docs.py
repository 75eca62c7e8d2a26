"""The code and output in the pages for tool authors are real."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast.model.context import SessionContext
from holdfast.model.trust import Trust
from holdfast.toolkit import Call, Operation, Toolbox
from holdfast.workspaces import Registry
from tests.toolkit.clients import Client, spawn_command
from tests.toolkit.contexts import ANN, context_env
from tests.toolkit.server_process import ROOT

DOCS = ROOT / "docs"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: str) -> list[str]:
    return BLOCK.findall((DOCS / page).read_text(encoding="utf-8"))


def test_first_tool_works_as_documented(tmp_path: Path):
    script, _ = blocks("first-tool.md")
    (tmp_path / "notes.py").write_text(script)
    (tmp_path / "blog").mkdir()
    Registry(tmp_path / "data" / "workspaces").add(tmp_path / "blog", "Blog")

    with spawn_command(
        [sys.executable, "notes.py"], cwd=tmp_path, environ={"HOLDFAST_DATA_DIR": str(tmp_path / "data")}
    ) as pipes:
        anonymous = Client(pipes, "modern")
        arguments = {"title": "first", "body": "hello there", "workspace": "blog"}
        added, again = anonymous.call("add_note", arguments), anonymous.call("add_note", arguments)
        listed = anonymous.call("list_notes", {"workspace": str(tmp_path / "blog")})

    shown = _first_json("first-tool.md")
    assert _without_meta(added) == _without_meta(shown)
    assert (added["_meta"] | {"elapsed_ms": 30.2}, again["code"], listed["items"]) == (
        shown["_meta"],
        "NOTE_EXISTS",
        ["first"],
    )


def test_first_tool_knows_its_session(tmp_path: Path):
    script, _ = blocks("first-tool.md")
    (tmp_path / "notes.py").write_text(script)
    folder = tmp_path / "blog"
    folder.mkdir()
    Registry(tmp_path / "data" / "workspaces").add(folder, "Blog")

    environ = {**context_env(ANN), "HOLDFAST_DATA_DIR": str(tmp_path / "data")}
    with spawn_command([sys.executable, "notes.py"], cwd=tmp_path, environ=environ) as pipes:
        added = Client(pipes, "handshake").call("add_note", {"title": "mine", "body": ""})

    assert (added["written_by"], (folder / "notes" / "mine.txt").exists()) == (
        ANN.session_id,
        True,
    )


def test_first_tool_prints_its_manifest(tmp_path: Path):
    script, _ = blocks("first-tool.md")
    (tmp_path / "notes.py").write_text(script)

    done = subprocess.run(
        [sys.executable, "notes.py", "manifest"], cwd=tmp_path, capture_output=True, text=True, check=True
    )

    assert [tool["name"] for tool in json.loads(done.stdout)["tools"]] == ["add_note", "list_notes"]


def test_an_included_box_has_the_names_that_the_page_says():
    _, include = blocks("first-tool.md")
    names: dict[str, Any] = {}

    exec(include, names)

    assert [*names["shop"].tools] == ["orders_cancel"]


def test_first_tool_describes_every_operation():
    page = (DOCS / "first-tool.md").read_text(encoding="utf-8")
    table = page.partition("## Operations\n")[2]

    assert set(re.findall(r"^\| `(\w+)`", table, re.MULTILINE)) == set(Operation)


@pytest.mark.anyio
async def test_code_in_tool_security_works_as_documented(tmp_path: Path):
    deploy, files, page = (_box(block) for block in blocks("tool-security.md"))
    bob = SessionContext(session_id=ANN.session_id, trust_level=Trust.DIRECT, user_id="bob")
    (tmp_path / "in.txt").write_text("inside")
    (tmp_path.parent / "out.txt").write_text("outside")
    registry = Registry(tmp_path / "data" / "workspaces")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "in.txt").write_text("inside")
    registry.add(folder, "blog")
    files._workspaces = registry

    assert await _code(deploy, "deploy", {"tag": "v2"}, ANN) == "OK"
    assert await _code(deploy, "deploy", {"tag": "v2"}, bob) == "DENIED"
    assert await _code(deploy, "deploy", {"tag": "v2"}, None) == "DENIED"
    assert await _code(deploy, "status", {}, None) == "NO_CONTEXT"
    assert await _code(files, "read", {"name": "in.txt"}, ANN) == "OK"
    assert await _code(files, "read", {"name": "../in.txt"}, ANN) == "DENIED"
    assert await _code(page, "evaluate", {"script": "1"}, ANN) == "EVAL_DISABLED"


@pytest.mark.promise("KIT-07")
def test_codes_page_is_up_to_date():
    printed = subprocess.run(
        [sys.executable, ROOT / "scripts" / "codes"], capture_output=True, text=True, check=True
    ).stdout

    assert (DOCS / "codes.md").read_text(encoding="utf-8") == printed, "run: scripts/codes > docs/codes.md"


@pytest.mark.promise("KIT-10")
def test_tool_security_says_that_the_keyword_check_is_not_a_sandbox():
    assert "stops accidents, not attackers" in (DOCS / "tool-security.md").read_text(encoding="utf-8")


def _box(block: str) -> Toolbox:
    names: dict[str, Any] = {"__name__": "docs"}
    exec(compile(block, "docs", "exec"), names)
    return names["box"]


async def _code(box: Toolbox, tool: str, arguments: dict[str, Any], session: SessionContext | None) -> str:
    from holdfast.toolkit import Call
    from holdfast.toolkit.outcome import Failed
    from holdfast.wire.messages import Raw

    call = Call(tool=tool, session=session)
    result = await box.dispatcher().dispatch(call, Raw(json.dumps(arguments).encode()))
    return result.envelope.code if isinstance(result.envelope, Failed) else "OK"


def _first_json(page: str) -> dict[str, Any]:
    found, *_ = re.findall(r"^```json\n(.*?)^```$", (DOCS / page).read_text(), re.MULTILINE | re.DOTALL)
    return json.loads(found)


def _without_meta(envelope: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in envelope.items() if key != "_meta"}


def test_results_page_works_as_documented(tmp_path: Path):
    (script,) = blocks("tool-results.md")
    (tmp_path / "shop.py").write_text(script)

    with spawn_command([sys.executable, "shop.py"], cwd=tmp_path) as pipes:
        client = Client(pipes, "handshake")
        checked = client.raw_call("check_disk")
        listed = client.raw_call("list_orders", {"cursor": "100"})
        shown, missing = (client.raw_call("show_order", {"number": number}) for number in (3, 200))

    shape = json.loads(
        re.findall(r"^```json\n(.*?)^```$", _read("tool-results.md"), re.MULTILINE | re.DOTALL)[1]
    )
    stats = {"elapsed_ms": 1.5, "session_id": ""}
    checked["_meta"]["dev.holdfast/envelope"] |= stats
    assert checked == shape
    assert (listed["structuredContent"]["items"][0], "next_cursor" in listed["structuredContent"]) == (
        "order 100",
        False,
    )
    assert [block["type"] for block in shown["content"]] == ["text", "image"]
    assert missing["content"][0]["text"].startswith("TOOL_FAILED: There is no order 200.\n")


def _read(page: str) -> str:
    return (DOCS / page).read_text(encoding="utf-8")


def test_the_table_of_the_call_has_all_of_its_attributes():
    page = (DOCS / "tool-arguments.md").read_text(encoding="utf-8")
    table = page.partition("## The call")[2].partition("## Patterns")[0]
    first_cells = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")][1:]
    documented = re.findall(r"`(?:await )?(\w+)", " ".join(first_cells))

    attributes = [name for name in dir(Call) if not name.startswith("_") and hasattr(Call, name)]
    assert sorted(documented) == sorted(attributes)
