"""Attack 31, in traces: a server names a tool after its secret, and a model's endpoint names its model after its key."""

import sys
from pathlib import Path

import pytest

from holdfast import Host
from holdfast.masking import log_mask
from holdfast.model.json import JsonObject
from holdfast.testing.scripted_model import ScriptedModel, answer, formats
from tests.agent.model.sessions import model_settings
from tests.test_tracing import Traced

pytestmark = pytest.mark.anyio

TOKEN, KEY = "canary-env-4f9a2c81", "sk-canary-77aa01"
LONG = 100_000
LEAKY = {
    "command": sys.executable,
    "args": [str(Path(__file__).with_name("leaky_fields_server.py"))],
    "env": {"API_TOKEN": TOKEN},
}


async def exported(folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """All spans of a session in which both try to put a secret into them."""

    def head(model: str, number: int, kind: str) -> JsonObject:
        return {"id": f"chatcmpl-{number}", "object": kind, "created": 1, "model": KEY + "m" * LONG}

    monkeypatch.setattr(formats, "_chat_head", head)
    monkeypatch.setenv("OWN_ENDPOINT_KEY", KEY)
    traced = Traced()
    async with ScriptedModel([answer("Hello.")]) as endpoint:
        loaded = model_settings(folder, endpoint, more={"api_key_env": "OWN_ENDPOINT_KEY"})
        async with (
            Host(settings=loaded, servers={"leaky": LEAKY}, tracer_provider=traced.provider) as host,
            host.session(cwd=folder, permission="auto", tools=["leaky.*"]) as session,
        ):
            await session.prompt("Hello")
            await session.call(f"leaky.{TOKEN}", {})
    return "".join(span.to_json() for span in traced.exporter.get_finished_spans())


@pytest.mark.slow
@pytest.mark.promise("AUD-03")
async def test_no_secret_and_no_long_text_of_a_server_or_an_endpoint_is_in_a_span(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    spans = await exported(tmp_path, monkeypatch)

    assert ("tools/call [masked]" in spans, TOKEN in spans, KEY in spans) == (True, False, False)
    assert len(spans) < LONG


async def test_control_without_masking_both_secrets_are_in_the_spans(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def change_nothing(text: str, length: int, session_id: str) -> str:
        return text

    monkeypatch.setattr(log_mask, "mask_start", change_nothing)
    spans = await exported(tmp_path, monkeypatch)

    assert (f"tools/call {TOKEN}" in spans, KEY in spans, len(spans) > LONG) == (True, True, True)
