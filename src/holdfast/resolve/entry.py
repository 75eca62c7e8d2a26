"""A server as somebody wrote it down, before anybody believed a word of it."""

import hashlib
import json
from dataclasses import dataclass, field

from holdfast.model.json import Json
from holdfast.model.resolution import Refusal
from holdfast.model.server import Source


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One named entry of one source; `origin` is the file it stands in, or the client."""

    name: str
    source: Source
    origin: str
    value: Json = field(repr=False)

    @property
    def digest(self) -> str:
        """A hash of the entry and its place: a word changed, or the same words elsewhere, is another entry."""
        text = json.dumps([self.origin, self.name, self.value], sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """The entries that could be read, and the refusals of what could not."""

    entries: tuple[Entry, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    secrets: tuple[str, ...] = field(default=(), repr=False)
    """What is not to be written down of any entry, also of those that nobody lets in."""
