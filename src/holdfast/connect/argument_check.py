"""Checks the arguments of a call against the tool's own schema, before the call is made.

The schema comes from a server, so it may be hostile. jsonschema-rs matches patterns in linear time, but a check cannot be
stopped and holds Python's global lock. So arguments are checked only if `schema_cost` finds a low upper bound for the work.
Otherwise the call is made without a check.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.connect.argument_message import MAX_ERRORS, describe_errors
from holdfast.connect.catalog import CatalogTool
from holdfast.connect.schema_cost import SchemaCost, UncheckableSchemaError, measure_schema
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.json import Json, JsonObject
from holdfast.model.limits import SMALL_DOCUMENT_BYTES, SizeLimit
from holdfast.model.visible_text import to_line
from holdfast.model.worker_threads import WorkerThreads
from holdfast.wire.strict_json import DECODE_ERRORS, decode_json, exceeds_limit, is_nested_within

if TYPE_CHECKING:
    from jsonschema_rs import ValidationError

log = logging.getLogger(__name__)

T = TypeVar("T")

MAX_SCHEMA_BYTES = 64 * 1024
_MAX_SCHEMA_DEPTH = 64
_MAX_RECURSION = 1000  # levels in the library, which crashes the process if it runs out of stack
# The limits of the cache of compiled schemas: how many schemas, and about how many bytes.
_MAX_SCHEMAS = 500
_MAX_MEMORY = 32 * 1024 * 1024
_MEMORY_FACTOR = 20  # a compiled schema takes this many times the memory of its text, without its patterns
_MAX_WARNED = 1000  # tools that are remembered, so that each warning is logged once
_CHECK_SECONDS = 2.0
"""How long a call waits for its schema to be compiled, and then for the check, including the time in the queue."""

_LOOP_LIMIT = SizeLimit(bytes=64 * 1024, values=500)  # larger arguments are checked in a thread
_CHEAP_BYTES = 512
"""For arguments up to this size, the cost is estimated once for each schema, not for each call."""
_NS_PER_STEP = 100  # the time that a step of `SchemaCost` takes
_MAX_NS_ON_LOOP = 1_000_000  # a check that could take longer is made in a thread
_MAX_NS = 20_000_000  # a check that could take longer is not made
# Limits for the compiled size of a pattern, each with the most nanoseconds that matching one byte then takes.
_PATTERN_SIZES = ((2 * 1024, 400), (16 * 1024, 3000), (64 * 1024, 16_000), (256 * 1024, 60_000))
# Above these limits, at most one error is reported. An error contains a copy of the value, and an error of `anyOf` contains
# the errors of all alternatives, each with a copy.
_MAX_STEPS_TO_LIST_ERRORS = 500
_MAX_BYTES_TO_LIST_ERRORS = 4 * 1024 * 1024

_DRAFTS = {
    "json-schema.org/draft-04/schema": "Draft4Validator",
    "json-schema.org/draft-06/schema": "Draft6Validator",
    "json-schema.org/draft-07/schema": "Draft7Validator",
    "json-schema.org/draft/2019-09/schema": "Draft201909Validator",
    "json-schema.org/draft/2020-12/schema": "Draft202012Validator",
}
_DEFAULT_DRAFT = "Draft202012Validator"  # as MCP requires
_DESCRIPTIVE_KEYWORDS = frozenset(
    {"$schema", "$id", "$comment", "title", "description", "examples", "default"}
)
_LIBRARY = "jsonschema_rs"
_THREADS = WorkerThreads("arguments", threads=4, per_owner=1)


class ArgumentChecker:
    """Checks arguments. A tool's schema is compiled when the tool is first called."""

    def __init__(self) -> None:
        """Raise if the library is not installed."""
        if find_spec(_LIBRARY) is None:
            raise _missing_library("it is not installed")
        self._compiled: OrderedDict[bytes, CompiledSchema] = OrderedDict()
        self._last: tuple[CatalogTool, CompiledSchema] | None = None
        """The tool of the last call, and its schema. Looking up a schema by its text takes longer than a check."""
        self._memory = 0
        """An estimate of how many bytes the compiled schemas take."""
        self._warned: OrderedDict[tuple[str, str, int], None] = OrderedDict()
        """The tools whose warning was logged, by server, name and length of the schema: another schema gets another warning."""

    async def find_error(
        self, tool: CatalogTool, arguments: bytes, *, quota_owner: str, decoded: Json = None
    ) -> HoldfastError | None:
        """The error if the arguments do not fit the tool's schema. None if they fit, or cannot be checked.

        `quota_owner` is that of the session: each owner gets one thread at a time. `decoded` are the arguments, if they are decoded already.
        """
        try:
            compiled = self._find_compiled(tool) or await self._compile(tool, quota_owner)
            if compiled.problem:
                raise UncheckableSchemaError(compiled.problem)
            if compiled.validator is None:
                return None
            is_cheap = decoded is not None and len(arguments) <= compiled.cheap_bytes
            if is_cheap and _call_library(compiled.validator.is_valid, decoded):
                return None
            is_large = len(arguments) > SMALL_DOCUMENT_BYTES and exceeds_limit(arguments, _LOOP_LIMIT)
            document = None if is_large else _Document.read(arguments, decoded)
            max_ns = 0 if document is None else _estimate_ns(compiled, document)
            problem = (
                _find_problem(compiled, document, max_ns)
                if document is not None and max_ns <= _MAX_NS_ON_LOOP
                else await _run_in_thread(_decode_and_check, compiled, arguments, quota_owner=quota_owner)
            )
        except UncheckableSchemaError as error:
            self._warn(tool, str(error))
            return None
        except TimeoutError:
            self._warn(tool, "checking takes too long")
            return None
        if problem is None:
            return None
        return HoldfastError(
            codes.BAD_ARGUMENT,
            f"{tool.name} was not called: its arguments do not fit its schema. {problem}".rstrip(),
        )

    def _find_compiled(self, tool: CatalogTool) -> "CompiledSchema | None":
        """The compiled schema of a tool; None if it must be compiled first. Raise if the schema is too long."""
        last = self._last
        if last is not None and last[0] is tool:
            return last[1]
        raw = tool.definition.input_schema
        if len(raw) > MAX_SCHEMA_BYTES:
            raise UncheckableSchemaError(f"it has more than {MAX_SCHEMA_BYTES // 1024} KiB")
        key = bytes(raw)
        compiled = self._compiled.get(key)
        if compiled is not None:
            self._compiled.move_to_end(key)
            self._last = tool, compiled
        return compiled

    async def _compile(self, tool: CatalogTool, quota_owner: str) -> "CompiledSchema":
        key = bytes(tool.definition.input_schema)
        compiled = await _run_in_thread(compile_schema, key, quota_owner=quota_owner)
        self._add(key, compiled)
        return compiled

    def _add(self, key: bytes, compiled: "CompiledSchema") -> None:
        self._last = None  # because its schema may be removed below
        replaced = self._compiled.pop(key, None)  # another call may have compiled it at the same time
        self._memory += compiled.memory - (replaced.memory if replaced is not None else 0)
        self._compiled[key] = compiled
        while len(self._compiled) > _MAX_SCHEMAS or self._memory > _MAX_MEMORY:
            _, oldest = self._compiled.popitem(last=False)
            self._memory -= oldest.memory

    def _warn(self, tool: CatalogTool, reason: str) -> None:
        """Log once that the arguments of a tool are not checked."""
        key = (tool.server.name, tool.definition.name, len(tool.definition.input_schema))
        if key in self._warned:
            return
        self._warned[key] = None
        if len(self._warned) > _MAX_WARNED:
            self._warned.popitem(last=False)
        log.warning(
            "arguments of %s are not checked because of its schema: %s",
            to_line(tool.name),
            to_line(reason),
            extra={"tool": tool.name, "reason": f"the schema: {reason}"},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledSchema:
    """A compiled schema, or the reason why it cannot be used."""

    validator: Any = None
    """A validator of jsonschema-rs; None if there is nothing to check."""
    cost: SchemaCost | None = None
    ns_per_byte: int = 0
    """The most nanoseconds that matching one byte against a pattern takes."""
    cheap_bytes: int = 0
    """Arguments up to this size are cheap to check, whatever their values are."""
    memory: int = 0
    """An estimate of the most memory that it takes, in bytes."""
    problem: str = ""
    """Why arguments cannot be checked; else empty."""


def compile_schema(raw: bytes) -> CompiledSchema:
    """Compile a schema. The result of a bad schema has a `problem`. Raise only if the library cannot be loaded."""
    try:
        if not is_nested_within(raw, _MAX_SCHEMA_DEPTH):
            raise UncheckableSchemaError(f"it is nested more than {_MAX_SCHEMA_DEPTH} levels deep")
        schema = decode_json(raw)
        if not isinstance(schema, dict):
            raise UncheckableSchemaError("it is not an object")
        if _allows_any_object(schema):
            return CompiledSchema(memory=len(raw))
        cost = measure_schema(schema)
        validator, size, ns_per_byte = _make_validator(schema)
        # A pattern and its cache take up to `size` each.
        memory = _MEMORY_FACTOR * len(raw) + cost.patterns * 2 * size
        compiled = CompiledSchema(validator=validator, cost=cost, ns_per_byte=ns_per_byte, memory=memory)
        return replace(compiled, cheap_bytes=_CHEAP_BYTES) if _is_always_cheap(compiled) else compiled
    except UncheckableSchemaError as error:
        problem = str(error)
    except DECODE_ERRORS:
        problem = "it cannot be read"
    except ImportError as error:
        raise _missing_library(str(error)) from None
    except Exception:
        log.exception("schema not compiled")
        problem = "it could not be compiled, see the log"
    return CompiledSchema(problem=problem, memory=len(raw))


def _missing_library(reason: str) -> HoldfastError:
    return HoldfastError(
        codes.BAD_INSTALLATION,
        f"The library jsonschema-rs, which checks the arguments of calls, cannot be loaded: {reason}.",
    )


def _allows_any_object(schema: JsonObject) -> bool:
    """Whether every object fits the schema, so that the library is not needed."""
    return (
        schema.get("type", "object") == "object"
        and not schema.get("properties")
        and not schema.get("required")
        and schema.get("additionalProperties", True) is True
        and schema.keys() - _DESCRIPTIVE_KEYWORDS
        <= {"type", "properties", "required", "additionalProperties"}
    )


def _make_validator(schema: JsonObject) -> tuple[Any, int, int]:
    """A validator, the compiled size of its largest pattern, and the most nanoseconds that matching a byte takes."""
    draft = _DEFAULT_DRAFT
    if "$schema" in schema:
        address = str(schema["$schema"]).partition("://")[2].rstrip("#")
        if address not in _DRAFTS:
            raise UncheckableSchemaError("it is for an unknown version of JSON Schema")
        draft = _DRAFTS[address]
    import jsonschema_rs

    make: Callable[..., Any] = getattr(jsonschema_rs, draft)
    for size, ns_per_byte in _PATTERN_SIZES:
        options = jsonschema_rs.RegexOptions(size_limit=size, dfa_size_limit=size)
        try:
            validator = _call_library(
                partial(
                    make,
                    schema,
                    validate_formats=False,
                    retriever=_refuse_reference,
                    mask="…",  # keeps the values out of the library's messages
                    pattern_options=options,
                )
            )
        except ValueError:
            continue  # a pattern may be too large, so try the next limit
        return validator, size, ns_per_byte
    raise UncheckableSchemaError("it is not valid, or has a pattern that is too large or not supported")


def _refuse_reference(uri: str) -> Any:
    raise ValueError("Schemas are never fetched.")


def _is_always_cheap(compiled: CompiledSchema) -> bool:
    """Whether every document of `_CHEAP_BYTES` may be checked on the event loop."""
    # Each value but the first takes two bytes or more, and so does each level.
    half = _CHEAP_BYTES // 2
    document = _Document(value=None, size=_CHEAP_BYTES, values=half + 1, depth=half)
    max_ns = _estimate_ns(compiled, document)
    return max_ns <= _MAX_NS_ON_LOOP and not _is_too_costly(compiled, document, max_ns)


async def _run_in_thread(function: Callable[..., T], *args: Any, quota_owner: str) -> T:
    async with asyncio.timeout(_CHECK_SECONDS):
        return await _THREADS.run(function, *args, owner=quota_owner)


def _decode_and_check(compiled: CompiledSchema, arguments: bytes) -> str | None:
    """Like `_find_problem`. Arguments that are not valid JSON count as fitting: the call itself reports them."""
    document = _Document.read(arguments)
    return None if document is None else _find_problem(compiled, document, _estimate_ns(compiled, document))


def _find_problem(compiled: CompiledSchema, document: "_Document", max_ns: int) -> str | None:
    """What is wrong with a document: None if it fits, empty if the errors are not listed.

    `max_ns` is the most nanoseconds that the check takes.
    """
    if _is_too_costly(compiled, document, max_ns):
        raise UncheckableSchemaError("it makes checking these arguments too costly")
    value = document.value
    if _call_library(compiled.validator.is_valid, value):
        return None
    return describe_errors(_call_library(_list_errors, compiled, document), value)


def _is_too_costly(compiled: CompiledSchema, document: "_Document", max_ns: int) -> bool:
    """Whether a document must not be checked: it could take too long, or the library could run out of stack."""
    assert compiled.cost is not None
    return max_ns > _MAX_NS or compiled.cost.chain * (document.depth + 1) > _MAX_RECURSION


def _list_errors(compiled: CompiledSchema, document: "_Document") -> "list[ValidationError]":
    """The first errors. If listing them could take long, only one error, or none."""
    assert compiled.cost is not None
    steps = document.values * compiled.cost.steps_at(document.depth)
    if steps <= _MAX_STEPS_TO_LIST_ERRORS and steps * document.size <= _MAX_BYTES_TO_LIST_ERRORS:
        return [*islice(compiled.validator.iter_errors(document.value), MAX_ERRORS)]
    if compiled.cost.has_alternatives:
        return []
    try:
        compiled.validator.validate(document.value)
    except ValueError as error:
        return [error]  # pyright: ignore[reportReturnType]  # the library is imported by `_make_validator` only
    return []


def _estimate_ns(compiled: CompiledSchema, document: "_Document") -> int:
    """The most nanoseconds that checking a document takes."""
    assert compiled.cost is not None
    steps = document.values * compiled.cost.steps_at(document.depth)
    return (
        steps * _NS_PER_STEP + document.size * compiled.cost.matches_at(document.depth) * compiled.ns_per_byte
    )


def _call_library(function: Callable[..., T], *args: Any) -> T:
    """Call the library. A panic in its Rust code is raised as a `BaseException`, which must not end the host."""
    try:
        return function(*args)
    except Exception:
        raise
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise UncheckableSchemaError("checking it fails") from None


@dataclass(slots=True)
class _Document:
    """The decoded arguments, and what the cost of a check depends on."""

    value: Json
    size: int
    """In bytes, as JSON text."""
    values: int
    """The number of values, including those inside of others."""
    depth: int
    """How deep values are nested; 0 if there is only one value."""

    @classmethod
    def read(cls, raw: bytes, decoded: Json = None) -> "_Document | None":
        """Decode the arguments, unless `decoded` has them, and measure them. None if they are not valid JSON."""
        try:
            value = decode_json(raw) if decoded is None else decoded
        except DECODE_ERRORS:
            return None
        values, depth = 1, 0
        level: list[Any] = [value]
        while True:
            below: list[Any] = []
            for outer in level:
                if isinstance(outer, dict):
                    below += outer.values()
                elif isinstance(outer, list):
                    below += outer
            if not below:
                break
            values += len(below)
            depth += 1
            level = below
        return cls(value, len(raw), values, depth)
