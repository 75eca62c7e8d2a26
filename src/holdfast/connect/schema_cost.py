"""How much work a JSON schema makes of checking a document: an upper bound, found without checking any.

A library cannot be stopped while it checks, and blocks the event loop. A small schema can make it check every value
millions of times: each of `$defs/1`, `$defs/2`, … refers to the next one twice. Such a schema is found here, before use.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from holdfast.model.json import Json, JsonObject

MAX_REFERENCES = 500
MAX_PATTERNS = 32
MAX_PATTERN_LENGTH = 4096
# A library recurses as deep as subschemas are inside each other. If it ran out of stack, the host would end.
_MAX_CHAIN = 32
_MAX_HEIGHT = 800
_MAX_LEVELS = 32
_MAX_STEPS = 1_000_000
# `unevaluatedProperties` makes the library look at the subschemas beside it again: measured, 2.6 times.
_UNEVALUATED_FACTOR = 4

# Subschemas for the same value, for the members of an object, and for the items of an array.
_SAME_LISTS = ("allOf", "anyOf", "oneOf")
_SAME = ("not", "if", "then", "else")
_SAME_MAPS = ("dependentSchemas", "dependencies")
_MEMBER = ("additionalProperties", "unevaluatedProperties", "propertyNames")
_ITEM = ("items", "additionalItems", "unevaluatedItems", "contains")
_POSITIONS = ("prefixItems", "items")
_SIZED = ("enum", "required", "properties", "patternProperties", "dependentRequired", "dependencies")
_REFUSED = ("$dynamicRef", "$recursiveRef")


class UncheckableSchemaError(ValueError):
    """The schema cannot be used to check documents. The message says why, in words of Holdfast."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaCost:
    """The most steps and pattern matches for one value of a document, by how deep the document is nested."""

    steps: tuple[int, ...]
    matches: tuple[int, ...]
    patterns: int
    """How many patterns it has."""
    chain: int
    """How many subschemas for one value are inside each other at most."""
    has_alternatives: bool
    """Whether it has `anyOf` or `oneOf`. An error at such a place has errors of each alternative in it."""

    def steps_at(self, depth: int) -> int:
        """The most steps for one value of a document that is nested this deep."""
        return self.steps[min(depth, len(self.steps) - 1)]  # the last one holds for every depth

    def matches_at(self, depth: int) -> int:
        """The most pattern matches for one value of a document that is nested this deep."""
        return self.matches[min(depth, len(self.matches) - 1)]


def measure_schema(schema: Json) -> SchemaCost:
    """Find the cost of a schema. Raise `UncheckableSchemaError` if it has no bound, or uses what is not supported."""
    reader = _Reader(schema)
    nodes = reader.read()
    if reader.height() > _MAX_HEIGHT:
        raise UncheckableSchemaError("it is nested too deeply")
    order, chain = _order(nodes)
    return SchemaCost(
        steps=_bounds(nodes, order, [node.steps for node in nodes]),
        matches=_bounds(nodes, order, [node.patterns for node in nodes]),
        patterns=reader.patterns,
        chain=chain,
        has_alternatives=reader.has_alternatives,
    )


@dataclass(slots=True)
class _Node:
    """One subschema: its own work, and the subschemas it applies, by number."""

    steps: int = 1
    patterns: int = 0
    factor: int = 1
    reference: int | None = None
    same: list[int] = field(default_factory=list[int])
    named: list[int] = field(default_factory=list[int])
    """For members of different names: at most one of them applies to a member."""
    members: list[int] = field(default_factory=list[int])
    positions: list[int] = field(default_factory=list[int])
    items: list[int] = field(default_factory=list[int])


class _Reader:
    """Turns a schema into nodes: those that are used, each once."""

    def __init__(self, schema: Json) -> None:
        self._root = schema
        self.has_alternatives = False
        self._nodes: list[_Node] = []
        self._numbers: dict[int, int] = {}  # by identity: the schema is kept and not changed
        self._unread: list[tuple[JsonObject, int]] = []
        self.patterns = self._references = self._pattern_length = 0

    def read(self) -> list[_Node]:
        self._number(self._root)
        while self._unread:
            schema, number = self._unread.pop()
            self._read_keywords(schema, self._nodes[number])
        return self._nodes

    def height(self) -> int:
        """How many subschemas can be inside each other at most, if every reference is followed once."""
        heights: dict[int, int] = {}

        def height(number: int) -> int:
            if number not in heights:
                node = self._nodes[number]
                parts = (*node.same, *node.named, *node.members, *node.positions, *node.items)
                heights[number] = 1 + max(
                    (height(part) for part in parts if part != node.reference), default=0
                )
            return heights[number]

        targets = {node.reference for node in self._nodes if node.reference is not None}
        return height(0) + sum(map(height, targets))

    def _number(self, schema: Json) -> int:
        """The number of a subschema, which is read later if it is new."""
        number = self._numbers.get(id(schema)) if isinstance(schema, dict) else None
        if number is None:
            number = len(self._nodes)
            self._nodes.append(_Node())
            if isinstance(schema, dict):
                self._numbers[id(schema)] = number
                self._unread.append((schema, number))
        return number

    def _read_keywords(self, schema: JsonObject, node: _Node) -> None:
        if any(keyword in schema for keyword in _REFUSED):
            raise UncheckableSchemaError("it has references that depend on the path to them")
        if schema is not self._root and any(isinstance(schema.get(key), str) for key in ("$id", "id")):
            raise UncheckableSchemaError("a part of it has an id of its own")
        node.steps = 1 + len(schema) + sum(_size(schema.get(keyword)) for keyword in _SIZED)
        if "unevaluatedProperties" in schema or "unevaluatedItems" in schema:
            node.factor = _UNEVALUATED_FACTOR
        self.has_alternatives |= "anyOf" in schema or "oneOf" in schema
        self._read_patterns(schema, node)
        number = self._number
        for keyword in _SAME_LISTS:
            node.same += map(number, _list(schema.get(keyword)))
        node.same += [number(schema[keyword]) for keyword in _SAME if keyword in schema]
        for keyword in _SAME_MAPS:
            node.same += [
                number(value) for value in _values(schema.get(keyword)) if not isinstance(value, list)
            ]
        if "$ref" in schema:
            node.reference = number(self._resolve(schema["$ref"]))
            node.same.append(node.reference)
        node.named += map(number, _values(schema.get("properties")))
        node.members += map(number, _values(schema.get("patternProperties")))
        node.members += [number(schema[keyword]) for keyword in _MEMBER if keyword in schema]
        for keyword in _POSITIONS:
            node.positions += map(number, _list(schema.get(keyword)))
        node.items += [
            number(schema[keyword])
            for keyword in _ITEM
            if keyword in schema and not isinstance(schema[keyword], list)
        ]

    def _read_patterns(self, schema: JsonObject, node: _Node) -> None:
        patterns = [pattern for pattern in (schema.get("pattern"),) if isinstance(pattern, str)]
        named = schema.get("patternProperties")
        if isinstance(named, dict):
            patterns += named
        node.patterns = len(patterns)
        self.patterns += len(patterns)
        self._pattern_length += sum(map(len, patterns))
        if self.patterns > MAX_PATTERNS or self._pattern_length > MAX_PATTERN_LENGTH:
            raise UncheckableSchemaError("it has too many or too long patterns")

    def _resolve(self, reference: Json) -> Json:
        self._references += 1
        if self._references > MAX_REFERENCES:
            raise UncheckableSchemaError(f"it has more than {MAX_REFERENCES} references")
        if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
            raise UncheckableSchemaError("it refers to something outside of it, or by a name")
        found = self._root
        for part in reference[2:].split("/") if reference != "#" else ():
            key = unquote(part).replace("~1", "/").replace("~0", "~")
            if isinstance(found, dict) and key in found:
                found = found[key]
            elif isinstance(found, list) and key.isascii() and key.isdigit() and int(key) < len(found):
                found = found[int(key)]
            else:
                raise UncheckableSchemaError("it refers to a part that it does not have")
        return found


def _order(nodes: list[_Node]) -> tuple[list[int], int]:
    """The nodes, each after those that it applies to the same value, and the longest chain of them.

    Raise if they go in a circle, or if the chain is too long.
    """
    depths = [0] * len(nodes)  # 0: new, -1: its subschemas are being ordered
    order: list[int] = []
    for root in range(len(nodes)):
        if depths[root]:
            continue
        depths[root] = -1
        path: list[tuple[int, Iterator[int]]] = [(root, iter(nodes[root].same))]
        while path:
            number, rest = path[-1]
            following = next(rest, None)
            if following is None:
                path.pop()
                depths[number] = 1 + max((depths[other] for other in nodes[number].same), default=0)
                order.append(number)
                if depths[number] > _MAX_CHAIN:
                    raise UncheckableSchemaError("its references form too long a chain")
            elif depths[following] == -1:
                raise UncheckableSchemaError("it refers to itself in a circle")
            elif depths[following] == 0:
                depths[following] = -1
                path.append((following, iter(nodes[following].same)))
    return order, max(depths)


def _bounds(nodes: list[_Node], order: list[int], own: list[int]) -> tuple[int, ...]:
    """The most work that the root causes at one value, for documents of depth 0, 1, 2 and so on.

    The work at a value below is at most the sum over all subschemas that are applied to the member or item that it is
    part of. The bounds end where they stay the same, or are over the maximum.
    """
    at_value = [0] * len(nodes)
    for number in order:
        node = nodes[number]
        at_value[number] = _cap(node.factor * (own[number] + sum(at_value[other] for other in node.same)))
    most = at_value
    bounds = [most[0]]
    for _ in range(_MAX_LEVELS):
        in_members, in_items, below = [0] * len(nodes), [0] * len(nodes), [0] * len(nodes)
        for number in order:
            node = nodes[number]
            members = max((most[other] for other in node.named), default=0)
            members += sum(most[other] for other in node.members) + sum(
                in_members[other] for other in node.same
            )
            items = max((most[other] for other in node.positions), default=0)
            items += sum(most[other] for other in node.items) + sum(in_items[other] for other in node.same)
            in_members[number], in_items[number] = _cap(node.factor * members), _cap(node.factor * items)
            below[number] = max(at_value[number], in_members[number], in_items[number])
        if below == most:
            break
        most = below
        bounds.append(most[0])
        if most[0] >= _MAX_STEPS:
            break
    else:
        bounds.append(_MAX_STEPS)
    return tuple(bounds)


def _cap(steps: int) -> int:
    return min(steps, _MAX_STEPS)


def _size(value: Json) -> int:
    return len(value) if isinstance(value, list | dict) else 0


def _list(value: Json) -> list[Any]:
    return value if isinstance(value, list) else []


def _values(value: Json) -> list[Any]:
    return [*value.values()] if isinstance(value, dict) else []
