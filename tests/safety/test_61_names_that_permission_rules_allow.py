"""Attack 61: a client names its own server as an `allow` rule names one of the user's, so that its tools run without a question."""

from pathlib import Path

import pytest

from holdfast.host.open_options import OpenOptions
from holdfast.model.event import Decision
from holdfast.model.permission import Mode
from holdfast.model.server import Source
from holdfast.session import permission_rules
from tests.connect.conftest import HostFactory, make_host
from tests.journeys.editor import tools_server
from tests.session.support import ScriptedUser

__all__ = ["make_host"]
pytestmark = [pytest.mark.anyio, pytest.mark.promise("SES-04")]

ALLOW = {"HOLDFAST_PERMISSION_ALLOW": "github.*"}


async def call_outcome(make_host: HostFactory, folder: Path, *, by_client: bool) -> str:
    """The outcome of a call of `github.echo`, with a user who rejects every call."""
    brought = tools_server("github")
    own = {"command": brought["command"], "args": brought["args"]}
    options = OpenOptions(cwd=folder, client_servers=(brought,) if by_client else (), mode=Mode.ASK)
    async with make_host({} if by_client else {"github": own}, **ALLOW) as host:
        session = await host.open(options)
        session.attach(ScriptedUser(Decision.REJECT))
        await session.wait_ready_and_store()
        return (await session.call("github.echo", {"text": "hi"})).outcome


async def test_the_user_is_asked_about_a_server_that_a_client_brings(make_host: HostFactory, tmp_path: Path):
    own = await call_outcome(make_host, tmp_path, by_client=False)
    brought = await call_outcome(make_host, tmp_path, by_client=True)

    assert (own, brought) == ("completed", "refused")


async def test_control_a_rule_that_goes_by_the_name_only_allows_it(
    make_host: HostFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(permission_rules, "_SOURCES_FOR_ALLOW_RULES", frozenset(Source))

    assert await call_outcome(make_host, tmp_path, by_client=True) == "completed"
