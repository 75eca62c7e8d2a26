"""The keys under which the store keeps approvals of servers and tools.

A key says which server or tool is approved; the `content_hash` of the approval says in which form.
"""

import json
from collections.abc import Iterable, Mapping
from datetime import datetime

from holdfast.model.server import ServerSpec
from holdfast.resolve.server_entry import ServerEntry
from holdfast.store.store import Tx
from holdfast.store.types import Approval

APPROVED_ON_FIRST_USE = "first use"
"""The `by` of approvals that no person gave: on the first use of a server, the tools it has then count as approved."""
SERVER_KEY_PREFIX = '["server", '
"""The approval keys of all servers begin with this."""


def server_approval_key(entry: ServerEntry) -> str:
    """The approval key of a server's entry. The content hash is the entry's digest."""
    return json.dumps(["server", entry.origin, entry.name])


def tool_approval_key(spec: ServerSpec, tool: str) -> str:
    """The approval key of a tool. The content hash is the tool's fingerprint."""
    return json.dumps(["tool", spec.origin, spec.name, tool])


def tool_key_prefix(spec: ServerSpec) -> str:
    """The approval keys of all tools of a server begin with this."""
    return json.dumps(["tool", spec.origin, spec.name])[:-1] + ", "


def approved_fingerprints(
    spec: ServerSpec, approvals: Iterable[Approval]
) -> Mapping[str, frozenset[str]] | None:
    """The approved fingerprints by tool name; None if no tool of the server was ever approved."""
    prefix = tool_key_prefix(spec)
    fingerprints: dict[str, frozenset[str]] = {}
    for approval in approvals:
        if approval.key.startswith(prefix):
            tool = json.loads(approval.key)[-1]
            fingerprints[tool] = fingerprints.get(tool, frozenset[str]()) | {approval.content_hash}
    return fingerprints or None


def store_tool_approvals(
    tx: Tx, spec: ServerSpec, fingerprints: Mapping[str, str], *, by: str, at: datetime
) -> None:
    """Store that tools with these fingerprints, given by tool name, are approved."""
    for tool, fingerprint in fingerprints.items():
        tx.approve(Approval(key=tool_approval_key(spec, tool), content_hash=fingerprint, by=by, at=at))
