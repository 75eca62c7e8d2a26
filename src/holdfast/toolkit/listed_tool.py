"""A tool as `tools/list` shows it: in full, or only what a model needs."""

from msgspec import UNSET, structs

from holdfast.model.json import JsonObject
from holdfast.toolkit.operation import Annotations
from holdfast.toolkit.tool import Tool
from holdfast.wire.mcp.tools import Tool as WireTool
from holdfast.wire.messages import Raw, encode

_PROTOCOL_DEFAULTS = Annotations(read_only=False, destructive=True, idempotent=False, open_world=True)
"""What a client assumes about a hint that is not sent."""
_CHECKED_AT_THE_CALL = frozenset(
    {
        *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
        *("minLength", "maxLength", "minItems", "maxItems"),
    }
)


def to_wire(tool: Tool) -> WireTool:
    """The tool as clients see it. The operation type is left out."""
    output = tool.output_schema
    if tool.is_short and output is not None and "properties" not in output:
        output = None  # the schema says only that the data is an object
    annotations = _without_defaults(tool.annotations) if tool.is_short else tool.annotations
    return WireTool(
        name=tool.name,
        title=tool.definition.title or None,
        description=tool.definition.description if tool.is_short else tool.description,
        input_schema=Raw(encode(shorten(tool.schema) if tool.is_short else tool.schema)),
        output_schema=UNSET if output is None else Raw(encode(output)),
        annotations=UNSET if annotations == Annotations() else Raw(encode(annotations)),
        meta=UNSET if tool.definition.meta is None else Raw(encode(tool.definition.meta)),
    )


def shorten(schema: JsonObject) -> JsonObject:
    """The schema without what a model does not need.

    Leaves out bounds and `additionalProperties: false`, which are checked at the call, and defaults that are empty, zero, false or null.
    The schemas of list items, of dict values and in `$defs` stay as they are.
    """
    short = {name: value for name, value in schema.items() if name not in _CHECKED_AT_THE_CALL}
    if "default" in short and not short["default"]:
        del short["default"]
    if short.get("additionalProperties") is False:
        del short["additionalProperties"]
    if isinstance(members := short.get("properties"), dict):
        short["properties"] = {
            name: shorten(member) if isinstance(member, dict) else member for name, member in members.items()
        }
    if isinstance(choices := short.get("anyOf"), list):
        short["anyOf"] = [shorten(choice) if isinstance(choice, dict) else choice for choice in choices]
    return short


def _without_defaults(hints: Annotations) -> Annotations:
    """The hints that differ from what a client assumes. For a tool that only reads, destructive and idempotent mean nothing."""
    if hints.read_only:
        hints = structs.replace(hints, destructive=None, idempotent=None)
    same = {
        name: None
        for name in hints.__struct_fields__
        if getattr(hints, name) == getattr(_PROTOCOL_DEFAULTS, name)
    }
    return structs.replace(hints, **same)
