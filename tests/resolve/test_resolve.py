"""Property tests of the whole pipeline: it adds no server and drops none without a refusal."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.allowlist import ALLOW_ALL, Allowlist
from holdfast.model.context import SessionContext
from holdfast.model.ids import SessionId
from holdfast.model.server import Lifetime, ServerSpec, Source, Stdio
from holdfast.model.trust import Trust
from holdfast.resolve.admit import ServerAnswers
from holdfast.resolve.confine import ConfinePolicy
from holdfast.resolve.grant import ConfinedGrant
from holdfast.resolve.load import LoadedEntries
from holdfast.resolve.resolve import ResolvePolicy, resolve
from holdfast.resolve.select import Restriction
from holdfast.resolve.server_entry import ServerEntry

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
            "lifetime": st.sampled_from(["session", "host"]),
        },
    ),
    st.fixed_dictionaries({"url": st.sampled_from(["https://x.org", "http://10.0.0.1", "ftp://x"])}),
    st.sampled_from([None, 5, [], {}]),
)


def _entry(name: str, source: Source, value: Any) -> ServerEntry:
    return ServerEntry(name=name, source=source, origin=f"/{source}", value=value)


entries = st.builds(
    _entry, names, st.sampled_from([Source.OPERATOR, Source.USER, Source.PROJECT, Source.CLIENT]), values
)
choices = st.one_of(st.just(ALLOW_ALL), st.frozensets(names).map(Allowlist))
BUILTIN = ServerSpec(
    name="files", source=Source.BUILTIN, transport=Stdio(command="x"), min_trust=Trust.SANDBOXED
)


ANSWERS = ("none", "direct", "confined", "declined")


def answer(loaded_entries: list[ServerEntry], given: str) -> ServerAnswers:
    """The same answer to all servers."""
    digests = [entry.digest for entry in loaded_entries]
    return ServerAnswers(
        direct=digests if given == "direct" else (),
        confined=dict.fromkeys(digests, ConfinedGrant()) if given == "confined" else {},
        declined=digests if given == "declined" else (),
    )


@given(
    st.lists(entries, max_size=6), st.sampled_from(Trust), choices, st.booleans(), st.sampled_from(ANSWERS)
)
@pytest.mark.promise("RES-09")
@pytest.mark.promise("RES-11")
def test_every_server_is_resolved_or_has_exactly_one_refusal(
    loaded_entries: list[ServerEntry], trust: Trust, chosen: Allowlist, sandbox: bool, given: str
):
    context = SessionContext(session_id=SessionId("sess_0123456789abcdef"), trust_level=trust)
    policy = ResolvePolicy(
        builtins=(BUILTIN,),
        answers=answer(loaded_entries, given),
        restrictions=(Restriction(imposed_by="the workspace", servers=chosen),),
        confinement=ConfinePolicy(sandbox_problem="" if sandbox else "Install one."),
    )

    resolution = resolve(LoadedEntries(entries=tuple(loaded_entries)), context, policy)

    resolved = Counter(server.name for server in resolution.servers)
    refused = Counter(refusal.server for refusal in resolution.refusals)
    assert resolved + refused == Counter(["files", *(entry.name for entry in loaded_entries)])
    assert all(count == 1 for count in resolved.values())


@given(st.lists(entries, max_size=6), st.sampled_from(Trust), st.sampled_from(ANSWERS))
@pytest.mark.promise("CTX-02")
@pytest.mark.promise("RES-05")
@pytest.mark.promise("RES-14")
def test_every_local_server_with_less_than_the_users_rights_is_confined_and_is_told_so(
    loaded_entries: list[ServerEntry], trust: Trust, given: str
):
    context = SessionContext(session_id=SessionId("sess_0123456789abcdef"), trust_level=trust)
    policy = ResolvePolicy(builtins=(BUILTIN,), answers=answer(loaded_entries, given))
    resolution = resolve(LoadedEntries(entries=tuple(loaded_entries)), context, policy)
    local = [
        (server, server.transport) for server in resolution.servers if isinstance(server.transport, Stdio)
    ]

    for server, stdio in local:
        runs_confined = trust is Trust.SANDBOXED or server.always_confined
        told = "HOLDFAST_SHARED" not in stdio.env and stdio.env["HOLDFAST_TRUST_LEVEL"]
        assert (server.confinement is not None) == runs_confined
        assert (told == "sandboxed") == runs_confined
        assert not runs_confined or server.lifetime is not Lifetime.HOST
    assert all(
        server.always_confined == (given == "confined")
        for server in resolution.servers
        if server.source is Source.PROJECT
    )
