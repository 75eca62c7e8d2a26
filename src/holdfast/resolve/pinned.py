"""Where approved fingerprints of tools are kept: beside the approvals of servers."""

import json
from collections.abc import Iterable, Mapping
from datetime import datetime

from holdfast.model.server import ServerSpec
from holdfast.store.rows import Approval
from holdfast.store.store import Tx

FIRST_USE = "first use"


def subject(spec: ServerSpec, tool: str) -> str:
    """What an approval of a tool is kept under; its content is kept as the fingerprint."""
    return json.dumps(["tool", spec.origin, spec.name, tool])


def of_tools(spec: ServerSpec) -> str:
    """How the subjects of all of a server's tools begin."""
    return json.dumps(["tool", spec.origin, spec.name])[:-1] + ", "


def pins_of(spec: ServerSpec, approvals: Iterable[Approval]) -> Mapping[str, frozenset[str]] | None:
    """The approved fingerprints of a server's tools; None when the server was never used."""
    beginning = of_tools(spec)
    pins: dict[str, frozenset[str]] = {}
    for approval in approvals:
        if approval.what.startswith(beginning):
            tool = json.loads(approval.what)[-1]
            pins[tool] = pins.get(tool, frozenset[str]()) | {approval.content_hash}
    return pins or None


def pin(tx: Tx, spec: ServerSpec, fingerprints: Mapping[str, str], *, by: str, at: datetime) -> None:
    """Keep fingerprints as approved."""
    for tool, mark in fingerprints.items():
        tx.approve(Approval(what=subject(spec, tool), content_hash=mark, by=by, at=at))
