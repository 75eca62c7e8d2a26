"""The definition in docs/agents.md, followed after docs/models.md."""

import re
from pathlib import Path

import pytest

from holdfast import Host
from holdfast.host.open_options import OpenOptions
from holdfast.model.permission import Mode
from holdfast.testing.scripted_model import ScriptedModel
from tests.agent.model.sessions import model_settings

pytestmark = pytest.mark.anyio
DOCS = Path(__file__).parents[3] / "docs"


@pytest.mark.promise("AGT-13")
async def test_the_definition_on_the_page_can_be_used_with_the_model_that_the_page_before_sets(
    tmp_path: Path,
):
    chosen = re.search(r"^\$ holdfast model (\S+:\S+) ", (DOCS / "models.md").read_text(), re.MULTILINE)
    definition = re.search(r"```markdown\n(.+?)```", (DOCS / "agents.md").read_text(), re.DOTALL)
    assert chosen is not None
    assert definition is not None
    (tmp_path / "agents").mkdir()
    (tmp_path / "agents" / "reviewer.md").write_text(definition[1])
    async with ScriptedModel([]) as endpoint:
        loaded = model_settings(tmp_path, endpoint, more={"name": chosen[1]})
        async with Host(settings=loaded) as host:
            session = await host.open(OpenOptions(cwd=tmp_path, agent_name="reviewer"))
            await session.wait_ready()

            assert {tool.name.partition(".")[0] for tool in session.available_tools} == {"files"}
            assert session.permission.mode is Mode.READ_ONLY
