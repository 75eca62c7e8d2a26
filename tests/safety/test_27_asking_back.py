"""Attack 27: a confined server asks for the client's model, for the person, or for the folders of the session."""

from pathlib import Path

import pytest

from holdfast.host import Opening
from holdfast.model.call import ToolCall
from holdfast.model.event import Decision
from holdfast.model.json import JsonObject
from holdfast.model.ports import Powers
from holdfast.model.trust import Trust
from tests.connect.conftest import HostFactory, counter, folder, for_sandboxed, make_host

__all__ = ["folder", "make_host"]
pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("bwrap")]

ASKED = {
    "roots": ("roots", "roots/list"),
    "sampling": ("sample", "sampling/createMessage"),
    "elicitation": ("elicit", "elicitation/create"),
}


class Willing:
    """A door that would do anything; what it was asked for is noted."""

    powers = Powers(permits=True, elicits=True, samples=True)

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def permit(self, call: ToolCall, title: str) -> Decision:
        return Decision.ALLOW_ONCE

    async def elicit(self, params: JsonObject) -> JsonObject:
        self.asked.append("elicitation")
        return {"action": "accept", "content": {"password": "granted"}}

    async def sample(self, params: JsonObject) -> JsonObject:
        self.asked.append("sampling")
        return {"role": "assistant", "content": {"type": "text", "text": "granted"}, "model": "m"}

    async def read_text(self, path: str) -> str:
        raise NotImplementedError

    async def write_text(self, path: str, text: str) -> None:
        raise NotImplementedError


@pytest.mark.parametrize("what", ASKED)
@pytest.mark.parametrize("how", ["asks", "wants it with the next request"])
async def test_a_confined_server_is_refused_whatever_the_door_would_do(
    make_host: HostFactory, folder: Path, what: str, how: str
):
    door = Willing()
    answer = await _asked(make_host, folder, door, (what, how), trust=Trust.SANDBOXED)

    assert (f"{ASKED[what][1]} is not open to this server in this session" in answer, door.asked) == (
        True,
        [],
    )
    assert ("granted" in answer, str(folder) in answer) == (False, False)


@pytest.mark.parametrize("what", ASKED)
async def test_unless_the_host_s_own_config_grants_it(make_host: HostFactory, folder: Path, what: str):
    answer = await _asked(make_host, folder, Willing(), (what, "asks"), trust=Trust.SANDBOXED, asks=[what])

    assert (folder.as_uri() if what == "roots" else "granted") in answer


@pytest.mark.parametrize("what", ASKED)
@pytest.mark.parametrize("how", ["asks", "wants it with the next request"])
async def test_control_a_server_that_is_not_confined_is_answered(
    make_host: HostFactory, folder: Path, what: str, how: str
):
    answer = await _asked(make_host, folder, Willing(), (what, how), trust=Trust.DIRECT)

    assert (folder.as_uri() if what == "roots" else "granted") in answer


async def _asked(
    make_host: HostFactory,
    folder: Path,
    door: Willing,
    asking: tuple[str, str],
    *,
    trust: Trust,
    asks: str | list[str] = "none",
) -> str:
    what, how = asking
    tool, method = ASKED[what]
    entry = for_sandboxed(counter(*(("--handshake",) if how == "asks" else ()), asks=asks))
    async with make_host({"c": entry}) as host:
        session = await host.open(Opening(cwd=folder, trust=trust, door=door))
        if how == "asks":
            answer = await session.call(f"c.{tool}")
        else:
            answer = await session.call("c.wants", {"method": method})
        await host.close_session(session)
    return answer.text
