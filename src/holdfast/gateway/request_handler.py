"""Answer the requests of one client: find the server that a request is for, send it on, and return what the server answers."""

import asyncio
from functools import partial
from typing import Any

import msgspec

from holdfast.connect.call import failed_result
from holdfast.gateway.capabilities import INFO_BEFORE_START, announced_lists, merge_infos
from holdfast.gateway.client_call import ClientCall, current_call
from holdfast.gateway.client_session import ClientSession
from holdfast.gateway.convert_eras import convert_error, modern_result
from holdfast.gateway.listen import listen, server_to_watch
from holdfast.gateway.offer import Offer
from holdfast.gateway.paging import page_of
from holdfast.gateway.params import decode_text, read_members, read_text, read_uri
from holdfast.gateway.parked_calls import ModernCall, Parked
from holdfast.gateway.requests_to_servers import InputRequired, RequestsToServers
from holdfast.gateway.signed_state import BadStateError, State, StateSigner, digest
from holdfast.gateway.status import STATUS_TOOL, status_result
from holdfast.model import codes
from holdfast.model.allowlist import Allowlist
from holdfast.model.call import Grant, ToolCall
from holdfast.model.errors import HoldfastError
from holdfast.model.ids import new_call_id
from holdfast.model.similar_names import suggest_tool
from holdfast.session.session import Session
from holdfast.wire.mcp.eras import MODERN_VERSIONS, Era, OwnInfo
from holdfast.wire.messages import EMPTY_OBJECT, Id, Notification, PeerError, Raw, encode

_INITIALIZE_SECONDS, _DISCOVER_SECONDS = 4.0, 4.0
_MAX_COMPARED = 300  # how many names an unknown one is compared with
_NOT_FOUND_CODES = (-32002, -32602)  # for an unknown resource, in the handshake and the modern era
_PASSED_NOTIFICATIONS = frozenset({"notifications/roots/list_changed"})
# The params with which a modern client continues a request.
_CONTINUATION = ("requestState", "inputResponses")
_INTERRUPTIBLE = {
    "tools/call": frozenset({"name", "arguments"}),
    "prompts/get": frozenset({"name", "arguments"}),
    "resources/read": frozenset({"uri"}),
}
"""Requests that a server may interrupt to ask the client, each with the params that are passed on.

Other params are left out: no question shows them and no record contains them, but a server may read `Arguments` as `arguments`.
"""
_COMPLETION = {"argument": ("name", "value"), "context": ("arguments",)}
"""The params of a completion that are passed on besides its `ref`, each with its members."""


_NEW_REQUEST = State()


class RequestHandler:
    """Answers the requests of one client session."""

    def __init__(self, client_session: ClientSession, signer: StateSigner) -> None:
        self.client_session = client_session
        self._signer = signer
        self._allowed = Allowlist(client_session.credential.servers)
        self._offer: Offer | None = None
        self._requests: RequestsToServers
        """Made together with the offer."""

    async def offer(self) -> Offer:
        """What the session offers. The first request opens the session."""
        if self._offer is None:
            session = await self.client_session.session()
            if self._offer is None:
                self._offer = Offer(
                    session,
                    self.client_session.era,
                    bare_names=self.client_session.options.bare_names,
                    memory=self.client_session.memory,
                    allowed=self._allowed,
                )
                self.client_session.on_list_changed = self._offer.forget_list
                self._requests = RequestsToServers(self.client_session, self._offer)
                session.on_servers_changed(self._servers_changed)
        return self._offer

    def _servers_changed(self) -> None:
        if self._offer is not None:
            self._offer.forget()
        self.client_session.servers_changed()

    async def info(self, seconds: float = _INITIALIZE_SECONDS) -> OwnInfo:
        """What the gateway tells this client about itself.

        Clients wait only a few seconds for it. If servers are still starting then, the gateway declares the capabilities in
        `INFO_BEFORE_START`. A list that no server turns out to have is then empty.
        """
        try:
            async with asyncio.timeout(seconds):
                info = merge_infos(await (await self.offer()).infos(), self.client_session.era)
        except TimeoutError:
            info = INFO_BEFORE_START
        self.client_session.announced_lists = announced_lists(info.capabilities)
        return info

    async def notify(self, notification: Notification) -> None:
        """Pass a notification of a handshake-era client on to the servers of that era, if they need it.

        Every other message without an id is dropped, even `tools/call`: it would reach a server without a permission check.
        """
        if notification.method not in _PASSED_NOTIFICATIONS:
            return
        params = Raw(msgspec.json.encode(_only(read_members(notification.params), "_meta")))
        offer = await self.offer()
        for server in offer.session.available:
            if offer.era_of(server) is Era.HANDSHAKE:
                await offer.session.notify_server(server, notification.method, params)

    async def answer(self, request_id: Id, method: str, params: Raw, call: ClientCall) -> Any:
        """Answer one request, in the form that the client's era requires."""
        client_session = self.client_session
        call.size = len(params)
        client_session.begin_call(call)
        token = current_call.set(call)
        try:
            members = read_members(params)
            members.pop("_meta", None)
            if passed_on := _INTERRUPTIBLE.get(method):
                if isinstance(call, ModernCall):
                    # A modern client can continue a request, but only with a state that the gateway has signed.
                    passed_on = passed_on.union(_CONTINUATION)
                members = {key: value for key, value in members.items() if key in passed_on}
                if isinstance(call, ModernCall):
                    return await self._answer_interruptible(method, members, call)
                return await self._dispatch_interruptible(method, members, call)
            result = await self._dispatch(request_id, method, members, call)
            if client_session.era is Era.MODERN and not isinstance(result, Raw):
                result = modern_result(result, method)
            return result
        finally:
            current_call.reset(token)
            call.is_done = True  # later notifications are dropped: nothing may follow a result
            if call.has_notifications:
                await call.wait_until_sent()
            client_session.end_call(call)

    async def _dispatch(self, request_id: Id, method: str, members: dict[str, Raw], call: ClientCall) -> Any:
        """Answer a request that no server interrupts with a question."""
        offer = await self.offer()
        match method:
            case "completion/complete":
                return await self._complete(offer, members, call)
            case _ if method.endswith("/list") and not method.startswith("tasks/"):
                return await _list(offer, method, members)
            case "server/discover" if self.client_session.era is Era.MODERN:
                return await self._discover()
            case "subscriptions/listen" if self.client_session.era is Era.MODERN:
                return await listen(self.client_session, offer, request_id, members, call)
            case "resources/subscribe" | "resources/unsubscribe" if self.client_session.era is Era.HANDSHAKE:
                return await self._subscribe(offer, method, members, call)
            case "logging/setLevel" if self.client_session.era is Era.HANDSHAKE:
                await self.client_session.log_levels.set(offer, read_text(members, "level"))
                return EMPTY_OBJECT
            case _:
                raise _no_method(method)

    async def _discover(self) -> dict[str, Any]:
        """Answer `server/discover`, with which a modern client begins."""
        info = await self.info(_DISCOVER_SECONDS)
        answer: dict[str, Any] = {"supportedVersions": MODERN_VERSIONS, "capabilities": info.capabilities}
        if info.instructions:
            answer["instructions"] = info.instructions
        return answer

    # Requests that a server may interrupt to ask the client

    async def _answer_interruptible(self, method: str, members: dict[str, Raw], call: ModernCall) -> Any:
        """Answer a request of a modern client: with a result, or with the questions that the client must answer first and a signed state."""
        given_state = members.pop("requestState", None)
        responses = members.pop("inputResponses", None)
        # What is left is the request itself. A state is valid for exactly this request.
        request = dict(members)
        state = State()
        if given_state is not None:
            text = decode_text(given_state, "requestState")
            try:
                state = self._signer.verify(
                    text, session=self.client_session.key, method=method, request=digest(request)
                )
            except BadStateError as error:
                raise self.client_session.refuse(error) from None
            if state.server_state is not None:
                members["requestState"] = Raw(encode(state.server_state))
            if responses is not None:
                members["inputResponses"] = responses
        if state.parked:
            answers = read_members(responses or EMPTY_OBJECT)
            outcome = await self.client_session.parked.resume(state.parked, call, answers)
        elif not call.can_be_asked:
            outcome = await self._dispatch_interruptible(method, members, call, state)
        else:
            outcome = await self.client_session.parked.run(
                call, self._dispatch_in_own_task(method, members, state, call)
            )
        if not isinstance(outcome, Parked | InputRequired):
            return outcome if isinstance(outcome, Raw) else modern_result(outcome, method)
        sign = partial(
            self._signer.sign, session=self.client_session.key, method=method, request=digest(request)
        )
        if isinstance(outcome, Parked):
            result = {
                "resultType": "input_required",
                "inputRequests": self.client_session.parked.questions_of(outcome.id),
                "requestState": sign(State(parked=outcome.id)),
            }
            return modern_result(result, method)
        members = dict(outcome.members)
        state = State(server=outcome.server, server_state=outcome.state, grant=outcome.grant)
        members["requestState"] = Raw(encode(sign(state)))
        return Raw(msgspec.json.encode(members))

    async def _dispatch_in_own_task(
        self, method: str, members: dict[str, Raw], state: State, call: ModernCall
    ) -> Any:
        """Dispatch a request. Runs in a task of its own, because the work may continue after the request is answered."""
        current_call.set(call)
        return await self._dispatch_interruptible(method, members, call, state)

    async def _dispatch_interruptible(
        self, method: str, members: dict[str, Raw], call: ClientCall, state: State = _NEW_REQUEST
    ) -> Any:
        """Pass on a request that a server may interrupt.

        If the client continues a request by answering a server's question, `state` names that server.
        """
        offer = self._offer or await self.offer()
        match method:
            case "tools/call":
                return await self._call_tool(offer, members, call, state)
            case "prompts/get":
                return await self._get_prompt(offer, members, call, state.server)
            case _:
                return await self._read_resource(offer, members, call, state.server)

    async def _call_tool(self, offer: Offer, members: dict[str, Raw], call: ClientCall, state: State) -> Any:
        """Call a tool by the name that the client uses for it. A call that continues needs permission again if anything has changed."""
        name = read_text(members, "name")
        offered = await offer.tools()
        tool = offered.find(name)
        arguments = bytes(members.pop("arguments", EMPTY_OBJECT))
        if tool is None:
            if name == STATUS_TOOL:  # it can be called even if it is not listed
                return await self._status(offer.session, call)
            suggestion = suggest_tool(name, offered.first_names(_MAX_COMPARED))
            return await _refuse_unknown(offer.session, name, arguments, suggestion)
        _check_asker(state.server, tool.server.name)
        del members["name"]
        grant = state.grant or Grant()
        return await self._requests.call_tool(tool, arguments, members, call, grant=grant)

    async def _status(self, session: Session, call: ClientCall) -> dict[str, object]:
        """What is missing. If a server needs a login, the client's user can log in first."""
        logged_in = [
            name
            for name in session.needing_login
            if await self.client_session.logins.ask(session, name, call)
        ]
        if logged_in:
            await session.update_servers(screen_again=False)
            await session.wait_ready()
        return status_result(session, self._allowed)

    async def _get_prompt(
        self, offer: Offer, members: dict[str, Raw], call: ClientCall, asked_by: str
    ) -> Any:
        item = await offer.find_prompt(read_text(members, "name"))
        _check_asker(asked_by, item.server)
        params = {**members, "name": Raw(encode(item.name))}
        return await self._requests.perform(item.server, "prompts/get", params, call)

    async def _read_resource(
        self, offer: Offer, members: dict[str, Raw], call: ClientCall, asked_by: str
    ) -> Any:
        """Read a resource. If it is not known which server has it, ask one after another."""
        uri = read_uri(members)
        servers = [asked_by] if asked_by else await offer.servers_of_resource(uri)
        if not servers:
            raise HoldfastError(codes.METHOD_NOT_FOUND, "No server of this session has resources.")
        for server in servers:
            try:
                result = await self._requests.perform(server, "resources/read", members, call)
            except PeerError as error:
                if server == servers[-1] or error.rpc_code not in _NOT_FOUND_CODES:
                    raise convert_error(
                        error, server=offer.era_of(server), client=self.client_session.era, uri=uri
                    ) from None
            else:
                if len(servers) > 1:
                    offer.remember_resource(uri, server)
                return result
        raise AssertionError("The last server's error is raised.")

    # Completion and subscriptions

    async def _complete(self, offer: Offer, members: dict[str, Raw], call: ClientCall) -> Any:
        """Complete an argument of a prompt or of a resource template."""
        reference = read_members(members.get("ref", EMPTY_OBJECT))
        if "uri" in reference:
            servers = await offer.servers_of_resource(read_uri(reference))
            supporting = await offer.servers_with_capability("completions")
            servers = [server for server in servers if server in supporting]
            if not servers:
                raise HoldfastError(
                    codes.METHOD_NOT_FOUND, "No server of this session offers completions for this resource."
                )
            server, reference = servers[0], _only(reference, "type", "uri")
        else:
            item = await offer.find_prompt(read_text(reference, "name"))
            server = item.server
            reference = {**_only(reference, "type"), "name": Raw(encode(item.name))}
        given = {
            key: _only(read_members(members[key]), *known)
            for key, known in _COMPLETION.items()
            if key in members
        }
        params = {**given, "ref": reference}
        return await self._requests.forward(server, "completion/complete", params, call)

    async def _subscribe(self, offer: Offer, method: str, members: dict[str, Raw], call: ClientCall) -> Any:
        """Subscribe a handshake-era client to a resource, or unsubscribe it."""
        uri = read_uri(members)
        server = await server_to_watch(offer, uri)
        if server is None:
            raise HoldfastError(
                codes.METHOD_NOT_FOUND, "No server of this session supports subscriptions to this resource."
            )
        era = offer.era_of(server)
        if era is Era.HANDSHAKE:
            return await self._requests.forward(server, method, _only(members, "uri"), call)
        watches = self.client_session.watches
        if method == "resources/unsubscribe":
            watches.remove(offer.session, server, era, uri)
        elif not watches.is_watched(server, uri):  # subscribing twice is the same as once
            await watches.add(offer.session, server, era, uri)
        return EMPTY_OBJECT


def _only(members: dict[str, Raw], *names: str) -> dict[str, Raw]:
    """Keep only the members with these names. A member that MCP does not define is not passed on: a server may read `Uri` as `uri`."""
    return {name: members[name] for name in names if name in members}


async def _list(offer: Offer, method: str, members: dict[str, Raw]) -> dict[str, Any]:
    """One page of a list, for all servers together."""
    cursor = read_text(members, "cursor") if "cursor" in members else None
    match method:
        case "tools/list":
            return page_of("tools", await offer.tool_definitions(), cursor)
        case "prompts/list":
            return page_of("prompts", await offer.prompts(), cursor)
        case "resources/list":
            return page_of("resources", await offer.resources(), cursor)
        case "resources/templates/list":
            return page_of("resourceTemplates", await offer.templates(), cursor)
        case _:
            raise _no_method(method)


async def _refuse_unknown(session: Session, name: str, arguments: bytes, suggestion: str) -> Any:
    """Record a call of a tool that is not offered, and refuse it."""
    error = HoldfastError(
        codes.UNKNOWN_TOOL,
        f"There is no tool {name[:120]!r} here.{suggestion} Call {STATUS_TOOL}: it lists the servers, and the tools that await approval.",
    )
    tool_call = ToolCall(call_id=new_call_id(), server="", tool=name[:120], arguments=arguments)
    await session.record.calls.audit_call_without_events(tool_call, failed_result(error))
    raise error


def _check_asker(asked_by: str, server: str) -> None:
    """Raise if the client answers a question of another server than `server`, which must get neither the answer nor the state."""
    if asked_by and asked_by != server:
        raise HoldfastError(
            codes.BAD_ARGUMENT,
            "The server that asked no longer answers this request. Send the request again without requestState.",
        )


def _no_method(method: str) -> HoldfastError:
    if method.startswith("tasks/"):
        return HoldfastError(
            codes.METHOD_NOT_FOUND,
            f"There is no method {method[:80]!r} here: the gateway does not pass on tasks.",
        )
    return HoldfastError(codes.METHOD_NOT_FOUND, f"There is no method {method[:80]!r} here.")
