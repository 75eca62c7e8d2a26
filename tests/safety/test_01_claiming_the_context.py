"""Attack 1: a config sets the context variables in `env` to claim more trust than the session has."""

from pathlib import Path
from typing import Any

import pytest

from holdfast.model.context import context_env
from tests.connect import counter_server
from tests.connect.conftest import HostFactory, counter_entry, make_host
from tests.toolkit.server_process import ROOT

__all__ = ["make_host"]
pytestmark = pytest.mark.anyio

CLAIM = {
    "HOLDFAST_TRUST_LEVEL": "sandboxed",
    "HOLDFAST_SESSION_ID": "sess_0000000000000000",
    "HOLDFAST_USER_ID": "root",
}


@pytest.mark.promise("CTX-02")
@pytest.mark.promise("CTX-01")
async def test_server_gets_the_hosts_values(make_host: HostFactory, tmp_path: Path):
    async with make_host({"c": counter_entry(env=CLAIM)}) as host, host.session(cwd=tmp_path) as session:
        env = (await session.call("c.whoami")).data["env"]
        warnings = [warning.text for warning in session.warnings]

        assert env == context_env(session.context)
    assert [warning.partition(",")[0] for warning in warnings] == ["Its entry sets HOLDFAST_SESSION_ID"]


async def test_control_setdefault_lets_the_claim_win(
    make_host: HostFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    import holdfast.resolve.resolve as pipeline
    from holdfast.model.context import SessionContext
    from holdfast.model.context_aliases import ContextAliases
    from holdfast.model.resolution import Resolution
    from holdfast.model.server import Stdio

    def set_defaults(resolution: Resolution, context: SessionContext, aliases: ContextAliases) -> Resolution:
        from dataclasses import replace

        servers = tuple(
            replace(
                server,
                transport=replace(server.transport, env={**context_env(context), **server.transport.env}),
            )
            for server in resolution.servers
            if isinstance(server.transport, Stdio)
        )
        return replace(resolution, servers=servers)

    monkeypatch.setattr(pipeline, "inject", set_defaults)
    async with make_host({"c": counter_entry(env=CLAIM)}) as host, host.session(cwd=tmp_path) as session:
        env = (await session.call("c.whoami")).data["env"]

        assert {name: env[name] for name in CLAIM} == CLAIM


# The command of an entry sets the variables for its child


def wrapped_entry(module: str, *flags: str) -> dict[str, Any]:
    """An entry whose command claims the context: `env NAME=VALUE… python -m module`."""
    entry = counter_entry()
    claim = [f"{name}={value}" for name, value in {**CLAIM, "HOLDFAST_TRUST_LEVEL": "direct"}.items()]
    return {**entry, "command": "env", "args": [*flags, *claim, entry["command"], "-m", module]}


@pytest.mark.promise("CTX-02", "CTX-06")
@pytest.mark.parametrize("flags", [("-u", "HOLDFAST_WORKSPACE_ID"), ("-i", f"PYTHONPATH={ROOT}")])
async def test_toolkit_server_refuses_a_context_that_its_command_has_set(
    make_host: HostFactory, tmp_path: Path, flags: tuple[str, ...]
):
    entry = wrapped_entry("tests.toolkit.notes_server", *flags)
    async with make_host({"n": entry}) as host, host.session(cwd=tmp_path) as session:
        called = await session.call("n.powerful")
        refusals = [refusal.reason for refusal in session.refusals]

    assert (called.code, len(refusals)) == ("SERVER_REFUSED", 1)
    assert "The session in this server's environment is not the one that sent the request" in refusals[0]


async def test_control_server_that_only_reads_its_environment_believes_the_command(
    make_host: HostFactory, tmp_path: Path
):
    entry = wrapped_entry(counter_server.__name__)
    async with make_host({"c": entry}) as host, host.session(cwd=tmp_path) as session:
        env = (await session.call("c.whoami")).data["env"]

    assert env["HOLDFAST_SESSION_ID"] == CLAIM["HOLDFAST_SESSION_ID"]
