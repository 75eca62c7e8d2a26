"""Tools to test your own agents, MCP tools and stores.

`FakeServer`, `host_of`, the assertions, and `BoxClient` and `ClientResult` for `Toolbox.client` are here. `scripted_model` and
`store_contract` are modules of their own.
"""

from holdfast.testing.assertions import (
    assert_audit_intact,
    assert_called,
    assert_not_called,
    audit_records,
    calls_of,
    events_of,
)
from holdfast.testing.fake_server import FakeCall, FakeError, FakeServer
from holdfast.testing.hosts import host_of
from holdfast.toolkit.client import BoxClient, ClientResult

__all__ = [
    "BoxClient",
    "ClientResult",
    "FakeCall",
    "FakeError",
    "FakeServer",
    "assert_audit_intact",
    "assert_called",
    "assert_not_called",
    "audit_records",
    "calls_of",
    "events_of",
    "host_of",
]
