"""Attack 33: a folder or server whose name contains shell metacharacters, in a command that Holdfast advises to run."""

import ast
import asyncio
import os
import re
import shlex
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast import settings
from holdfast.audit.audit import Audit
from holdfast.connect.http.login_store import how_to_log_in
from holdfast.connect.http.oauth import login_needed_error
from holdfast.host.agent_definitions import AgentDefinitions
from holdfast.host.data_folder import check_data_folder
from holdfast.host.open_options import OpenOptions
from holdfast.host.remote.sockets import open_listening_socket
from holdfast.model.errors import HoldfastError
from holdfast.model.server import Http, ServerSpec, Source
from holdfast.model.untrusted_file import SharedFileError, read_own_file
from holdfast.store.memory import MemoryStore
from holdfast.token.signer import Signer
from holdfast.workspaces.registry import Registry
from tests.connect.conftest import HostFactory, make_host

__all__ = ["make_host"]

NAME = "a'; touch ran; 'b $(touch ran) `touch ran` && touch ran"
ROOT = Path(__file__).parents[2]
Command = Sequence[str]


def _login(folder: Path) -> tuple[str, Command]:
    spec = ServerSpec(name=NAME, transport=Http(url="https://example.org/mcp"), source=Source.USER)
    return login_needed_error(NAME, how_to_log_in(spec)).message, ("holdfast", "servers", "login", NAME)


def _shared_file(folder: Path) -> tuple[str, Command]:
    file = folder / "mcp.json"
    file.touch()
    file.chmod(0o666)
    with pytest.raises(SharedFileError) as caught:
        read_own_file(file, limit=100)
    return caught.value.strerror or "", ("chmod", "go-w", str(file))


def _workspace(folder: Path) -> tuple[str, Command]:
    file = folder / "blog.toml"
    file.touch()
    file.chmod(0o666)
    (invalid,) = Registry(folder).invalid
    return invalid.message, ("chmod", "600", str(file))


def _data_folder(folder: Path) -> tuple[str, Command]:
    folder.chmod(0o777)
    return _hint(lambda: check_data_folder(folder)), ("chmod", "go-w", str(folder))


def _parent_of_the_data_folder(folder: Path) -> tuple[str, Command]:
    folder.chmod(0o777)
    (folder / "data").mkdir(mode=0o700)
    return _hint(lambda: check_data_folder(folder / "data")), ("chmod", "o-w", str(folder))


def _sockets(folder: Path) -> tuple[str, Command]:
    (folder / "sockets").mkdir()
    (folder / "sockets").chmod(0o755)
    return _hint(lambda: open_listening_socket(folder, "a")), ("chmod", "700", str(folder / "sockets"))


def _signing_key(folder: Path) -> tuple[str, Command]:
    Signer(folder / "keys").jwks()
    (file,) = (folder / "keys").glob("context-keys.json")
    file.chmod(0o644)
    with pytest.raises(HoldfastError) as caught:
        Signer(folder / "keys").jwks()
    return caught.value.message, ("chmod", "600", str(file))


def _agent(folder: Path) -> tuple[str, Command]:
    file = folder / "agents" / "reviewer.md"
    file.parent.mkdir()
    file.write_text("You review.")
    file.chmod(0o666)

    async def require() -> None:
        store = MemoryStore()
        loaded = replace(settings.load(environ={}), file=folder / "config.toml")
        await AgentDefinitions(loaded, store, Audit(store)).require("reviewer", str(folder))

    with pytest.raises(HoldfastError) as caught:
        asyncio.run(require())
    return caught.value.message, ("chmod", "go-w", str(file))


ADVICE: list[Callable[[Path], tuple[str, Command]]] = [
    _login,
    _shared_file,
    _agent,
    _workspace,
    _data_folder,
    _parent_of_the_data_folder,
    _sockets,
    _signing_key,
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path.resolve() / NAME
    folder.mkdir(mode=0o700)
    return folder


@pytest.mark.parametrize("advice", ADVICE, ids=lambda advice: advice.__name__.removeprefix("_"))
def test_advised_command_names_exactly_this_folder_or_server(
    folder: Path, advice: Callable[[Path], tuple[str, Command]]
):
    text, command = advice(folder)

    _, advised, rest = text.partition(f"un: {shlex.join(command)}")
    assert advised
    assert not rest or rest[0].isspace(), "a full stop or a comma behind it would be copied with the command"
    assert not ran(shlex.join(command), folder)


@pytest.mark.anyio
async def test_command_to_move_a_session_names_the_folder(
    make_host: HostFactory, folder: Path, tmp_path: Path
):
    (tmp_path / "before").mkdir()
    async with make_host({}) as host:
        async with host.session(cwd=tmp_path / "before") as session:
            session_id = session.context.session_id
        with pytest.raises(HoldfastError) as caught:
            await host.reopen(session_id, OpenOptions(cwd=folder))

    command = shlex.join(("holdfast", "sessions", "move", session_id, str(folder)))
    assert (caught.value.message.endswith(f": {command}"), ran(command, folder)) == (True, False)


def test_control_in_quotation_marks_alone_the_name_runs_a_command(folder: Path):
    assert ran(f"chmod 700 '{folder}'", folder)


# Every message

_PROGRAM = r"(?:^|[\s`'(:])(?:holdfast [a-z]+|chmod|chown|mkdir|mount|mv|rm|cp|cd|git|npm|npx|pip|uv|uvx|docker|podman|sudo|kill) "
_COMMAND = re.compile(rf"{_PROGRAM}[^.;,\n]*\0")


@pytest.mark.slow
def test_every_command_in_a_message_is_quoted_as_a_whole():
    texts = {path: path.read_text(encoding="utf-8") for path in sorted((ROOT / "src").rglob("*.py"))}
    found = {
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path, text in texts.items()
        if re.search(_PROGRAM, text)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.JoinedStr) and inserts_into_a_command(node)
    }

    assert found == set()


@pytest.mark.parametrize(
    ("source", "is_found"),
    [
        ("f\"Run: chmod 700 '{folder}'\"", True),
        ('f"To log in: holdfast servers login {name}"', True),
        ('f"Run: {shlex.join(command)}"', False),
        ('f"Open it: holdfast chat --resume {short_id(session)}"', False),
        ('f"{count} commands were run. {name} remains."', False),
    ],
)
def test_names_that_are_inserted_into_a_command_are_recognised(source: str, is_found: bool):
    (statement,) = ast.parse(source).body

    assert isinstance(statement, ast.Expr)
    assert isinstance(statement.value, ast.JoinedStr)
    assert inserts_into_a_command(statement.value) is is_found


def inserts_into_a_command(node: ast.JoinedStr) -> bool:
    """Whether a text contains a shell command with an inserted value. The ids of sessions are plain."""
    text = "".join(
        part.value
        if isinstance(part, ast.Constant) and isinstance(part.value, str)
        else ""
        if "short_id(" in ast.unparse(part)
        else "\0"
        for part in node.values
    )
    return _COMMAND.search(text) is not None


def ran(command: str, folder: Path) -> bool:
    """Whether a shell that runs this command runs something else, too."""
    shell = f"chmod() {{ :; }}; holdfast() {{ :; }}; {command}"
    subprocess.run(["/bin/sh", "-c", shell], cwd=folder.parent, check=False, stderr=subprocess.DEVNULL)
    return os.path.lexists(folder.parent / "ran")


def _hint(work: Callable[[], object]) -> str:
    with pytest.raises(HoldfastError) as caught:
        work()
    return str(caught.value.details["hint"])
