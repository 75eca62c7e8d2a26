"""What the pages for authors show is what happens."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast.model.context import SessionContext
from holdfast.model.trust import Trust
from holdfast.toolkit import Toolbox
from holdfast.workspaces import Registry
from tests.toolkit.clients import Client, started
from tests.toolkit.contexts import ANN, context_env
from tests.toolkit.http import ROOT

DOCS = ROOT / "docs"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: str) -> list[str]:
    return BLOCK.findall((DOCS / page).read_text(encoding="utf-8"))


def test_the_first_tool_works_as_its_page_says(tmp_path: Path):
    (script,) = blocks("first-tool.md")
    (tmp_path / "notes.py").write_text(script)
    (tmp_path / "blog").mkdir()
    Registry(tmp_path / "data" / "workspaces").add(tmp_path / "blog", "Blog")

    with started(
        [sys.executable, "notes.py"], cwd=tmp_path, environ={"HOLDFAST_DATA_DIR": str(tmp_path / "data")}
    ) as pipes:
        stranger = Client(pipes, "modern")
        arguments = {"title": "first", "body": "hello there", "workspace": "blog"}
        added, again = stranger.call("add_note", arguments), stranger.call("add_note", arguments)
        listed = stranger.call("list_notes", {"workspace": str(tmp_path / "blog")})

    shown = _json_in("first-tool.md")
    assert _told(added) == _told(shown)
    assert (added["_meta"].keys(), again["code"], listed["items"]) == (
        shown["_meta"].keys(),
        "NOTE_EXISTS",
        ["first"],
    )


def test_in_a_session_the_same_file_knows_who_calls(tmp_path: Path):
    (script,) = blocks("first-tool.md")
    (tmp_path / "notes.py").write_text(script)

    with started([sys.executable, "notes.py"], cwd=tmp_path, environ=context_env(ANN)) as pipes:
        added = Client(pipes, "handshake").call("add_note", {"title": "mine", "body": ""})

    assert (added["written_by"], (tmp_path / "notes" / "blog" / "mine.txt").exists()) == (
        ANN.session_id,
        True,
    )


def test_the_manifest_of_the_first_tool_is_printed(tmp_path: Path):
    (script,) = blocks("first-tool.md")
    (tmp_path / "notes.py").write_text(script)

    done = subprocess.run(
        [sys.executable, "notes.py", "manifest"], cwd=tmp_path, capture_output=True, text=True, check=True
    )

    assert [tool["name"] for tool in json.loads(done.stdout)["tools"]] == ["add_note", "list_notes"]


@pytest.mark.anyio
async def test_the_code_on_tool_security_does_what_it_says(tmp_path: Path):
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
def test_the_page_of_codes_is_made_from_the_registry():
    printed = subprocess.run(
        [sys.executable, ROOT / "scripts" / "codes"], capture_output=True, text=True, check=True
    ).stdout

    assert (DOCS / "codes.md").read_text(encoding="utf-8") == printed, "run: scripts/codes > docs/codes.md"


@pytest.mark.promise("KIT-10")
def test_the_page_on_security_says_that_the_keyword_check_is_no_wall():
    assert "a seat belt, not a wall" in (DOCS / "tool-security.md").read_text(encoding="utf-8")


def _box(block: str) -> Toolbox:
    names: dict[str, Any] = {"__name__": "docs"}
    exec(compile(block, "docs", "exec"), names)
    return names["box"]


async def _code(box: Toolbox, tool: str, arguments: dict[str, Any], session: SessionContext | None) -> str:
    from holdfast.model.envelope import Failed
    from holdfast.toolkit import Call
    from holdfast.wire.frame import Raw

    call = Call(tool=tool, session=session)
    outcome = await box.dispatcher().dispatch(call, Raw(json.dumps(arguments).encode()))
    return outcome.envelope.code if isinstance(outcome.envelope, Failed) else "OK"


def _json_in(page: str) -> dict[str, Any]:
    (found,) = re.findall(r"^```json\n(.*?)^```$", (DOCS / page).read_text(), re.MULTILINE | re.DOTALL)
    return json.loads(found)


def _told(envelope: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in envelope.items() if key != "_meta"}
