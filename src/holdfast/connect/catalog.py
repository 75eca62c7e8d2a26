"""Which tools a session has, under names for people and names for models."""

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.server import ServerSpec
from holdfast.wire.mcp.tools import Tool

MODEL_NAME_LENGTH = 64
_COMPARED = 300  # with more names than these, looking for the nearest takes long
_NOT_FOR_MODELS = re.compile(r"[^A-Za-z0-9_-]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """One tool of one server: `server.tool` for people, `server__tool` for models."""

    server: ServerSpec
    tool: Tool
    name: str
    model_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalog:
    """The tools on offer, by each of their names. Built anew when a server's tools change."""

    offers: tuple[Offer, ...] = ()
    _by_name: Mapping[str, Offer] = field(default_factory=dict[str, Offer], repr=False)

    def find(self, name: str) -> Offer:
        """The tool of this name, for people or for models; what is not on offer cannot be called."""
        offer = self._by_name.get(name)
        if offer is None:
            raise HoldfastError(codes.UNKNOWN_TOOL, f"There is no tool {name[:120]!r}.{self._nearest(name)}")
        return offer

    def _nearest(self, name: str) -> str:
        from difflib import get_close_matches

        near = get_close_matches(name[:120], [offer.name for offer in self.offers[:_COMPARED]], n=1)
        return f" Did you mean {near[0]!r}?" if near else ""


def catalog(tools: Iterable[tuple[ServerSpec, Iterable[Tool]]]) -> Catalog:
    """All tools that the servers offer and their specs allow; the same tools get the same names, in any order."""
    named = [
        (server, tool, _plain_name(server.name, tool.name), _plain_model_name(server.name, tool.name))
        for server, offered in tools
        for tool in offered
        if server.tools.allows(tool.name)
    ]
    names = Counter(name for _, _, name, _ in named)
    model_names = Counter(model_name for _, _, _, model_name in named)
    offers: list[Offer] = []
    for server, tool, name, model_name in named:
        if names[name] > 1:
            name = f"{name}#{_mark(server, tool)}"  # noqa: PLW2901 - the same name, made unique
        if model_names[model_name] > 1 or len(model_name) > MODEL_NAME_LENGTH:
            model_name = f"{model_name[: MODEL_NAME_LENGTH - 9]}_{_mark(server, tool)}"  # noqa: PLW2901
        offers.append(Offer(server=server, tool=tool, name=name, model_name=model_name))
    by_name = {offer.model_name: offer for offer in offers} | {offer.name: offer for offer in offers}
    return Catalog(offers=tuple(offers), _by_name=by_name)


def may_be_of(server: str, name: str) -> bool:
    """Whether a tool of this name, for people or for models, may be one of this server's."""
    as_for_models = _plain_model_name(server, "")[: MODEL_NAME_LENGTH - 9]
    return name.startswith((_plain_name(server, ""), as_for_models))


def _mark(server: ServerSpec, tool: Tool) -> str:
    return hashlib.sha256(f"{server.name}\0{tool.name}".encode()).hexdigest()[:8]


def _plain_name(server: str, tool: str) -> str:
    return f"{server}.{tool}"


def _plain_model_name(server: str, tool: str) -> str:
    return _NOT_FOR_MODELS.sub("_", f"{server}__{tool}")
