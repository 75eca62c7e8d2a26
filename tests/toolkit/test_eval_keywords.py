"""Eval tools: not listed without the flag, and always checked for keywords."""

import hashlib
import logging
import tempfile
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from holdfast.toolkit import Call, Toolbox, ToolError
from holdfast.toolkit.eval_keywords import KEYWORDS, check_keywords
from holdfast.toolkit.outcome import Failed
from holdfast.wire.messages import Raw
from tests.toolkit.clients import TRANSPORTS_AND_ERAS, Client, Era, connect_client, spawn_server

NOTES = "tests.toolkit.notes_server"


@dataclass
class Script:
    code: str
    more: dict[str, int] | None = None


@pytest.mark.promise("KIT-09", "KIT-10")
@pytest.mark.parametrize("transport_and_era", TRANSPORTS_AND_ERAS, ids="-".join)
def test_with_the_flag_eval_tools_run_and_keywords_are_still_checked(transport_and_era: tuple[str, Era]):
    with connect_client(transport_and_era, NOTES, "--allow-eval") as allowed:
        listed = allowed.tools()["evaluate"]["annotations"]
        ran, blocked = (
            allowed.call("evaluate", {"code": "1 + 1"}),
            allowed.call("evaluate", {"code": "require('x')"}),
        )

    assert listed == {
        "readOnlyHint": False,
        "destructiveHint": True,
        "idempotentHint": False,
        "openWorldHint": True,
    }
    assert (ran["result"], blocked["code"], blocked["error"]) == (
        "5",
        "EVAL_BLOCKED",
        "evaluate does not run code with 'require(' in it.",
    )


@pytest.mark.promise("KIT-10")
@pytest.mark.parametrize("keyword", KEYWORDS)
def test_every_keyword_is_found(keyword: str):
    with pytest.raises(ToolError):
        check_keywords("evaluate", {"code": f"a; {keyword}'x')"})


@pytest.mark.promise("KIT-10")
@pytest.mark.parametrize(
    "code",
    ["REQUIRE ('x')", "re\u200bquire('x')", "ｒｅｑｕｉｒｅ('x')", "new\n Function ('x')", "eval  (x)"],
)
def test_simple_disguises_are_found(code: str):
    with pytest.raises(ToolError):
        check_keywords("evaluate", {"nested": [{"code": code}]})


@pytest.mark.promise("KIT-10")
@pytest.mark.anyio
@pytest.mark.parametrize(
    "script", [{"code": "require('x')"}, {"code": "1", "more": {"require('x')": 1}}], ids=["field", "name"]
)
async def test_keywords_are_found_in_structured_arguments(script: dict[str, Any]):
    box = Toolbox("box")

    @box.tool(operation="eval", requires_eval_flag=True)
    async def evaluate(script: Script) -> None:
        """Evaluate."""

    arguments = Raw(msgspec.json.encode({"script": script}))
    result = await box.dispatcher(allow_eval=True).dispatch(Call(tool="evaluate"), arguments)

    assert isinstance(result.envelope, Failed)
    assert result.envelope.code == "EVAL_BLOCKED"


@pytest.mark.promise("KIT-10")
def test_keyword_check_can_be_bypassed():
    check_keywords("evaluate", {"code": "globalThis['req' + 'uire']('child' + '_process')"})


@pytest.mark.promise("KIT-10")
def test_only_the_hash_of_a_payload_is_logged(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.DEBUG)
    code = "require('canary')"

    with pytest.raises(ToolError) as blocked:
        check_keywords("evaluate", {"code": code})

    (record,) = caplog.records
    assert vars(record)["payload_sha256"] == hashlib.sha256(code.encode()).hexdigest()
    assert "canary" not in f"{vars(record)}{blocked.value}"


@pytest.mark.promise("KIT-10")
def test_traceback_of_an_eval_tool_is_not_logged():
    with tempfile.TemporaryFile() as stderr:
        with spawn_server(NOTES, "--allow-eval", stderr=stderr) as pipes:
            allowed = Client(pipes, "modern")
            allowed.call("evaluate", {"code": "crash"})
            allowed.call("evaluate", {"code": "canary-1"})
            allowed.call("evaluate", {"code": "canary-2 require("})
        stderr.seek(0)
        logged = stderr.read().decode()

    assert "exception=SyntaxError" in logged
    assert "Traceback" not in logged
    assert "canary" not in logged
