"""The definition of an agent: a Markdown file with front matter. It narrows what a session may use, and never widens it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from holdfast.model.allowlist import ALLOW_ALL, ALLOW_NONE, Allowlist
from holdfast.model.budget_limits import BUDGET_NAMES, NO_LIMITS, BudgetLimits
from holdfast.model.permission import Mode, parse_mode
from holdfast.model.tool_pattern import ToolPattern, parse_tool_patterns

NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")
"""Matches the valid names of agents. The definition of the agent NAME is in the file `NAME.md`."""
MAX_BYTES = 64 * 1024
"""The maximum size of the file."""
_FIELDS = ("description", "model", "servers", "tools", "mode", "budget")
# The highest limit of a budget, and how many digits it may be written with.
_MAX_NUMBER, _MAX_DIGITS = 10**9, 20
_MAX_TEXT = 1000  # characters of a field
_Value = str | list[str] | dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentDefinition:
    """An agent: its instructions, and what it may use."""

    name: str
    description: str = ""
    model: str = ""
    """One of the models that the user configured; empty for the session's model."""
    instructions: str = ""
    servers: Allowlist = ALLOW_ALL
    tools: tuple[ToolPattern, ...] | None = None
    """The patterns of the tools that the agent may use; None for all tools of the session."""
    mode: Mode = Mode.AUTO
    """The highest mode for the agent's calls. The session's mode may be lower."""
    budget: BudgetLimits = NO_LIMITS
    origin: str = ""
    """The path of the file."""
    digest: str = ""
    """A hash of the file's content; the user approves this hash."""
    is_project: bool = False
    """Whether the file is in the session's folder, and so needs approval."""

    def allows(self, server: str, tool: str) -> bool:
        """Whether the agent may use this tool, if the session has it."""
        if not self.servers.allows(server):
            return False
        return self.tools is None or any(pattern.matches(server, tool) for pattern in self.tools)


def parse_definition(name: str, text: str) -> AgentDefinition:
    """Parse the text of a file. If it is not valid, for example because of an unknown field, raise ValueError with a reason for the user."""
    fields, instructions = _split_front_matter(text)
    if unknown := [field for field in fields if field not in _FIELDS]:
        raise ValueError(
            f"it has the unknown field {unknown[0][:40]!r}. The fields are: {', '.join(_FIELDS)}"
        )
    tools = fields.get("tools", "all")
    return AgentDefinition(
        name=name,
        description=_text(fields, "description"),
        model=_text(fields, "model"),
        instructions=instructions.strip(),
        servers=_allowlist(fields.get("servers", "all")),
        tools=None if tools == "all" else _patterns(tools),
        mode=_mode(fields),
        budget=_budget(fields.get("budget", {})),
    )


def _split_front_matter(text: str) -> tuple[dict[str, _Value], str]:
    """The fields of the front matter, and the text after it."""
    # Some editors begin a file with U+FEFF. The front matter must be found after that, and after an empty line.
    lines = text.lstrip("\ufeff \t\r\n").splitlines()
    if not lines or lines[0].strip() != "---":
        return {}, text
    for end, line in enumerate(lines[1:], 1):
        if line.strip() == "---":
            return _parse_front_matter(lines[1:end]), "\n".join(lines[end + 1 :])
    raise ValueError("its front matter has no end: add a line with ---")


def _parse_front_matter(lines: list[str]) -> dict[str, _Value]:
    """Parse the small part of YAML that the fields need: strings, lists, and one level of names with numbers."""
    fields: dict[str, _Value] = {}
    current = ""
    for line in lines:
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if not line[0].isspace():
            key, colon, value = line.partition(":")
            current = key.strip()
            if not colon or not current or current in fields:
                raise ValueError(
                    f"its front matter has the line {line[:80]!r}; write each field once, as `name: value`"
                )
            fields[current] = _scalar(value.strip())
        else:
            fields[current] = _add_indented_line(fields.get(current, ""), line.strip())
    return fields


def _add_indented_line(value: _Value, line: str) -> _Value:
    if line.startswith("- ") and (value == "" or isinstance(value, list)):
        return [*(value if isinstance(value, list) else []), _unquote(line[2:].strip())]
    key, colon, number = line.partition(":")
    if colon and (value == "" or isinstance(value, dict)):
        return {**(value if isinstance(value, dict) else {}), key.strip(): number.strip()}
    raise ValueError(
        f"its front matter has the indented line {line[:80]!r}; indent only the items of a list (`- name`) and the lines of `budget:`"
    )


def _scalar(text: str) -> _Value:
    if text.startswith("[") and text.endswith("]"):
        return [_unquote(item.strip()) for item in text[1:-1].split(",") if item.strip()]
    return _unquote(text)


def _unquote(text: str) -> str:
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'" else text


def _text(fields: Mapping[str, _Value], name: str) -> str:
    value = fields.get(name, "")
    if not isinstance(value, str) or not value.isprintable() or len(value) > _MAX_TEXT:
        raise ValueError(f"its {name} must be one line of at most {_MAX_TEXT} characters")
    return value


def _allowlist(value: _Value) -> Allowlist:
    match value:
        case "all":
            return ALLOW_ALL
        case "none":
            return ALLOW_NONE
        case list():
            return Allowlist(frozenset(value))
        case _:
            raise ValueError("its servers must be `all`, `none`, or a list of names")


def _patterns(value: _Value) -> tuple[ToolPattern, ...]:
    if value == "none":
        return ()
    try:
        return parse_tool_patterns(value)
    except ValueError as error:
        raise ValueError(f"its tools {error}") from None


def _mode(fields: Mapping[str, _Value]) -> Mode:
    try:
        return parse_mode(fields.get("mode", Mode.AUTO.value))
    except ValueError as error:
        raise ValueError(f"its mode {error}") from None


def _budget(value: _Value) -> BudgetLimits:
    if not isinstance(value, dict):
        raise ValueError("its budget must be lines such as `tokens: 20000` below `budget:`")
    for name, number in value.items():
        is_valid = number.isdecimal() and len(number) <= _MAX_DIGITS and 0 < int(number) <= _MAX_NUMBER
        if name not in BUDGET_NAMES or not is_valid:
            raise ValueError(
                f"its budget has {name[:40]!r}: use {', '.join(BUDGET_NAMES)}, each a whole number from 1 to {_MAX_NUMBER}"
            )
    return BudgetLimits(**{name: int(number) for name, number in value.items()})
