"""The whole way, by property: whatever is written, nothing is added and nobody falls without a word."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.choice import ALL, Choice
from holdfast.model.context import SessionContext
from holdfast.model.ids import SessionId
from holdfast.model.server import ServerSpec, Source, Stdio
from holdfast.model.trust import Trust
from holdfast.resolve.confine import Walls
from holdfast.resolve.entry import Entry, Loaded
from holdfast.resolve.resolve import Policy, resolve
from holdfast.resolve.select import Narrowing

names = st.sampled_from(["a", "b", "c", "files", "", "x\ny"])
values: st.SearchStrategy[Any] = st.one_of(
    st.fixed_dictionaries(
        {"command": st.sampled_from(["x", "", "${NOPE}"])},
        optional={
            "env": st.dictionaries(
                st.sampled_from(["A", "LD_PRELOAD", "HOLDFAST_TRUST_LEVEL"]), st.just("direct")
            ),
            "trust_level": st.sampled_from(["direct", "sandboxed", "root"]),
            "disabled": st.booleans(),
        },
    ),
    st.fixed_dictionaries({"url": st.sampled_from(["https://x.org", "http://10.0.0.1", "ftp://x"])}),
    st.sampled_from([None, 5, [], {}]),
)


def _entry(name: str, source: Source, value: Any) -> Entry:
    return Entry(name=name, source=source, origin=f"/{source}", value=value)


entries = st.builds(
    _entry, names, st.sampled_from([Source.HOST, Source.USER, Source.PROJECT, Source.CLIENT]), values
)
choices = st.one_of(st.just(ALL), st.frozensets(names).map(Choice))
BUILTIN = ServerSpec(name="files", source=Source.BUILTIN, transport=Stdio(command="x"), trust=Trust.SANDBOXED)


@given(st.lists(entries, max_size=6), st.sampled_from(Trust), choices, st.booleans(), st.booleans())
@pytest.mark.promise("RES-09")
@pytest.mark.promise("RES-11")
def test_every_server_stands_or_has_exactly_one_refusal(
    written: list[Entry], trust: Trust, chosen: Choice, sandbox: bool, approve: bool
):
    context = SessionContext(session_id=SessionId("sess_0123456789abcdef"), trust_level=trust)
    policy = Policy(
        builtins=(BUILTIN,),
        approved={entry.digest for entry in written} if approve else (),
        narrowings=(Narrowing(whose="the workspace", servers=chosen),),
        walls=Walls(no_sandbox="" if sandbox else "None here."),
    )

    resolution = resolve(Loaded(entries=tuple(written)), context, policy)

    stand = Counter(server.name for server in resolution.servers)
    fell = Counter(refusal.server for refusal in resolution.refusals)
    assert stand + fell == Counter(["files", *(entry.name for entry in written)])
    assert all(count == 1 for count in stand.values())


@given(st.lists(entries, max_size=6), st.booleans())
@pytest.mark.promise("CTX-02")
@pytest.mark.promise("RES-05")
def test_in_a_sandboxed_session_everything_local_is_confined_and_told_so(written: list[Entry], approve: bool):
    context = SessionContext(session_id=SessionId("sess_0123456789abcdef"), trust_level=Trust.SANDBOXED)
    policy = Policy(builtins=(BUILTIN,), approved={entry.digest for entry in written} if approve else ())

    local = [
        (server, server.transport)
        for server in resolve(Loaded(entries=tuple(written)), context, policy).servers
        if isinstance(server.transport, Stdio)
    ]

    assert all(server.confinement is not None for server, _ in local)
    assert all(stdio.env["HOLDFAST_TRUST_LEVEL"] == "sandboxed" for _, stdio in local)
