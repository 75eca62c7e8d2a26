"""What `holdfast up` prints."""

import pytest

from holdfast.cli.up.printer import GatewayUrls, HumanPrinter, ServerNames
from holdfast.gateway.credential import Credential
from holdfast.gateway.options import SessionSummary, why_not_opened
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.wire.mcp.eras import Era

LOCAL = GatewayUrls(local="http://127.0.0.1:8765/mcp")


def test_refused_servers_are_named_with_the_reason_and_the_folder(capsys: pytest.CaptureFixture[str]):
    servers = ServerNames(folder="/work", names=(), refused={"git": "It is not for sandboxed sessions."})
    HumanPrinter().ready(LOCAL, servers, without_tokens=False)

    printed = capsys.readouterr().out
    assert (
        "Sessions in /work get no servers yet. A token with --workspace or --cwd gets those of its own folder. Not used:\n"
        in printed
    )
    assert "  git: It is not for sandboxed sessions.\n" in printed


def test_the_public_url_is_announced(capsys: pytest.CaptureFixture[str]):
    urls = GatewayUrls(local=LOCAL.local, public="https://mcp.example.org/mcp")
    HumanPrinter().ready(urls, ServerNames(folder="/", names=("git",), refused={}), without_tokens=False)

    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "Holdfast is ready for MCP clients at https://mcp.example.org/mcp"
    assert lines[1] == "The proxy at this URL must pass requests on to http://127.0.0.1:8765/mcp"


def test_a_session_that_could_not_be_opened_is_shown_with_the_reason(capsys: pytest.CaptureFixture[str]):
    error = HoldfastError(codes.STORE_CORRUPT, "'x.db' is damaged or not a database.")
    ended = why_not_opened(error)
    credential = Credential(id="abc", name="ann")
    summary = SessionSummary(
        session_id="", credential=credential, era=Era.HANDSHAKE, client="cl 1", ended=ended
    )
    HumanPrinter().session(summary)

    assert capsys.readouterr().out.endswith(
        "  - no session  cl 1 (ann): it could not be opened: 'x.db' is damaged or not a database.\n"
    )
