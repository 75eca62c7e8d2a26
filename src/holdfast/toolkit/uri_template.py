"""Match URIs against templates such as `shop://{id}`, in time that grows only with the length of the URI.

Of RFC 6570, the toolkit uses `{name}` (one segment of a path), `{+name}` or `{name*}` (any number of segments, once per
template), and `{?name,other}` at the end (parts of the query).
"""

import re
from dataclasses import dataclass
from urllib.parse import parse_qsl, unquote

from holdfast.model import codes
from holdfast.model.errors import HoldfastError

MAX_URI = 4096  # characters
MAX_VARIABLES = 16

_EXPRESSION = re.compile(r"\{([^{}]*)\}")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable in the path of a template, and the literal text after it."""

    name: str
    is_multiple: bool
    """Whether it matches several segments."""
    literal: str


@dataclass(frozen=True, slots=True)
class UriTemplate:
    """A template that was checked. One without variables matches only itself."""

    text: str
    start: str
    """The literal text before the first variable."""
    path: tuple[Variable, ...]
    query: tuple[str, ...]
    """The names of the variables in the query. All of them are optional."""

    @property
    def variables(self) -> tuple[str, ...]:
        return (*(variable.name for variable in self.path), *self.query)

    def match(self, uri: str) -> dict[str, str] | None:
        """The values of the variables, decoded; None if the URI does not match.

        A value that could leave its place in a path (`..`, or an encoded slash in one segment) does not match.
        """
        values: dict[str, str] = {}
        if self.query:
            uri, _, query = uri.partition("?")
            try:
                given = parse_qsl(query, keep_blank_values=True, max_num_fields=MAX_VARIABLES)
            except ValueError:
                return None
            values = {name: value for name, value in given if name in self.query}
        if not uri.startswith(self.start):
            return None
        rest = uri[len(self.start) :]
        split = next((i for i, variable in enumerate(self.path) if variable.is_multiple), len(self.path))
        found, rest = _match_forwards(self.path[:split], rest, is_end=split == len(self.path))
        if found is None:
            return None
        if split < len(self.path):
            more = _match_multiple(self.path[split], self.path[split + 1 :], rest)
            if more is None:
                return None
            found |= more
        for variable in self.path:
            value = _decode(found[variable.name], is_multiple=variable.is_multiple)
            if value is None:
                return None
            values[variable.name] = value
        return values


def read_template(text: str) -> UriTemplate:
    """Check a URI or a URI template; raises BAD_TOOL when it is not valid or not supported."""
    if not _SCHEME.match(text) or len(text) > MAX_URI or not text.isprintable() or " " in text:
        raise _bad_template(text, 'it is not a URI. Begin with a scheme, as in "shop://orders"')
    start, *parts = _EXPRESSION.split(text)
    path: list[Variable] = []
    query: tuple[str, ...] = ()
    for expression, literal in zip(parts[::2], parts[1::2], strict=True):
        if query:
            raise _bad_template(text, "nothing may follow {?…}")
        if expression.startswith("?"):
            query = tuple(expression[1:].split(","))
            if literal:
                raise _bad_template(text, "nothing may follow {?…}")
            continue
        is_multiple = expression.startswith("+") or expression.endswith("*")
        path.append(Variable(expression.removeprefix("+").removesuffix("*"), is_multiple, literal))
    if any("{" in literal or "}" in literal for literal in (start, *parts[1::2])):
        raise _bad_template(text, "its braces do not match")
    names = [*(variable.name for variable in path), *query]
    if bad := [name for name in names if not _NAME.fullmatch(name)]:
        raise _bad_template(
            text, f"{{{bad[0]}}} is not supported. Use {{name}}, {{+name}} or {{?name,other}}"
        )
    if len(set(names)) < len(names) or len(names) > MAX_VARIABLES:
        raise _bad_template(text, f"it has a variable twice, or more than {MAX_VARIABLES} variables")
    if any(not variable.literal for variable in path[:-1]):
        raise _bad_template(text, "there must be text between two variables")
    if sum(variable.is_multiple for variable in path) > 1:
        raise _bad_template(text, "only one variable may match several segments")
    return UriTemplate(text, start, tuple(path), query)


def _match_forwards(
    path: tuple[Variable, ...], rest: str, *, is_end: bool
) -> tuple[dict[str, str] | None, str]:
    """Match variables of one segment from the left. Return their values (None if they do not match), and the rest of the URI."""
    values: dict[str, str] = {}
    for index, variable in enumerate(path):
        is_last = is_end and index == len(path) - 1
        if is_last:
            end = len(rest) - len(variable.literal) if rest.endswith(variable.literal) else -1
        else:
            end = rest.find(variable.literal, 1)
        if end < 1 or any(character in "/?#" for character in rest[:end]):
            return None, ""
        values[variable.name] = rest[:end]
        rest = rest[end + len(variable.literal) :]
    return (None, "") if is_end and rest else (values, rest)


def _match_multiple(variable: Variable, others: tuple[Variable, ...], rest: str) -> dict[str, str] | None:
    """Match a variable of several segments and the variables after it.

    `others` are matched from the right, because each of them is one segment; `variable` gets what is left.
    """
    values: dict[str, str] = {}
    for index in range(len(others) - 1, -1, -1):
        other, before = others[index], (variable, *others)[index]
        if not rest.endswith(other.literal):
            return None
        rest = rest[: len(rest) - len(other.literal)]
        begin = rest.rfind(before.literal)
        if begin < 0 or begin + len(before.literal) == len(rest):
            return None
        value = rest[begin + len(before.literal) :]
        if any(character in "/?#" for character in value):
            return None
        values[other.name] = value
        rest = rest[: begin + len(before.literal)]
    if not rest.endswith(variable.literal) or len(rest) == len(variable.literal):
        return None
    values[variable.name] = rest[: len(rest) - len(variable.literal)]
    return values


def _decode(value: str, *, is_multiple: bool) -> str | None:
    """Undo the percent-encoding; None if the value is not text, or could leave its place in a path."""
    try:
        decoded = unquote(value, errors="strict")
    except UnicodeDecodeError:
        return None
    if "\0" in decoded or "\\" in decoded or (not is_multiple and "/" in decoded):
        return None
    segments = decoded.split("/")
    if any(segment in (".", "..") for segment in segments) or (is_multiple and decoded.startswith("/")):
        return None
    return decoded


def _bad_template(text: str, problem: str) -> HoldfastError:
    return HoldfastError(codes.BAD_TOOL, f"The resource {text[:200]!r} cannot be added: {problem}.")
