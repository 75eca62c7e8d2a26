"""Holdfast's own keys in the `_meta` of calls and results."""

from typing import Final

ENVELOPE_KEY: Final = "dev.holdfast/envelope"
"""The key of an envelope in the `_meta` of a result, for servers that do not put it into the content."""

PREVIEW_KEY: Final = "dev.holdfast/preview"
"""The key in the `_meta` of a call that asks a built-in file tool for the change that it would make, without making it."""

KIND_KEY: Final = "dev.holdfast/kind"
"""The key in a built-in tool's `_meta` for the kind of tool in the Agent Client Protocol, such as `read` or `execute`."""

READ_ONLY_KEY: Final = "dev.holdfast/read-only"
"""The key in the `_meta` of the roots of a sandboxed session, for a built-in server: the paths that the session may not change."""

CALL_KEY: Final = "dev.holdfast/call"
"""The key in the `_meta` of a call of an in-process server: which call it is, who calls, and whether a person or a rule allowed it
(`ToolCall.is_confirmed`)."""
