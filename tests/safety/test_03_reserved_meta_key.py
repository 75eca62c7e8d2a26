"""Attack 3: the agent sets the reserved `_meta` key of a call to impersonate another session."""

from pathlib import Path

import pytest

from holdfast.model.context import META_KEY, context_fields
from holdfast.model.json import Json
from holdfast.wire.mcp.client import Client
from holdfast.wire.mcp.eras import Implementation, OwnInfo
from holdfast.wire.messages import Raw
from tests.connect.conftest import HostFactory, counter_entry, make_host

__all__ = ["make_host"]
pytestmark = pytest.mark.anyio

FORGED: Json = {
    "session_id": "sess_00000000000000000000000000000000",
    "trust_level": "direct",
    "user_id": "root",
}
SPELLINGS: tuple[str, ...] = (
    META_KEY,
    META_KEY.upper(),
    "Dev.Holdfast/Session",
    f" {META_KEY} ",
    "ｄｅｖ．ｈｏｌｄｆａｓｔ／ｓｅｓｓｉｏｎ",
    "dev.holdfast/other",
    "io.modelcontextprotocol/protocolVersion",
)


@pytest.mark.promise("CTX-06")
@pytest.mark.parametrize(
    "flags", [(), ("--handshake",), ("--shared",)], ids=["modern", "handshake", "shared"]
)
async def test_server_gets_the_hosts_value_and_nothing_of_the_forged_one(
    make_host: HostFactory, tmp_path: Path, flags: tuple[str, ...]
):
    entry = counter_entry(*flags, lifetime="host" if "--shared" in flags else "session")
    async with make_host({"c": entry}) as host, host.session(cwd=tmp_path) as session:
        seen = (await session.call("c.whoami", meta=dict.fromkeys(SPELLINGS, FORGED))).data
        plain = (await session.call("c.whoami")).data

    assert (seen["meta"], seen["keys"]) == (context_fields(session.context), plain["keys"])


@pytest.mark.promise("CTX-06")
async def test_other_meta_keys_are_passed_on(make_host: HostFactory, tmp_path: Path):
    async with make_host({"c": counter_entry()}) as host, host.session(cwd=tmp_path) as session:
        seen = (await session.call("c.whoami", meta={"com.example/trace": "1"})).data

    assert "com.example/trace" in seen["keys"]


async def test_control_client_without_the_filter_sends_the_forged_value(
    make_host: HostFactory, tmp_path: Path
):
    async with make_host({"c": counter_entry()}) as host, host.session(cwd=tmp_path) as session:
        _, connection = await host.links.connect(session.scope, session.server("c"))
        bare = Client(
            connection._client.peer,
            OwnInfo(implementation=Implementation("bare", "1")),
            connection.server_info,
        )
        seen = await bare.call_tool("whoami", Raw(b"{}"), meta={META_KEY: FORGED})

    assert b"sess_0000" in bytes(seen.structured_content)  # pyright: ignore[reportArgumentType]
