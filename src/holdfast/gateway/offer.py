"""What a client session offers: the tools, prompts and resources of its servers, merged in a stable order."""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Generator
from hashlib import blake2b

import msgspec
from msgspec import Raw

from holdfast.connect.catalog import CatalogTool
from holdfast.gateway.kept_lists import KeptLists
from holdfast.gateway.names import NameTable, ServerItem, name_steps
from holdfast.gateway.offered_tools import OfferedTools, offer_steps
from holdfast.gateway.paging import ITEMS_PER_STEP, MergedList, merge_steps
from holdfast.gateway.session_memory import SessionMemory
from holdfast.gateway.status import has_missing, status_definition
from holdfast.model import codes
from holdfast.model.allowlist import ALLOW_ALL, Allowlist
from holdfast.model.errors import HoldfastError
from holdfast.model.visible_text import to_line
from holdfast.session.session import Session
from holdfast.wire.loop_throttle import run_steps, run_steps_in_slices
from holdfast.wire.mcp.client import MAX_LIST_BYTES, MAX_LIST_VALUES, ServerInfo
from holdfast.wire.mcp.eras import Era
from holdfast.wire.mcp.listed_items import clean_items, describe_left_out
from holdfast.wire.parse_threads import PARSE_THREADS
from holdfast.wire.strict_json import DECODE_ERRORS, count_values, has_more_values, make_decoder

log = logging.getLogger(__name__)

_NO_SERVER = "*"  # no server has this name
_MAX_PAGES = 200
_MAX_ROUTES = 1024  # resources whose server is remembered
_MAX_ITEMS_PER_LIST = 10_000
_MAX_COMPARED_TEMPLATES = 1000
_LONG_PAGE_BYTES = 16 * 1024  # a longer page is read in a thread
_DIGEST_BYTES = 16
_decode_members = make_decoder(dict[str, Raw])
_decode_list = make_decoder(list[Raw])


class _Named(msgspec.Struct):
    """The member that identifies an item: the name of a prompt, the URI of a resource, or a URI template."""

    name: str = ""
    uri: str = ""
    uri_template: str = msgspec.field(default="", name="uriTemplate")


class Offer:
    """Finds what the servers of one session offer, and which server a name or a URI belongs to."""

    def __init__(
        self,
        session: Session,
        era: Era,
        *,
        bare_names: bool | None,
        memory: SessionMemory,
        allowed: Allowlist = ALLOW_ALL,
    ) -> None:
        """`allowed` has the servers that the client may use. `memory` counts the bytes of the lists that are kept."""
        self.session = session
        self._era = era
        self._allowed = allowed
        self._left_out: dict[tuple[str, str], str] = {}
        """The names of left-out items that the log has mentioned, by server and list."""
        self._bare_names = bare_names
        self._bare_server = ""
        """The server whose tools and prompts keep their names: the only one that was configured at first."""
        self._tools: OfferedTools | None = None
        self._offered_from: tuple[CatalogTool, ...] = ()
        """The tools that `_tools` was made from."""
        self._naming: asyncio.Lock = asyncio.Lock()
        self._lists = KeptLists(memory)
        self._infos: dict[str, ServerInfo] = {}
        self._prompts = NameTable()
        self._routes: OrderedDict[bytes, str] = OrderedDict()
        """The servers of resources, by a digest of the URI: a URI may be long."""
        self._templates: list[tuple[list[str], str]] = []
        """The literal parts of the URI templates, each with its server."""

    def is_bare(self, server: str) -> bool:
        """Whether the tools and prompts of a server keep the names that it gave them, without a prefix.

        If servers are added later, or all but one are removed, the names stay, because the client may already use them.
        """
        if self._bare_names is not None:
            return self._bare_names
        if not self._bare_server:
            configured = {spec.name for spec in self.session.servers}
            configured |= {refusal.server for refusal in self.session.refusals}
            if configured:
                self._bare_server = configured.pop() if len(configured) == 1 else _NO_SERVER
        return server == self._bare_server

    def forget(self) -> None:
        """Forget which server each prompt and resource belongs to: the session's servers have changed."""
        self._prompts = NameTable()
        self._routes.clear()
        self._templates = []
        self._lists.forget_all()

    def forget_list(self, name: str) -> None:
        """A server says that its `prompts` or `resources` have changed."""
        self._lists.forget(name)
        if name == "resources":
            self._lists.forget("templates")

    async def infos(self) -> dict[str, ServerInfo]:
        """What the available servers report about themselves, in their configured order."""
        names = self.session.available
        infos = await asyncio.gather(
            *(self.session.server_info(name) for name in names), return_exceptions=True
        )
        for name, info in zip(names, infos, strict=True):
            if isinstance(info, ServerInfo):
                self._infos[name] = info
            elif not isinstance(info, HoldfastError):
                raise info
        return {name: self._infos[name] for name in names if name in self._infos}

    def era_of(self, server: str) -> Era:
        """The era of a server; the client's era if the server's is not known yet."""
        info = self._infos.get(server)
        return info.era if info is not None else self._era

    async def servers_with_capability(self, name: str, option: str = "") -> list[str]:
        """The servers that declare a capability (and an option of it), in their configured order."""
        servers: list[str] = []
        for server, info in (await self.infos()).items():
            capability = info.capabilities.get(name)
            if capability is not None and (
                not option or (isinstance(capability, dict) and capability.get(option) is True)
            ):
                servers.append(server)
        return servers

    async def tools(self) -> OfferedTools:
        """The tools that can be called now."""
        tools = self.session.available_tools
        if self._tools is None or self._offered_from is not tools:
            async with self._naming:  # requests at the same time share the work
                tools = self.session.available_tools
                if self._tools is None or self._offered_from is not tools:
                    await self.infos()
                    steps = offer_steps(tools, is_bare=self.is_bare, client_era=self._era)
                    is_short = len(tools) <= ITEMS_PER_STEP
                    offered = run_steps(steps) if is_short else await run_steps_in_slices(steps)
                    self._tools, self._offered_from = offered, tools
        return self._tools

    async def tool_definitions(self) -> MergedList:
        """The definitions of the tools. If a server was refused or a tool awaits approval, `holdfast__status` is one of them."""
        definitions = (await self.tools()).definitions
        return (
            definitions.with_item(status_definition())
            if has_missing(self.session, self._allowed)
            else definitions
        )

    # Prompts

    async def prompts(self, *, is_look_up: bool = False) -> MergedList:
        """All prompts, under the names that the client uses."""
        return await self._lists.get("prompts", self._make_prompts, is_look_up=is_look_up)

    async def _make_prompts(self) -> MergedList:
        listed = await self._list("prompts", "prompts/list", "prompts")
        return await run_steps_in_slices(self._prompt_steps(listed))

    def _prompt_steps(self, listed: list[tuple[str, Raw]]) -> Generator[None, None, MergedList]:
        items: list[ServerItem] = []
        for number, (server, raw) in enumerate(listed):
            items.append(ServerItem(server, _read(raw).name))
            if number % ITEMS_PER_STEP == 0:
                yield
        table = yield from name_steps((item for item in items if item.name), is_bare=self.is_bare)
        self._prompts, prompts = table, list[Raw]()
        for number, (item, (_, raw)) in enumerate(zip(items, listed, strict=True)):
            shown = table.names.get(item)
            if shown is not None:
                prompts.append(raw if shown == item.name else _rename(raw, shown))
            if number % ITEMS_PER_STEP == 0:
                yield
        return (yield from merge_steps(prompts))

    async def find_prompt(self, name: str) -> ServerItem:
        """The server of a prompt, and the prompt's name there."""
        servers = await self.servers_with_capability("prompts")
        if len(servers) == 1 and self.is_bare(servers[0]):
            return ServerItem(servers[0], name)
        if name not in self._prompts.by_name:
            await self.prompts(is_look_up=True)
        item = self._prompts.by_name.get(name)
        if item is None:
            raise HoldfastError(codes.UNKNOWN_PROMPT, f"There is no prompt {name[:120]!r}.")
        return item

    # Resources

    async def resources(self, *, is_look_up: bool = False) -> MergedList:
        """All resources. If several servers have the same URI, the first server's is used."""
        return await self._lists.get("resources", self._make_resources, is_look_up=is_look_up)

    async def _make_resources(self) -> MergedList:
        listed = await self._list("resources", "resources/list", "resources")
        return await run_steps_in_slices(self._resource_steps(listed))

    def _resource_steps(self, listed: list[tuple[str, Raw]]) -> Generator[None, None, MergedList]:
        kept: dict[str, Raw] = {}
        for number, (server, raw) in enumerate(listed):
            uri = _read(raw).uri
            if uri not in kept:
                kept[uri] = raw
                self.remember_resource(uri, server)
            if number % ITEMS_PER_STEP == 0:
                yield
        return (yield from merge_steps([*kept.values()]))

    async def templates(self, *, is_look_up: bool = False) -> MergedList:
        """All resource templates."""
        return await self._lists.get("templates", self._make_templates, is_look_up=is_look_up)

    async def _make_templates(self) -> MergedList:
        listed = await self._list("resources", "resources/templates/list", "resourceTemplates")
        return await run_steps_in_slices(self._template_steps(listed))

    def _template_steps(self, listed: list[tuple[str, Raw]]) -> Generator[None, None, MergedList]:
        kept: dict[str, Raw] = {}
        templates: list[tuple[list[str], str]] = []
        for number, (server, raw) in enumerate(listed):
            template = _read(raw).uri_template
            kept.setdefault(template, raw)
            if number < _MAX_COMPARED_TEMPLATES:
                templates.append((_literal_parts(template), server))
            if number % ITEMS_PER_STEP == 0:
                yield
        self._templates = templates
        return (yield from merge_steps([*kept.values()]))

    async def servers_of_resource(self, uri: str) -> list[str]:
        """The servers to ask for a resource, the most likely one first."""
        servers = await self.servers_with_capability("resources")
        if len(servers) < 2:
            return servers
        key = _digest(uri)
        known = self._routes.get(key)
        if known is None:
            await self.resources(is_look_up=True)
            known = self._routes.get(key)
        if known is None:
            if not self._templates:
                await self.templates(is_look_up=True)
            known = next((server for literals, server in self._templates if _matches(literals, uri)), None)
        if known is None or known not in servers:
            return servers
        return [known, *(server for server in servers if server != known)]

    def remember_resource(self, uri: str, server: str) -> None:
        """Remember that this server has the resource."""
        key = _digest(uri)
        self._routes[key] = server
        self._routes.move_to_end(key)
        while len(self._routes) > _MAX_ROUTES:
            self._routes.popitem(last=False)

    async def _list(self, capability: str, method: str, key: str) -> list[tuple[str, Raw]]:
        """The items of all servers, each with its server. A server that fails is left out; if it is the only server, its error is raised."""
        servers = await self.servers_with_capability(capability)
        lists = await asyncio.gather(
            *(self._list_all_pages(server, method, key) for server in servers), return_exceptions=True
        )
        items: list[tuple[str, Raw]] = []
        for server, listed in zip(servers, lists, strict=True):
            if isinstance(listed, BaseException):
                if len(servers) == 1 or not isinstance(listed, HoldfastError):
                    raise listed
                log.warning(
                    "%s was left out of a list",
                    to_line(server),
                    extra={"server": server, "method": method, "reason": listed.message},
                )
            else:
                items += [(server, item) for item in listed]
        return items

    async def _list_all_pages(self, server: str, method: str, key: str) -> list[Raw]:
        """The items of all pages of one server."""
        items: list[Raw] = []
        cursor: Raw | None = None
        size = values = listed = 0
        for _ in range(_MAX_PAGES):
            params = {} if cursor is None else {"cursor": cursor}
            raw = await self.session.forward(server, method, params, timeout=60.0)
            size += len(raw)
            if size > MAX_LIST_BYTES:
                break
            args = (raw, key, MAX_LIST_VALUES - values, _MAX_ITEMS_PER_LIST - listed)
            try:
                if len(raw) <= _LONG_PAGE_BYTES:
                    page = _read_page(*args)
                else:
                    page = await PARSE_THREADS.run(_read_page, *args, owner=self.session.context.payer)
            except DECODE_ERRORS:
                raise HoldfastError(codes.BAD_ANSWER, f"{server!r} sent an invalid list of {key}.") from None
            if page is None:
                break
            items += page.items
            listed += page.listed
            self._report_left_out(server, key, page)
            values += page.values
            cursor = page.cursor
            if cursor is None or cursor == Raw(b"null"):
                return items
        raise HoldfastError(codes.BAD_ANSWER, f"{server!r} sent a list of {key} that is too long.")

    def _report_left_out(self, server: str, key: str, page: "_Page") -> None:
        """Log which items of a page are left out, but not again while they stay the same: clients list often."""
        if page.left_out and self._left_out.get((server, key)) != page.left_out:
            self._left_out[server, key] = page.left_out
            log.warning(
                "%s: %s of its %s are not offered, because they are malformed, or a name or a URI is missing, too long or has invisible characters: %s",
                to_line(server),
                page.listed - len(page.items),
                key,
                page.left_out,
                extra={"server": server},
            )


class _Page(msgspec.Struct):
    items: list[Raw]
    left_out: str
    """The names of the first items that are left out."""
    listed: int
    """How many items the server listed, including those that are left out of `items`."""
    cursor: Raw | None
    values: int


def _read_page(raw: Raw, key: str, max_values: int, max_items: int) -> _Page | None:
    """Read one page of a list, and clean its items. None if it has too many values or items."""
    if has_more_values(raw, max_values):
        return None
    members = _decode_members(raw)
    items = members.get(key, Raw(b"[]"))
    listed = len(_decode_list(items))
    if listed > max_items:
        return None
    clean = clean_items(items, key)
    left_out = describe_left_out(items, key) if len(clean) < listed else ""
    return _Page(clean, left_out, listed, members.get("nextCursor"), values=count_values(raw))


def _digest(uri: str) -> bytes:
    return blake2b(uri.encode(errors="surrogatepass"), digest_size=_DIGEST_BYTES).digest()


def _read(raw: Raw) -> _Named:
    try:
        return msgspec.json.decode(raw, type=_Named)
    except DECODE_ERRORS:
        return _Named()


def _rename(raw: Raw, name: str) -> Raw:
    return Raw(msgspec.json.encode({**_decode_members(raw), "name": name}))


def _matches(literals: list[str], uri: str) -> bool:
    """Whether a URI may match a template with these literal parts: they occur in the URI, in order."""
    if not uri.startswith(literals[0]) or not uri.endswith(literals[-1]):
        return False
    position = 0
    for literal in literals:
        position = uri.find(literal, position)
        if position < 0:
            return False
        position += len(literal)
    return True


def _literal_parts(template: str) -> list[str]:
    """The texts around the variables of a template. Takes linear time."""
    parts: list[str] = []
    start = 0
    while (opening := template.find("{", start)) >= 0 and (closing := template.find("}", opening)) >= 0:
        parts.append(template[start:opening])
        start = closing + 1
    return [*parts, template[start:]]
