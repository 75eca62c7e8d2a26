"""Attack 1: a config's `env` sets our session variables, to claim more trust than the session has."""

from pathlib import Path

import pytest

from holdfast.model.carriers import context_env
from tests.connect.conftest import HostFactory, counter, make_host

__all__ = ["make_host"]
pytestmark = pytest.mark.anyio

CLAIM = {
    "HOLDFAST_TRUST_LEVEL": "sandboxed",
    "HOLDFAST_SESSION_ID": "sess_0000000000000000",
    "HOLDFAST_USER_ID": "root",
}


@pytest.mark.promise("CTX-02")
@pytest.mark.promise("CTX-01")
async def test_the_server_sees_the_host_s_values(make_host: HostFactory, tmp_path: Path):
    async with make_host({"c": counter(env=CLAIM)}) as host, host.session(cwd=tmp_path) as session:
        seen = (await session.call("c.whoami")).data["env"]
        cautions = [caution.text for caution in session.cautions]

        assert seen == context_env(session.context)
    assert [caution.partition(",")[0] for caution in cautions] == ["Its entry sets HOLDFAST_SESSION_ID"]


async def test_control_where_the_context_only_fills_gaps_the_claim_wins(
    make_host: HostFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    import holdfast.resolve.resolve as pipeline
    from holdfast.model.aliases import Aliases
    from holdfast.model.context import SessionContext
    from holdfast.model.resolution import Resolution
    from holdfast.model.server import Stdio

    def fill_gaps(resolution: Resolution, context: SessionContext, aliases: Aliases) -> Resolution:
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

    monkeypatch.setattr(pipeline, "inject", fill_gaps)
    async with make_host({"c": counter(env=CLAIM)}) as host, host.session(cwd=tmp_path) as session:
        seen = (await session.call("c.whoami")).data["env"]

        assert {name: seen[name] for name in CLAIM} == CLAIM
