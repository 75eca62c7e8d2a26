"""Every server gets the session context from the host: in the environment, and in every request."""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from holdfast.host.host import Host
from holdfast.host.open_options import OpenOptions
from holdfast.model.context import context_env, context_fields
from holdfast.model.trust import Trust
from holdfast.session.session import Session
from tests.connect.conftest import HostFactory, counter_entry, for_sandboxed
from tests.sandbox.conftest import bwrap  # pyright: ignore[reportUnusedImport] # noqa: F401

pytestmark = pytest.mark.anyio

# `make soak` runs ten times as many sessions as `make test`.
SESSIONS = int(os.environ.get("HOLDFAST_CROSSINGS", "10"))
ERAS = {"modern": (), "handshake": ("--handshake",)}


@pytest.mark.promise("CTX-05")
@pytest.mark.promise("CTX-09")
@pytest.mark.parametrize("era", ERAS)
async def test_server_gets_context_in_environment_and_with_every_request(
    make_host: HostFactory, tmp_path: Path, era: str
):
    async with make_host({"c": counter_entry(*ERAS[era], cwd=".")}) as host:
        (tmp_path / "w").mkdir()
        slug = host.registry.add(tmp_path / "w", trust=Trust.DIRECT).slug
        async with host.session(cwd=tmp_path / "w") as outer, host.run(isolate=True) as session:
            seen = [(await session.call("c.whoami")).data for _ in range(2)]
            context = session.context

            assert context.parent_session_id == outer.context.session_id
    assert [(one["era"], one["env"], one["meta"], one["initialize"]) for one in seen] == [
        (
            era,
            {**context_env(context), "HOLDFAST_WORKSPACE_PATH": context.workspace_path},
            context_fields(context),
            context_fields(context) if era == "handshake" else None,
        )
    ] * 2
    assert (seen[0]["meta"]["workspace_id"], seen[0]["cwd"]) == (slug, str(tmp_path / "w"))


@pytest.mark.promise("CTX-05")
@pytest.mark.parametrize("era", ERAS)
async def test_context_is_sent_with_every_kind_of_request(make_host: HostFactory, tmp_path: Path, era: str):
    async with make_host({"c": counter_entry(*ERAS[era])}) as host, host.session(cwd=tmp_path) as session:
        await session.list_resources("c")
        await session.read_resource("c", "note://one")
        await session.list_prompts("c")
        await session.get_prompt("c", "greet")
        await session.call("c.count")
        received = (await session.call("c.received")).data

    assert received == {
        method: context_fields(session.context)
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


@pytest.mark.promise("CTX-05")
async def test_shared_server_gets_the_context_of_the_session_with_every_kind_of_request(
    make_host: HostFactory, tmp_path: Path
):
    async with make_host({"c": counter_entry("--shared", lifetime="host")}) as host:
        for user in ("ann", "bob"):
            async with host.session(cwd=tmp_path, user_id=user) as session:
                await session.list_resources("c")
                await session.read_resource("c", "note://one")
                await session.list_prompts("c")
                await session.get_prompt("c", "greet")
                await session.call("c.count")
                received = (await session.call("c.received")).data
            received.pop("subscriptions/listen")  # all sessions share one subscription

            assert (received, session.context.user_id) == (
                dict.fromkeys(received, context_fields(session.context)),
                user,
            )
            assert len(received) == 6


@pytest.mark.promise("CTX-10")
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("era", ERAS)
async def test_concurrent_sessions_never_see_each_others_context(
    make_host: HostFactory, tmp_path: Path, era: str
):
    async with make_host({"c": counter_entry(*ERAS[era])}) as host:
        crossings = sum(await asyncio.gather(*(_count_crossings(host, tmp_path) for _ in range(SESSIONS))))

    assert crossings == 0


@pytest.mark.slow
@pytest.mark.promise("CTX-10")
@pytest.mark.parametrize("era", ERAS)
async def test_sessions_that_share_a_server_never_see_each_others_context(
    make_host: HostFactory, tmp_path: Path, era: str
):
    async with make_host({"c": counter_entry("--shared", *ERAS[era], lifetime="host")}) as host:
        crossings = sum(await asyncio.gather(*(_count_crossings(host, tmp_path) for _ in range(SESSIONS))))

    assert crossings == 0


async def _count_crossings(host: Host, folder: Path) -> int:
    """How many of 100 calls, ten at a time, reached the server with another session's context."""
    session = await host.open(OpenOptions(cwd=folder, only_server="c"))
    try:
        return sum([sum(await asyncio.gather(*(_is_crossed(session) for _ in range(10)))) for _ in range(10)])
    finally:
        await session.close()


async def _is_crossed(session: Session) -> bool:
    me = context_fields(session.context)
    seen: dict[str, Any] = (await session.call("c.whoami", {"mine": me["session_id"]})).data
    env = seen["env"].get("HOLDFAST_SESSION_ID", me["session_id"])
    return (seen["meta"], env, seen["arguments"]["mine"]) != (me, me["session_id"], me["session_id"])


@pytest.mark.promise("CTX-11")
@pytest.mark.usefixtures("bwrap")
@pytest.mark.parametrize("era", ERAS)
async def test_confined_server_gets_the_same_context(make_host: HostFactory, folder: Path, era: str):
    async with (
        make_host({"c": for_sandboxed(counter_entry(*ERAS[era], cwd="."))}) as host,
        host.session(cwd=folder, trust=Trust.SANDBOXED) as session,
    ):
        assert session.refusals == ()
        seen = (await session.call("c.whoami")).data
        context = session.context

    assert (seen["env"], seen["meta"], seen["cwd"], seen["env"]["HOLDFAST_TRUST_LEVEL"]) == (
        context_env(context),
        context_fields(context),
        str(folder),
        "sandboxed",
    )
