"""Stage one: the entries that files and the client's request hold, each with its provenance."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from holdfast.model.json import Json, JsonObject
from holdfast.model.limits import DEFAULT
from holdfast.model.resolution import Refusal, Stage
from holdfast.model.server import Source
from holdfast.resolve.entry import Entry, Loaded
from holdfast.wire.strict import Unreadable, check

CLIENT = "the client's request"


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A file of servers as it was read, or why it was not (`problem`)."""

    source: Source
    path: str
    text: bytes = field(default=b"", repr=False)
    problem: str = ""


def load(documents: Iterable[Document], brought: Iterable[Json] = ()) -> Loaded:
    """Every entry, in the order of who is trusted most: the host's, the user's, the project's, the client's."""
    parts = [_from_document(document) for document in documents]
    parts.append(_from_client(tuple(brought)))
    order = list(Source)
    entries = sorted(
        (entry for part in parts for entry in part.entries), key=lambda entry: order.index(entry.source)
    )
    return Loaded(
        entries=tuple(entries), refusals=tuple(refusal for part in parts for refusal in part.refusals)
    )


def _from_document(document: Document) -> Loaded:
    def refused(reason: str) -> Loaded:
        return Loaded(refusals=(Refusal(server=document.path, stage=Stage.LOAD, reason=reason),))

    if document.problem:
        return refused(document.problem)
    try:
        content = read_json(document.text)
    except Unreadable as error:
        return refused(
            f"It cannot be read as JSON: {error}. Correct the file; its servers are left out until then."
        )
    servers = content.get("mcpServers", content.get("servers", {})) if isinstance(content, dict) else None
    if not isinstance(servers, dict):
        return refused('It has no object "mcpServers". Write {"mcpServers": {"name": {"command": "…"}}}.')
    return Loaded(
        entries=tuple(
            Entry(name=name, source=document.source, origin=document.path, value=value)
            for name, value in servers.items()
        )
    )


def _from_client(brought: tuple[Json, ...]) -> Loaded:
    entries: list[Entry] = []
    refusals: list[Refusal] = []
    for place, value in enumerate(brought):
        name = value.get("name") if isinstance(value, dict) else None
        if not isinstance(value, dict) or not isinstance(name, str) or not name:
            reason = 'A server is an object with a "name".'
            refusals.append(Refusal(server=f"mcpServers[{place}]", stage=Stage.LOAD, reason=reason))
        else:
            entries.append(Entry(name=name, source=Source.CLIENT, origin=CLIENT, value=_as_in_files(value)))
    return Loaded(entries=tuple(entries), refusals=tuple(refusals))


def _as_in_files(brought: JsonObject) -> JsonObject:
    """A client lists variables and headers as `{name, value}` pairs, a file as an object; a broken list stays as it is."""
    value = {key: inner for key, inner in brought.items() if key not in ("name", "_meta")}
    for key in ("env", "headers"):
        pairs = value.get(key)
        if isinstance(pairs, list):
            try:
                named = msgspec.convert(pairs, list[_Pair])
            except msgspec.ValidationError:
                continue
            if len({pair.name for pair in named}) == len(named):
                value[key] = {pair.name: pair.value for pair in named}
    return value


class _Pair(msgspec.Struct):
    name: str
    value: str


_COMMENT = re.compile(rb'("(?:[^"\\]|\\.)*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
_TRAILING_COMMA = re.compile(rb'("(?:[^"\\]|\\.)*")|,(?=\s*[}\]])', re.DOTALL)


def read_json(text: bytes) -> Json:
    """A file's content: strict JSON, or JSON with the comments and trailing commas that editors allow."""
    text = text.removeprefix(b"\xef\xbb\xbf")
    try:
        return _strict(text)
    except Unreadable as error:
        if b"//" not in text and b"/*" not in text and not _TRAILING_COMMA.search(text):
            raise
        bare = _COMMENT.sub(lambda found: found[1] or b" ", text)
        bare = _TRAILING_COMMA.sub(lambda found: found[1] or b"", bare)
        try:
            return _strict(bare)
        except Unreadable:
            raise error from None


def _strict(text: bytes) -> Json:
    check(text, DEFAULT)
    return msgspec.json.decode(text)
