"""What a toolbox offers, written down without starting it."""

from collections.abc import Iterable
from typing import Any

import msgspec

from holdfast.model.codes import Code
from holdfast.toolkit.tool import Tool


def manifest(name: str, version: str, tools: Iterable[Tool]) -> dict[str, Any]:
    """Every tool by name, with its schema and codes; and what each code means."""
    listed = sorted(tools, key=lambda tool: tool.name)
    codes = {code.name: code for tool in listed for code in tool.codes}
    return {
        "name": name,
        "version": version,
        "tools": [_entry(tool) for tool in listed],
        "codes": {code: _meaning(codes[code]) for code in sorted(codes)},
    }


def _entry(tool: Tool) -> dict[str, Any]:
    return {
        "name": tool.name,
        "title": tool.definition.title,
        "description": tool.description,
        "operation": tool.operation.value,
        "requires_eval_flag": tool.definition.requires_eval_flag,
        "takes_workspace": tool.signature.workspace is not None,
        "annotations": msgspec.to_builtins(tool.annotations),
        "input_schema": tool.schema,
        "codes": [code.name for code in tool.codes],
    }


def _meaning(code: Code) -> dict[str, Any]:
    return {"http": code.http, "retryable": code.retryable, "hint": code.hint}
