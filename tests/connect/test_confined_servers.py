"""A server that is confined in every session: also in a direct one, it is told the lower trust and is never shared."""

import json
from pathlib import Path
from typing import Any

import pytest

from holdfast.host.data_folder import KEYS_FOLDER
from holdfast.model.context import META_KEY, context_env, context_fields
from holdfast.model.trust import Trust
from holdfast.token.claims import audience_of
from holdfast.token.signer import Signer
from holdfast.token.verifier import Verifier
from tests.connect.conftest import HostFactory, counter_entry, for_sandboxed
from tests.connect.web import HEADER, ScriptedServer, http_entry, serve
from tests.sandbox.conftest import bwrap  # pyright: ignore[reportUnusedImport] # noqa: F401

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("bwrap")]

ERAS = {"modern": (), "handshake": ("--handshake",)}


def confined(entry: dict[str, Any], **more: Any) -> dict[str, Any]:
    """The same entry, confined in every session."""
    return {**for_sandboxed(entry), "confined": True, **more}


@pytest.mark.promise("RES-14")
@pytest.mark.parametrize("era", ERAS)
async def test_in_a_direct_session_every_request_says_sandboxed(
    make_host: HostFactory, folder: Path, era: str
):
    servers = {"c": confined(counter_entry(*ERAS[era])), "direct": counter_entry(*ERAS[era])}
    async with make_host(servers) as host, host.session(cwd=folder) as session:
        assert session.refusals == ()
        seen, other = [(await session.call(f"{name}.whoami")).data for name in servers]
        context = session.server("c").context_for_server(session.context)

    assert (session.context.trust_level, context.trust_level) == (Trust.DIRECT, Trust.SANDBOXED)
    assert (seen["env"], seen["meta"]) == (context_env(context), context_fields(context))
    assert (seen["initialize"] or seen["meta"])["trust_level"] == "sandboxed"
    assert (other["env"], other["meta"]) == (context_env(session.context), context_fields(session.context))


@pytest.mark.slow
@pytest.mark.promise("RES-14")
async def test_sessions_do_not_share_a_confined_server_even_if_its_lifetime_is_the_hosts(
    make_host: HostFactory, folder: Path
):
    shared = counter_entry("--shared", lifetime="host")
    servers = {"confined": confined(shared), "control": shared}
    counts: dict[str, list[str]] = {}
    async with make_host(servers) as host:
        for name in servers:
            async with host.session(cwd=folder) as one, host.session(cwd=folder) as other:
                counts[name] = [(await session.call(f"{name}.count")).text for session in (one, other)]

    assert counts == {"confined": ["1", "1"], "control": ["1", "2"]}


@pytest.mark.promise("RES-14", "CTX-08")
async def test_token_for_a_confined_remote_server_says_sandboxed(
    make_host: HostFactory, folder: Path, tmp_path: Path
):
    scripted = ScriptedServer()
    async with serve(scripted) as url:
        servers = {"web": http_entry(url, confined=True)}
        async with (
            make_host(servers, HOLDFAST_SERVERS_REACHABLE="127.0.0.1") as host,
            host.session(cwd=folder) as session,
        ):
            await session.call("web.go")

    verifier = Verifier(Signer(tmp_path / "data" / KEYS_FOLDER).public_file)
    told = {
        verifier.verify(headers[HEADER], audience_of(f"{url}/mcp"), request=body).context.trust_level
        for _, headers, body in scripted.requests
    }
    in_meta = {json.loads(body)["params"]["_meta"][META_KEY]["trust_level"] for _, body in scripted.calls()}
    assert (told, in_meta) == ({Trust.SANDBOXED}, {"sandboxed"})
