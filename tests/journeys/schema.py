"""Validation of messages against the official ACP v1 schema."""

import json
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

FILE = Path(__file__).parents[2] / "peers/node_modules/@agentclientprotocol/sdk/schema/v1/schema.json"


class MessageValidator:
    """Validates the messages of one connection; `check` raises if one does not match the schema."""

    def __init__(self) -> None:
        self._requests: dict[tuple[str, Any], str] = {}

    def check(self, message: Any, *, by: str) -> None:
        """Check a message sent by the `agent` or the `client`; a response is checked against the other side's request."""
        other = "client" if by == "agent" else "agent"
        assert message["jsonrpc"] == "2.0"
        if "method" not in message:
            self._check_response(message, self._requests.pop((other, message["id"]), None))
            return
        kind = "Request" if "id" in message else "Notification"
        if "id" in message:
            self._requests[by, message["id"]] = message["method"]
        method_validator("params", kind, message["method"]).validate(message["params"])

    def _check_response(self, message: Any, method: str | None) -> None:
        if "error" in message:
            definition_validator("Error").validate(message["error"])
        else:
            assert method is not None, f"No request for this response: {message}"
            method_validator("result", "Response", method).validate(message["result"])


@cache
def _schema() -> dict[str, Any]:
    return json.loads(FILE.read_text(encoding="utf-8"))


@cache
def method_validator(place: str, kind: str, method: str) -> Any:
    """The validator of a method's parameters or result."""
    if method == "$/cancel_request":
        return definition_validator("CancelRequestNotification")
    found = [
        name
        for name, definition in _schema()["$defs"].items()
        if definition.get("x-method") == method and name.endswith(kind)
    ]
    assert len(found) == 1, f"{method} has no {kind} ({place}) in the schema: {found}"
    return definition_validator(found[0])


@cache
def definition_validator(name: str) -> Any:
    """The validator of one definition."""
    return Draft202012Validator({"$ref": f"#/$defs/{name}", "$defs": _schema()["$defs"]})
