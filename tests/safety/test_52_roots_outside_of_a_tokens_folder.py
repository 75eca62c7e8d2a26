"""Attack 52: a client whose token is for one folder names others as its roots. Some file servers then allow these."""

from pathlib import Path

import pytest

from holdfast.model.trust import Trust
from tests.gateway.running import running_gateway
from tests.safety.asking_client import AskingClient
from tests.safety.test_43_params_that_no_question_shows import server

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("era", ["handshake", "modern"])
async def test_the_roots_of_a_limited_token_are_those_of_its_session(tmp_path: Path, era: str):
    folder = tmp_path / "own"
    folder.mkdir()
    async with running_gateway(tmp_path, servers=server(era)) as running:
        running.host.registry.add(folder, "own", trust=Trust.DIRECT)
        tokens = {
            "folder": running.token(cwd=str(folder)),
            "workspace": running.token(workspace="own"),
            "control": running.token(),
        }
        found: dict[str, str] = {}
        for name, token in tokens.items():
            async with AskingClient(running.url, token) as client:
                how = {"method": "roots/list"}
                answer = await client.send("request" if era == "handshake" else "question", how)
                if era == "modern":
                    answer = answer["inputResponses"]["c"]
                found[name] = answer["roots"][0]["uri"]

    assert found == {"folder": folder.as_uri(), "workspace": folder.as_uri(), "control": "file:///"}
