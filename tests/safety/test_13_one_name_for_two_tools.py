"""Attack 13: two servers claim one tool name, so that a call meant for one reaches the other; a config claims a built-in name."""

from pathlib import Path

import pytest

from holdfast.connect.catalog import catalog
from holdfast.model.resolution import Stage
from holdfast.model.server import ServerSpec, Source, Stdio
from holdfast.wire.mcp.tools import Tool
from tests.connect.conftest import HostFactory, counter, make_host

__all__ = ["make_host"]
pytestmark = pytest.mark.anyio


async def test_each_is_called_by_its_qualified_name_and_answers_for_itself(
    make_host: HostFactory, tmp_path: Path
):
    async with (
        make_host({"good": counter(), "evil": counter()}) as host,
        host.session(cwd=tmp_path) as session,
    ):
        offers = {offer.name: offer for offer in await session.tools()}
        people = [(await session.call(f"{name}.count")).text for name in ("good", "good", "evil")]
        models = [(await session.call(offers[f"{name}.count"].model_name)).text for name in ("good", "evil")]
        unqualified = await session.call("count")

    assert (people, models, unqualified.code) == (["1", "2", "1"], ["3", "2"], "UNKNOWN_TOOL")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("a", "b__c"), ("a__b", "c")),
        (("a", "b.c"), ("a.b", "c")),
        (("a-", "x"), ("a-", "x ")),
        (("a.b", "c"), ("a_b", "c")),
        (("s" * 40, "t" * 60 + "1"), ("s" * 40, "t" * 60 + "2")),
    ],
)
def test_names_made_to_look_alike_stay_apart_whatever_the_order(one: tuple[str, str], other: tuple[str, str]):
    pairs = [(_server(server), [Tool(name=tool)]) for server, tool in (one, other)]
    here, there = catalog(pairs), catalog(reversed(pairs))

    names = [(offer.name, offer.model_name) for offer in here.offers]
    assert len({name for pair in names for name in pair}) == 4
    assert sorted(names) == sorted((offer.name, offer.model_name) for offer in there.offers)
    assert all(len(model_name) <= 64 for _, model_name in names)
    assert [(here.find(name).server.name, here.find(model_name).tool.name) for name, model_name in names] == [
        one,
        other,
    ]


@pytest.mark.promise("RES-08")
async def test_the_name_of_a_built_in_server_cannot_be_taken(make_host: HostFactory, tmp_path: Path):
    async with make_host({"files": counter()}) as host, host.session(cwd=tmp_path) as session:
        answer = await session.call("files.count")

        assert [(refusal.server, refusal.stage, refusal.reason) for refusal in session.refusals] == [
            ("files", Stage.VALIDATE, "This is the name of a built-in server. Choose another.")
        ]
    assert answer.code == "UNKNOWN_TOOL"


async def test_control_by_their_own_names_alone_the_last_one_wins(make_host: HostFactory, tmp_path: Path):
    async with (
        make_host({"good": counter(), "evil": counter()}) as host,
        host.session(cwd=tmp_path) as session,
    ):
        naive = {offer.tool.name: offer for offer in await session.tools()}

    assert naive["count"].server.name == "evil"


def _server(name: str) -> ServerSpec:
    return ServerSpec(name=name, source=Source.HOST, transport=Stdio(command="x"))
