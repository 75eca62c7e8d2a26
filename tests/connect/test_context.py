"""Who is calling: every server hears it from the host, in every way it might listen, and from nobody else."""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from holdfast.host import Host, Opening
from holdfast.model.carriers import context_env, spoken
from holdfast.model.trust import Trust
from holdfast.session.session import Session
from tests.connect.conftest import HostFactory, counter, for_sandboxed
from tests.sandbox.conftest import bwrap  # pyright: ignore[reportUnusedImport] # noqa: F401

pytestmark = pytest.mark.anyio

# A tenth of it in `make test`, the whole in `make soak`.
SESSIONS = int(os.environ.get("HOLDFAST_CROSSINGS", "10"))
ERAS = {"modern": (), "handshake": ("--handshake",)}


@pytest.mark.promise("CTX-05")
@pytest.mark.promise("CTX-09")
@pytest.mark.parametrize("era", ERAS)
async def test_a_server_hears_who_is_calling_in_its_environment_at_first_and_with_every_request(
    make_host: HostFactory, tmp_path: Path, era: str
):
    async with make_host({"c": counter(*ERAS[era])}) as host:
        (tmp_path / "w").mkdir()
        slug = host.registry.add(tmp_path / "w", trust=Trust.DIRECT).slug
        async with host.session(cwd=tmp_path / "w") as outer, host.run(isolate=True) as session:
            said = [(await session.call("c.whoami")).data for _ in range(2)]
            context = session.context

            assert context.parent_session_id == outer.context.session_id
    assert [(one["era"], one["env"], one["meta"], one["initialize"]) for one in said] == [
        (era, context_env(context), spoken(context), spoken(context) if era == "handshake" else None)
    ] * 2
    assert (said[0]["meta"]["workspace_id"], said[0]["cwd"]) == (slug, str(tmp_path / "w"))


@pytest.mark.promise("CTX-05")
@pytest.mark.parametrize("era", ERAS)
async def test_it_travels_with_every_kind_of_request(make_host: HostFactory, tmp_path: Path, era: str):
    async with make_host({"c": counter(*ERAS[era])}) as host, host.session(cwd=tmp_path) as session:
        await session.resources("c")
        await session.read_resource("c", "note://one")
        await session.prompts("c")
        await session.prompt("c", "greet")
        await session.call("c.count")
        heard = (await session.call("c.heard")).data

    assert heard == {
        method: spoken(session.context)
        for method in (
            "tools/list",
            "resources/list",
            "resources/read",
            "prompts/list",
            "prompts/get",
            "tools/call",
            *(["subscriptions/listen"] if era == "modern" else []),
        )
    }


@pytest.mark.promise("CTX-10")
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("era", ERAS)
async def test_of_many_sessions_at_once_none_ever_sees_another_s_context(
    make_host: HostFactory, tmp_path: Path, era: str
):
    async with make_host({"c": counter(*ERAS[era])}) as host:
        crossings = sum(await asyncio.gather(*(_crossings(host, tmp_path) for _ in range(SESSIONS))))

    assert crossings == 0


@pytest.mark.promise("CTX-10")
@pytest.mark.parametrize("era", ERAS)
async def test_nor_do_those_that_share_one_server(make_host: HostFactory, tmp_path: Path, era: str):
    async with make_host({"c": counter("--shared", *ERAS[era], lifetime="host")}) as host:
        crossings = sum(await asyncio.gather(*(_crossings(host, tmp_path) for _ in range(SESSIONS))))

    assert crossings == 0


async def _crossings(host: Host, folder: Path) -> int:
    """How many of 100 calls, ten at a time, were answered by a server that took the caller for somebody else."""
    session = await host.open(Opening(cwd=folder, only="c"))
    try:
        return sum([sum(await asyncio.gather(*(_crossed(session) for _ in range(10)))) for _ in range(10)])
    finally:
        await host.close_session(session)


async def _crossed(session: Session) -> bool:
    me = spoken(session.context)
    said: dict[str, Any] = (await session.call("c.whoami", {"mine": me["session_id"]})).data
    env = said["env"].get("HOLDFAST_SESSION_ID", me["session_id"])
    return (said["meta"], env, said["arguments"]["mine"]) != (me, me["session_id"], me["session_id"])


@pytest.mark.promise("CTX-11")
@pytest.mark.usefixtures("bwrap")
@pytest.mark.parametrize("era", ERAS)
async def test_a_confined_server_hears_the_same(make_host: HostFactory, folder: Path, era: str):
    async with (
        make_host({"c": for_sandboxed(counter(*ERAS[era]))}) as host,
        host.session(cwd=folder, trust=Trust.SANDBOXED) as session,
    ):
        assert session.refusals == ()
        said = (await session.call("c.whoami")).data
        context = session.context

    assert (said["env"], said["meta"], said["cwd"], said["env"]["HOLDFAST_TRUST_LEVEL"]) == (
        context_env(context),
        spoken(context),
        str(folder),
        "sandboxed",
    )
