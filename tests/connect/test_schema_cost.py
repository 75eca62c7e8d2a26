"""The estimated cost of a schema is an upper bound, and schemas whose cost has no bound are found."""

from collections import Counter
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.connect.schema_cost import UncheckableSchemaError, measure_schema

pytestmark = pytest.mark.promise("SES-05")

LIMIT = 1_000_000
ANY_JSON: Any = {
    "anyOf": [
        {"type": "string"},
        {"type": "array", "items": {"$ref": "#"}},
        {"type": "object", "additionalProperties": {"$ref": "#"}},
    ]
}


def twice(target: str) -> dict[str, Any]:
    return {"allOf": [{"$ref": target}, {"$ref": target}]}


def test_cost_of_a_flat_schema_does_not_depend_on_the_depth():
    cost = measure_schema({"properties": {"a": {"type": "string"}, "b": {"type": "integer"}}})

    assert (cost.steps, cost.steps_at(50), cost.matches, cost.chain) == ((4,), 4, (0,), 1)


def test_cost_of_a_schema_for_any_json_does_not_depend_on_the_depth():
    cost = measure_schema(ANY_JSON)

    assert [cost.steps_at(depth) for depth in (0, 1, 2, 100)] == [10, 12, 12, 12]


def test_cost_doubles_with_every_definition_that_is_used_twice():
    defs = {f"d{number}": twice(f"#/$defs/d{number + 1}") for number in range(10)}
    cost = measure_schema({"$ref": "#/$defs/d0", "$defs": {**defs, "d10": {"type": "string"}}})

    assert 2**10 < cost.steps_at(0) < 2**14


def test_cost_of_members_that_are_checked_twice_doubles_with_the_depth():
    cost = measure_schema({"properties": {"next": twice("#")}})

    assert [cost.steps_at(depth + 1) // cost.steps_at(depth) for depth in (4, 5, 6)] == [2, 2, 2]
    assert cost.steps_at(100) == LIMIT


REFUSED: list[tuple[Any, str]] = [
    ({"$ref": "#"}, "in a circle"),
    ({"$ref": "#/$defs/a", "$defs": {"a": {"allOf": [{"$ref": "#/$defs/a"}]}}}, "in a circle"),
    ({"$ref": "other.json"}, "another document"),
    ({"$ref": "#name", "$defs": {"a": {"$anchor": "name"}}}, "by name"),
    ({"items": {"$dynamicRef": "#x"}}, "dynamicRef"),
    ({"items": {"$id": "https://example.org/x"}}, "an id of its own"),
    ({"allOf": [{"$ref": "#/$defs/a"} for _ in range(501)], "$defs": {"a": {}}}, "more than 500 references"),
    ({"patternProperties": {f"^{number}": {} for number in range(33)}}, "patterns"),
    ({"pattern": "x" * 5000}, "patterns"),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "reason"), REFUSED)
def test_schema_without_a_bound_or_with_unsupported_references_is_refused(schema: Any, reason: str):
    with pytest.raises(UncheckableSchemaError, match=reason):
        measure_schema(schema)


REFERENCES = st.sampled_from(["#", "#/$defs/a", "#/$defs/b"]).map(lambda target: {"$ref": target})
SUBSCHEMAS = st.recursive(
    st.just(True) | REFERENCES,
    lambda inner: st.fixed_dictionaries(
        {},
        optional={
            "allOf": st.lists(inner, min_size=1, max_size=2),
            "not": inner,
            "properties": st.dictionaries(st.sampled_from("xy"), inner, max_size=2),
            "additionalProperties": inner,
            "items": inner,
            "prefixItems": st.lists(inner, min_size=1, max_size=2),
        },
    ),
    max_leaves=6,
)
SCHEMAS = st.tuples(SUBSCHEMAS, SUBSCHEMAS, SUBSCHEMAS).map(
    lambda parts: {"allOf": [parts[0]], "$defs": {"a": parts[1], "b": parts[2]}}
)
DOCUMENTS = st.recursive(
    st.just(1),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("xyz"), inner, max_size=3),
    max_leaves=6,
)


@pytest.mark.slow
@given(SCHEMAS, DOCUMENTS)
@settings(max_examples=300, deadline=None)
def test_no_value_is_visited_more_often_than_the_bound(schema: Any, document: Any):
    try:
        cost = measure_schema(schema)
    except UncheckableSchemaError:
        return
    visits: Counter[tuple[Any, ...]] = Counter()
    if not visit(schema, schema, document, (), visits):
        return

    depth = max(map(len, visits))
    assert max(visits.values()) <= cost.steps_at(depth)


def visit(
    root: Any, schema: Any, value: Any, path: tuple[Any, ...], visits: Counter[tuple[Any, ...]]
) -> bool:
    """Apply every subschema to every value that it is for. False if there are too many to count."""
    visits[path] += 1
    if visits.total() > 20_000:
        return False
    if schema is True:
        return True
    keywords: dict[str, Any] = schema
    below: list[tuple[Any, Any, tuple[Any, ...]]] = [
        (part, value, path) for part in keywords.get("allOf", [])
    ]
    below += [(keywords["not"], value, path)] if "not" in keywords else []
    if "$ref" in keywords:
        name = keywords["$ref"].removeprefix("#/$defs/")
        below.append((root if name == "#" else root["$defs"][name], value, path))
    if type(value) is dict:
        members = cast("dict[str, Any]", value)
        named: dict[str, Any] = keywords.get("properties", {})
        rest = keywords.get("additionalProperties", True)
        below += [(named.get(key, rest), member, (*path, key)) for key, member in members.items()]
    elif type(value) is list:
        items = cast("list[Any]", value)
        first: list[Any] = keywords.get("prefixItems", [])
        rest = keywords.get("items", True)
        for number, item in enumerate(items):
            below.append((first[number] if number < len(first) else rest, item, (*path, number)))
    return all(visit(root, *part, visits) for part in below)
