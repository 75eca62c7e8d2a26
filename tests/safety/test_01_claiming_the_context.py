"""Attack 1: a config sets the context variables in `env` to claim more trust than the session has."""

from pathlib import Path

import pytest

from holdfast.model.context import context_env
from tests.connect.conftest import HostFactory, counter_entry, make_host

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
