"""Attack 44: a stranger's folder contains the code that a variable of your own server's entry names by a relative path."""

import json
import py_compile
import re
import sys
from pathlib import Path

import pytest

from holdfast import Host, settings
from holdfast.resolve import command_words, confine
from holdfast.resolve.relative_code import loads_relative_code

pytestmark = pytest.mark.anyio
SCRIPT = """
import os
from holdfast.toolkit import Toolbox

try:
    from helper_of_no_one import WHO
except ImportError:
    WHO = "none"
box = Toolbox("own")

@box.tool(operation="query")
def code() -> str:
    "Whose code was loaded."
    return WHO

box.main()
"""


def loads_nothing(name: str, value: str) -> bool:
    return False


@pytest.mark.parametrize("is_protected", [True, False], ids=["protected", "control"])
async def test_a_relative_search_path_does_not_lead_into_a_strangers_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_protected: bool
):
    if not is_protected:
        monkeypatch.setattr(confine, "loads_relative_code", loads_nothing)
    folder, script, file = tmp_path / "strange", tmp_path / "own.py", tmp_path / "mcp.json"
    folder.mkdir()
    (folder / "helper_of_no_one.py").write_text("WHO = 'the stranger'")
    script.write_text(SCRIPT)
    entry = {"command": sys.executable, "args": [str(script)]}
    entries = {"empty": "/nowhere:${NOT_SET_ANYWHERE:-}", "relative": "."}
    servers = {name: {**entry, "env": {"PYTHONPATH": value}} for name, value in entries.items()}
    file.write_text(json.dumps({"mcpServers": {**servers, "plain": entry}}))
    loaded = settings.load(
        environ={"HOLDFAST_DATA_DIR": str(tmp_path / "data"), "HOLDFAST_SERVERS_USER_FILE": str(file)}
    )
    async with Host(settings=loaded) as host, host.session(cwd=folder) as session:
        found = {name: (await session.call(f"{name}.code")).data["result"] for name in (*servers, "plain")}

    theirs = "none" if is_protected else "the stranger"
    assert found == {"empty": theirs, "relative": theirs, "plain": "none"}


@pytest.mark.slow
@pytest.mark.parametrize("is_protected", [True, False], ids=["protected", "control"])
async def test_a_relative_folder_of_compiled_code_does_not_lead_into_a_strangers_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_protected: bool
):
    if not is_protected:
        monkeypatch.setattr(command_words, "_RELATIVE_BYTECODE", re.compile("never"))
    folder, script, file = tmp_path / "strange", tmp_path / "own.py", tmp_path / "mcp.json"
    helper, theirs = tmp_path / "helper_of_no_one.py", tmp_path / "theirs.py"
    script.write_text(SCRIPT)
    helper.write_text("WHO = 'own'")
    theirs.write_text("WHO = 'the stranger'")
    compiled = f"{folder}/.cache{helper.with_suffix('')}.{sys.implementation.cache_tag}.pyc"
    py_compile.compile(str(theirs), compiled, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
    options = {"apart": ["-X", "pycache_prefix=.cache"], "glued": ["-Xpycache_prefix=./.cache"]}
    servers = {
        name: {"command": sys.executable, "args": [*words, str(script)]} for name, words in options.items()
    }
    file.write_text(json.dumps({"mcpServers": servers}))
    loaded = settings.load(
        environ={"HOLDFAST_DATA_DIR": str(tmp_path / "data"), "HOLDFAST_SERVERS_USER_FILE": str(file)}
    )
    async with Host(settings=loaded) as host, host.session(cwd=folder) as session:
        found = {name: (await session.call(f"{name}.code")).data["result"] for name in options}

    assert found == dict.fromkeys(options, "own" if is_protected else "the stranger")


@pytest.mark.parametrize(
    ("name", "value", "loads"),
    [
        ("NODE_OPTIONS", "--require dotenv/config", True),
        ("NODE_OPTIONS", "--import=tsx", True),
        ("NODE_OPTIONS", "--env-file=.env", True),
        ("NODE_OPTIONS", "--experimental-default-config-file", True),
        (
            "NODE_OPTIONS",
            "--max-old-space-size=4096 --require /opt/hook.js --import=file:///opt/x.mjs",
            False,
        ),
        ("NODE_PATH", "lib", True),
        ("LD_LIBRARY_PATH", "/opt/lib:", True),
        ("LD_PRELOAD", "./hook.so", True),
        ("LD_PRELOAD", "/opt/a.so hook/b.so", True),
        ("LD_LIBRARY_PATH", "/opt/lib;lib", True),
        ("PYTHONPATH", "/opt/my lib", False),
        ("OPENSSL_CONF", "openssl.cnf", True),
        ("PYTHONPYCACHEPREFIX", ".cache", True),
        ("PYTHONPATH", "/opt/lib:/opt/more", False),
        ("PYTHONUNBUFFERED", "1", False),
        ("NODE_ENV", "production", False),
        ("DATABASE", "notes.db", False),
    ],
)
def test_variables_that_name_code_by_a_relative_path_are_known(name: str, value: str, *, loads: bool):
    assert loads_relative_code(name, value) is loads
