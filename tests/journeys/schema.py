"""The official ACP v1 schema, and every line held against what it says of its method."""

import json
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

FILE = Path(__file__).parents[2] / "peers/node_modules/@agentclientprotocol/sdk/schema/v1/schema.json"


class Line:
    """One line of a conversation; `check` raises unless it is what the schema says."""

    def __init__(self) -> None:
        self._asked: dict[tuple[str, Any], str] = {}

    def check(self, message: Any, *, by: str) -> None:
        """Check a message by the `agent` or the `client`; an answer belongs to what the other side asked."""
        other = "client" if by == "agent" else "agent"
        assert message["jsonrpc"] == "2.0"
        if "method" not in message:
            self._check_answer(message, self._asked.pop((other, message["id"]), None))
            return
        kind = "Request" if "id" in message else "Notification"
        if "id" in message:
            self._asked[by, message["id"]] = message["method"]
        validator("params", kind, message["method"]).validate(message["params"])

    def _check_answer(self, message: Any, method: str | None) -> None:
        if "error" in message:
            named("Error").validate(message["error"])
        else:
            assert method is not None, f"Nobody asked: {message}"
            validator("result", "Response", method).validate(message["result"])


@cache
def _schema() -> dict[str, Any]:
    return json.loads(FILE.read_text(encoding="utf-8"))


@cache
def validator(place: str, kind: str, method: str) -> Any:
    """What is said of a method's parameters or result."""
    if method == "$/cancel_request":
        return named("CancelRequestNotification")
    found = [
        name
        for name, definition in _schema()["$defs"].items()
        if definition.get("x-method") == method and name.endswith(kind)
    ]
    assert len(found) == 1, f"{method} has no {kind} ({place}) in the schema: {found}"
    return named(found[0])


@cache
def named(name: str) -> Any:
    """What is said of one shape."""
    return Draft202012Validator({"$ref": f"#/$defs/{name}", "$defs": _schema()["$defs"]})
