"""Whether a call may run, as plain decisions."""

from typing import Any

import msgspec
import pytest

from holdfast.connect.catalog import Offer, catalog
from holdfast.model.server import ServerSpec, Source, Stdio
from holdfast.session.permission import Due, Mode, due, kind_of
from holdfast.wire.mcp.tools import Tool


def offer(annotations: Any = None, *, source: Source = Source.CLIENT, meta: Any = None) -> Offer:
    given: dict[str, Any] = {"name": "t", "inputSchema": {"type": "object"}}
    if annotations is not None:
        given["annotations"] = annotations
    if meta is not None:
        given["_meta"] = meta
    spec = ServerSpec(name="s", transport=Stdio(command="x"), source=source)
    tool = msgspec.json.decode(msgspec.json.encode(given), type=Tool)
    return catalog([(spec, (tool,))]).offers[0]


@pytest.mark.promise("ACP-09")
@pytest.mark.parametrize(
    ("annotations", "mode", "expected"),
    [
        ({"readOnlyHint": True}, Mode.ASK, Due.NOTHING),
        ({"readOnlyHint": True}, Mode.READ_ONLY, Due.NOTHING),
        ({"readOnlyHint": False}, Mode.ASK, Due.ASKING),
        ({"readOnlyHint": "yes"}, Mode.ASK, Due.ASKING),
        (None, Mode.ASK, Due.ASKING),
        (None, Mode.AUTO, Due.NOTHING),
        (None, Mode.READ_ONLY, Due.REFUSAL),
    ],
)
def test_what_is_due_before_a_call(annotations: Any, mode: Mode, expected: Due):
    assert due(offer(annotations), mode) is expected


def test_only_a_builtin_says_what_kind_of_thing_it_does():
    meta = {"dev.holdfast/kind": "edit"}

    kinds = [kind_of(offer(source=source, meta=meta)) for source in (Source.BUILTIN, Source.CLIENT)]

    assert kinds == ["edit", "other"]
