"""Computes, from a JSON schema alone, an upper bound for the work of checking a document.

A small schema can make a check visit every value millions of times, for example if each of `$defs/1`, `$defs/2`, … refers
to the next one twice.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from holdfast.model.json import Json, JsonObject

MAX_REFERENCES = 500
MAX_PATTERNS = 32
MAX_PATTERN_LENGTH = 4096  # characters of all patterns together
# The library recurses as deep as subschemas are nested. Without these limits, it could run out of stack and crash the host.
_MAX_CHAIN = 32  # how many nested subschemas may apply to the same value
_MAX_HEIGHT = 800  # how deep subschemas may be nested, if every reference is followed once
# The cost is computed up to this depth of a document. If the cost still grows at that depth, deeper documents are too costly.
_MAX_DOCUMENT_DEPTH = 32
_MAX_STEPS = 1_000_000  # a higher cost counts as this many steps
# `unevaluatedProperties` makes the library check the subschemas next to it again. The factor is higher than any that was measured.
_UNEVALUATED_FACTOR = 4

# Keywords with subschemas: for the same value, for the members of an object, and for the items of an array.
_SAME_VALUE_LISTS = ("allOf", "anyOf", "oneOf")
_SAME_VALUE = ("not", "if", "then", "else")
_SAME_VALUE_MAPS = ("dependentSchemas", "dependencies")
_MEMBER_KEYWORDS = ("additionalProperties", "unevaluatedProperties", "propertyNames")
_ITEM_KEYWORDS = ("items", "additionalItems", "unevaluatedItems", "contains")
_POSITION_KEYWORDS = ("prefixItems", "items")
# Keywords whose entries count as one step each.
_COUNTED_KEYWORDS = (
    "enum",
    "required",
    "properties",
    "patternProperties",
    "dependentRequired",
    "dependencies",
)
_UNSUPPORTED_KEYWORDS = ("$dynamicRef", "$recursiveRef")


class UncheckableSchemaError(ValueError):
    """The schema cannot be used to check documents. The message says why, and quotes nothing from the schema."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaCost:
    """The most steps and pattern matches for one value, by the depth of the whole document.

    A step is the visit of a subschema, of one of its keywords, or of an entry of `_COUNTED_KEYWORDS`.
    """

    steps: tuple[int, ...]
    matches: tuple[int, ...]
    patterns: int
    """How many patterns the schema has."""
    chain: int
    """The length of the longest chain of nested subschemas that apply to the same value."""
    has_alternatives: bool
    """Whether the schema has `anyOf` or `oneOf`, whose errors contain the errors of each alternative."""

    def steps_at(self, depth: int) -> int:
        """The most steps for one value, in a document of this depth."""
        return self.steps[min(depth, len(self.steps) - 1)]  # the last bound applies to every greater depth

    def matches_at(self, depth: int) -> int:
        """The most pattern matches for one value, in a document of this depth."""
        return self.matches[min(depth, len(self.matches) - 1)]


def measure_schema(schema: Json) -> SchemaCost:
    """The cost of a schema. Raise `UncheckableSchemaError` if there is no bound, or if a keyword is not supported."""
    reader = _SchemaReader(schema)
    nodes = reader.read()
    if reader.height() > _MAX_HEIGHT:
        raise UncheckableSchemaError("it is nested too deeply")
    order, chain = _sort_nodes(nodes)
    return SchemaCost(
        steps=_bounds_by_depth(nodes, order, [node.steps for node in nodes]),
        matches=_bounds_by_depth(nodes, order, [node.patterns for node in nodes]),
        patterns=reader.patterns,
        chain=chain,
        has_alternatives=reader.has_alternatives,
    )


@dataclass(slots=True)
class _Node:
    """One subschema: its own work, and the numbers of the subschemas that it applies."""

    steps: int = 1
    patterns: int = 0
    factor: int = 1
    """How many times the work is done."""
    reference: int | None = None
    """The number of the subschema that `$ref` names, which is also in `same`."""
    same: list[int] = field(default_factory=list[int])
    """Subschemas that apply to the same value."""
    named: list[int] = field(default_factory=list[int])
    """Subschemas for members with different names. At most one of them applies to each member."""
    members: list[int] = field(default_factory=list[int])
    """Other subschemas for members. Several may apply to one member."""
    positions: list[int] = field(default_factory=list[int])
    """Subschemas for items at different positions. At most one of them applies to each item."""
    items: list[int] = field(default_factory=list[int])
    """Other subschemas for items. Several may apply to one item."""


class _SchemaReader:
    """Makes a node for each subschema that is used."""

    def __init__(self, schema: Json) -> None:
        self._root = schema
        self.has_alternatives = False
        self._nodes: list[_Node] = []
        self._numbers: dict[int, int] = {}
        """The number of each subschema, by its `id()`, which stays valid because the schema is kept."""
        self._unread: list[tuple[JsonObject, int]] = []
        self.patterns = self._references = self._pattern_length = 0

    def read(self) -> list[_Node]:
        self._number_of(self._root)
        while self._unread:
            schema, number = self._unread.pop()
            self._measure_keywords(schema, self._nodes[number])
        return self._nodes

    def height(self) -> int:
        """How deep subschemas can be nested, if every reference is followed once."""
        heights: dict[int, int] = {}

        def height(number: int) -> int:
            if number not in heights:
                node = self._nodes[number]
                inner = (*node.same, *node.named, *node.members, *node.positions, *node.items)
                heights[number] = 1 + max(
                    (height(other) for other in inner if other != node.reference), default=0
                )
            return heights[number]

        targets = {node.reference for node in self._nodes if node.reference is not None}
        return height(0) + sum(map(height, targets))

    def _number_of(self, schema: Json) -> int:
        """The number of a subschema. A new one gets the next number and is read later."""
        number = self._numbers.get(id(schema)) if isinstance(schema, dict) else None
        if number is None:
            number = len(self._nodes)
            self._nodes.append(_Node())
            if isinstance(schema, dict):
                self._numbers[id(schema)] = number
                self._unread.append((schema, number))
        return number

    def _measure_keywords(self, schema: JsonObject, node: _Node) -> None:
        """Note the work of a subschema, and the numbers of the subschemas in its keywords."""
        if any(keyword in schema for keyword in _UNSUPPORTED_KEYWORDS):
            raise UncheckableSchemaError("it uses $dynamicRef or $recursiveRef")
        if schema is not self._root and any(isinstance(schema.get(key), str) for key in ("$id", "id")):
            raise UncheckableSchemaError("a part of it has an id of its own")
        node.steps = 1 + len(schema) + sum(_size(schema.get(keyword)) for keyword in _COUNTED_KEYWORDS)
        if "unevaluatedProperties" in schema or "unevaluatedItems" in schema:
            node.factor = _UNEVALUATED_FACTOR
        self.has_alternatives |= "anyOf" in schema or "oneOf" in schema
        self._measure_patterns(schema, node)
        number_of = self._number_of
        for keyword in _SAME_VALUE_LISTS:
            node.same += map(number_of, _list(schema.get(keyword)))
        node.same += [number_of(schema[keyword]) for keyword in _SAME_VALUE if keyword in schema]
        for keyword in _SAME_VALUE_MAPS:
            node.same += [
                number_of(value) for value in _values(schema.get(keyword)) if not isinstance(value, list)
            ]
        if "$ref" in schema:
            node.reference = number_of(self._resolve(schema["$ref"]))
            node.same.append(node.reference)
        node.named += map(number_of, _values(schema.get("properties")))
        node.members += map(number_of, _values(schema.get("patternProperties")))
        node.members += [number_of(schema[keyword]) for keyword in _MEMBER_KEYWORDS if keyword in schema]
        for keyword in _POSITION_KEYWORDS:
            node.positions += map(number_of, _list(schema.get(keyword)))
        node.items += [
            number_of(schema[keyword])
            for keyword in _ITEM_KEYWORDS
            if keyword in schema and not isinstance(schema[keyword], list)
        ]

    def _measure_patterns(self, schema: JsonObject, node: _Node) -> None:
        patterns = [pattern for pattern in (schema.get("pattern"),) if isinstance(pattern, str)]
        named = schema.get("patternProperties")
        if isinstance(named, dict):
            patterns += named
        node.patterns = len(patterns)
        self.patterns += len(patterns)
        self._pattern_length += sum(map(len, patterns))
        if self.patterns > MAX_PATTERNS or self._pattern_length > MAX_PATTERN_LENGTH:
            raise UncheckableSchemaError("it has too many patterns, or too long ones")

    def _resolve(self, reference: Json) -> Json:
        """The subschema that a `$ref` names. Raise if it is not a part of this schema."""
        self._references += 1
        if self._references > MAX_REFERENCES:
            raise UncheckableSchemaError(f"it has more than {MAX_REFERENCES} references")
        if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
            raise UncheckableSchemaError("it has a reference to another document, or a reference by name")
        target = self._root
        for part in reference[2:].split("/") if reference != "#" else ():
            key = unquote(part).replace("~1", "/").replace("~0", "~")
            if isinstance(target, dict) and key in target:
                target = target[key]
            elif isinstance(target, list) and key.isascii() and key.isdigit() and int(key) < len(target):
                target = target[int(key)]
            else:
                raise UncheckableSchemaError("it refers to a part that it does not have")
        return target


def _sort_nodes(nodes: list[_Node]) -> tuple[list[int], int]:
    """Order the nodes so that each comes after the nodes in its `same`. Return the order, and the length of the longest chain.

    Raise if the nodes form a circle, or if the chain is too long. No recursion, which could run out of stack.
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
            inner = next(rest, None)
            if inner is None:
                path.pop()
                depths[number] = 1 + max((depths[other] for other in nodes[number].same), default=0)
                order.append(number)
                if depths[number] > _MAX_CHAIN:
                    raise UncheckableSchemaError("its references form too long a chain")
            elif depths[inner] == -1:
                raise UncheckableSchemaError("it refers to itself in a circle")
            elif depths[inner] == 0:
                depths[inner] = -1
                path.append((inner, iter(nodes[inner].same)))
    return order, max(depths)


def _bounds_by_depth(nodes: list[_Node], order: list[int], own: list[int]) -> tuple[int, ...]:
    """The most work that the root causes for one value, for documents of depth 0, 1, 2 and so on.

    `own` is the work of each node itself, without its subschemas. The work for a value inside a member or item is at most the
    sum over all subschemas that apply to it. The bounds end where they no longer change, or reach the maximum.
    """
    # For each node: the work at the value that it applies to, without members and items.
    at_value = [0] * len(nodes)
    for number in order:
        node = nodes[number]
        at_value[number] = _cap(node.factor * (own[number] + sum(at_value[other] for other in node.same)))
    # For each node: the most work at one value, at any level of a document. Each round allows one more level.
    most = at_value
    bounds = [most[0]]
    for _ in range(_MAX_DOCUMENT_DEPTH):
        in_members, in_items, deeper = [0] * len(nodes), [0] * len(nodes), [0] * len(nodes)
        for number in order:
            node = nodes[number]
            members = max((most[other] for other in node.named), default=0)
            members += sum(most[other] for other in node.members) + sum(
                in_members[other] for other in node.same
            )
            items = max((most[other] for other in node.positions), default=0)
            items += sum(most[other] for other in node.items) + sum(in_items[other] for other in node.same)
            in_members[number], in_items[number] = _cap(node.factor * members), _cap(node.factor * items)
            deeper[number] = max(at_value[number], in_members[number], in_items[number])
        if deeper == most:
            break
        most = deeper
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
