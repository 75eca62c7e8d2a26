"""One editor on one connection: every method of the protocol, and the sessions it has open."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from holdfast import __version__
from holdfast.acp import shapes
from holdfast.acp.door import EditorDoor
from holdfast.acp.translate import Update, available_commands, updates
from holdfast.agent.agent import Agent
from holdfast.host import Host, Opening
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.event import Event, ModeChanged, Replied
from holdfast.model.ids import new_message_id, parse_session_id
from holdfast.model.json import JsonObject
from holdfast.model.trust import Trust
from holdfast.session.permission import Mode
from holdfast.session.turn import Conversation
from holdfast.store.query import OPERATOR, SessionQuery
from holdfast.wire.frame import Notification, Request
from holdfast.wire.peer import Peer

T = TypeVar("T")

VERSION = 1
PATIENCE = 10.0
"""How long the first prompt, or a resumed session, waits for servers that are still starting."""
_MODES = (
    (Mode.ASK, "Ask", "Ask before a tool changes something"),
    (Mode.AUTO, "Auto", "Run every tool without asking"),
    (Mode.READ_ONLY, "Read only", "Run only tools that change nothing"),
)
_ABILITIES: dict[str, dict[str, Any]] = {
    name: {} for name in ("resume", "close", "list", "delete", "additionalDirectories")
}
_PROMPT_BLOCKS = {"text", "resource_link", "resource", "image"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What every session of this editor starts with."""

    trust: Trust | None = None
    workspace: str = ""


class _Open:
    """A session this editor has open."""

    def __init__(self, conversation: Conversation) -> None:
        self.conversation = conversation
        self.news = ""  # what there is to tell about servers, where the editor takes no notices
        self.watch: asyncio.Task[None] | None = None


class Editor:
    """Answers an editor. Nothing it sends ends the process; what it cannot have is said with a number and a reason."""

    def __init__(self, host: Callable[[], Awaitable[Host]], agent: Agent, terms: Terms) -> None:
        self._host = host
        self._agent = agent
        self._terms = terms
        self._client: shapes.Initialize | None = None
        self._open: dict[str, _Open] = {}
        self.peer: Peer
        self._methods: dict[str, Callable[[Request], Awaitable[Any]]] = {
            "authenticate": self._authenticate,
            "session/new": self._new,
            "session/load": self._load,
            "session/resume": self._resume,
            "session/prompt": self._prompt,
            "session/list": self._list,
            "session/close": self._close,
            "session/delete": self._delete,
            "session/set_mode": self._set_mode,
            "session/set_config_option": self._set_config_option,
        }

    async def handle(self, request: Request) -> Any:
        """Answer one request."""
        if request.method == "initialize":
            return self._initialize(request)
        method = self._methods.get(request.method)
        if method is None:
            raise HoldfastError(codes.METHOD_NOT_FOUND, f"There is no method {request.method[:80]!r} here.")
        if self._client is None:
            raise HoldfastError(codes.INVALID_REQUEST, "Send initialize first.")
        return await method(request)

    def notice(self, notification: Notification) -> None:
        """Hear a notification; an unknown one, or one about nothing we have, is passed over."""
        if notification.method == "session/cancel":
            named = _read(notification, shapes.Named)
            found = self._open.get(named.session_id)
            if found is not None:
                found.conversation.cancel()

    # The connection

    def _initialize(self, request: Request) -> Any:
        self._client = _read(request, shapes.Initialize)
        return {
            "protocolVersion": VERSION,
            "agentInfo": {"name": "holdfast", "title": "Holdfast", "version": __version__},
            "authMethods": [],
            "agentCapabilities": {
                "loadSession": True,
                "promptCapabilities": {"image": True, "audio": False, "embeddedContext": True},
                "mcpCapabilities": {"http": True, "sse": True},
                "sessionCapabilities": _ABILITIES,
            },
        }

    async def _authenticate(self, request: Request) -> Any:
        raise HoldfastError(codes.BAD_ARGUMENT, "No authentication is needed, and there is no method for it.")

    # Opening

    async def _new(self, request: Request) -> Any:
        asked = _read(request, shapes.NewSession)
        host = await self._host()
        door = self._door()
        opening = self._opening(asked.cwd, asked.additional_directories, asked.mcp_servers, door)
        session = await host.open(opening)
        session_id = str(session.context.session_id)
        self._begin(session_id, Conversation(session, self._agent, door), door)
        return {"sessionId": session_id, **self._state(session_id)}

    async def _load(self, request: Request) -> Any:
        session_id, host = await self._reopen(request)
        async for stored in host.store.events(parse_session_id(session_id)):
            for update in updates(stored.event):
                await self._tell(session_id, update)
        return self._state(session_id)

    async def _resume(self, request: Request) -> Any:
        session_id, _ = await self._reopen(request)
        await self._wait_for_servers(self._open[session_id])
        return self._state(session_id)

    async def _reopen(self, request: Request) -> tuple[str, Host]:
        asked = _read(request, shapes.OldSession)
        host = await self._host()
        door = self._door()
        opening = self._opening(asked.cwd, asked.additional_directories, asked.mcp_servers, door)
        if asked.session_id in self._open:
            raise HoldfastError(codes.SESSION_HELD, "This very connection has the session open already.")
        session = await host.reopen(asked.session_id, opening)
        stored = await host.store.session(session.context.session_id)
        titled = stored is not None and bool(stored.title)
        self._begin(asked.session_id, Conversation(session, self._agent, door, titled=titled), door)
        return asked.session_id, host

    def _opening(self, cwd: Any, directories: list[Any], servers: list[Any], door: EditorDoor) -> Opening:
        folders = [_folder("cwd", cwd)]
        folders += [
            _folder(f"additionalDirectories[{place}]", found) for place, found in enumerate(directories)
        ]
        return Opening(
            cwd=folders[0],
            roots=tuple(folders[1:]),
            workspace=self._terms.workspace,
            trust=self._terms.trust,
            servers=tuple(servers),
            source="acp",
            door=door,
        )

    def _door(self) -> EditorDoor:
        assert self._client is not None
        return EditorDoor(self.peer, self._client.client_capabilities)

    def _begin(self, session_id: str, conversation: Conversation, door: EditorDoor) -> None:
        door.session_id = session_id

        async def tell(event: Event) -> None:
            for update in _live(event):
                await self._tell(session_id, update)

        conversation.session.record.listen(tell)
        found = _Open(conversation)
        self._open[session_id] = found
        found.watch = asyncio.create_task(self._watch(session_id, found))

    async def _watch(self, session_id: str, found: _Open) -> None:
        """Tell what can be typed and, once all servers stand or have fallen, who fell."""
        await self._tell(session_id, available_commands(self._agent.commands))
        session = found.conversation.session
        await session.settle()
        lines = [f"{refusal.server}: {refusal.reason}" for refusal in session.refusals]
        lines += [f"{caution.server}: {caution.text}" for caution in session.cautions]
        if not lines:
            return
        if self._takes_notices():
            for line in lines:
                await self._tell(
                    session_id, {"sessionUpdate": "notice", "severity": "warning", "title": line}
                )
        else:
            found.news = "Not every server is up:\n" + "".join(f"- {line}\n" for line in lines) + "\n"

    def _takes_notices(self) -> bool:
        session = self._client.client_capabilities.session if self._client is not None else None
        return session is not None and session.get("notices") is not None

    # Working

    async def _prompt(self, request: Request) -> Any:
        asked = _read(request, shapes.Prompt)
        found = self._find(asked.session_id)
        for block in asked.prompt:
            if block.get("type") not in _PROMPT_BLOCKS:
                raise HoldfastError(
                    codes.BAD_ARGUMENT,
                    f"A prompt takes {', '.join(sorted(_PROMPT_BLOCKS))}, not {str(block.get('type'))[:40]!r}.",
                )
        await self._wait_for_servers(found)
        if found.news:
            news, found.news = found.news, ""
            record = found.conversation.session.record
            await record.stream(Replied(message_id=new_message_id(), text=news))
        return {"stopReason": await found.conversation.prompt(asked.prompt)}

    async def _wait_for_servers(self, found: _Open) -> None:
        session = found.conversation.session
        if not session.starting:
            if found.watch is not None:
                await asyncio.shield(found.watch)
            return
        await asyncio.wait([asyncio.ensure_future(session.ready())], timeout=PATIENCE)
        if session.starting:
            found.news = f"Still starting: {', '.join(session.starting)}.\n\n"
        elif found.watch is not None:
            await asyncio.shield(found.watch)

    async def _list(self, request: Request) -> Any:
        asked = _read(request, shapes.ListSessions)
        host = await self._host()
        page = await host.store.sessions(SessionQuery(reach=OPERATOR, cwd=asked.cwd, cursor=asked.cursor))
        answer: JsonObject = {
            "sessions": [
                {
                    "sessionId": str(stored.context.session_id),
                    "cwd": stored.context.cwd,
                    "title": stored.title or None,
                    "updatedAt": stored.updated.isoformat(),
                }
                for stored in page.items
            ]
        }
        if page.cursor is not None:
            answer["nextCursor"] = page.cursor
        return answer

    async def _close(self, request: Request) -> Any:
        await self._end(_read(request, shapes.Named).session_id, required=True)
        return {}

    async def _delete(self, request: Request) -> Any:
        session_id = _read(request, shapes.Named).session_id
        await self._end(session_id, required=False)
        host = await self._host()
        try:
            known = parse_session_id(session_id)
        except HoldfastError:
            return {}
        await host.store.write(lambda tx: tx.delete(known))
        return {}

    async def _end(self, session_id: str, *, required: bool) -> None:
        if required:
            self._find(session_id)
        found = self._open.pop(session_id, None)
        if found is None:
            return
        if found.watch is not None:
            found.watch.cancel()
        await found.conversation.stop()
        host = await self._host()
        await host.close_session(found.conversation.session)

    # Modes

    async def _set_mode(self, request: Request) -> Any:
        asked = _read(request, shapes.SetMode)
        await self._change_mode(asked.session_id, asked.mode_id)
        return {}

    async def _set_config_option(self, request: Request) -> Any:
        asked = _read(request, shapes.SetConfigOption)
        self._find(asked.session_id)
        if asked.config_id != "mode" or not isinstance(asked.value, str):
            raise HoldfastError(
                codes.BAD_ARGUMENT, f"There is no option {asked.config_id[:40]!r} with that value."
            )
        await self._change_mode(asked.session_id, asked.value)
        return {"configOptions": _options(self._find(asked.session_id).conversation.mode)}

    async def _change_mode(self, session_id: str, mode: str) -> None:
        conversation = self._find(session_id).conversation
        try:
            conversation.mode = Mode(mode)
        except ValueError:
            modes = ", ".join(known.value for known, _, _ in _MODES)
            raise HoldfastError(
                codes.BAD_ARGUMENT, f"{mode[:40]!r} is no mode. There are: {modes}."
            ) from None
        await conversation.session.record.add(ModeChanged(mode=conversation.mode))
        update: Update = {
            "sessionUpdate": "config_option_update",
            "configOptions": _options(conversation.mode),
        }
        await self._tell(session_id, update)

    def _state(self, session_id: str) -> JsonObject:
        mode = self._open[session_id].conversation.mode
        available: list[Any] = [
            {"id": known.value, "name": name, "description": description}
            for known, name, description in _MODES
        ]
        return {
            "modes": {"currentModeId": mode.value, "availableModes": available},
            "configOptions": _options(mode),
        }

    async def _tell(self, session_id: str, update: Update) -> None:
        await self.peer.notify("session/update", {"sessionId": session_id, "update": update})

    def _find(self, session_id: str) -> _Open:
        found = self._open.get(session_id)
        if found is None:
            raise HoldfastError(
                codes.UNKNOWN_SESSION, f"There is no open session {session_id[:80]!r}.", sessionId=session_id
            )
        return found


def _live(event: Event) -> tuple[Update, ...]:
    """While it happens, an editor is not told its own words back."""
    found = updates(event)
    return tuple(update for update in found if update["sessionUpdate"] != "user_message_chunk")


def _options(mode: Mode) -> list[Any]:
    values = [{"value": known.value, "name": name, "description": text} for known, name, text in _MODES]
    return [
        {
            "id": "mode",
            "name": "Permission",
            "category": "mode",
            "type": "select",
            "currentValue": mode.value,
            "options": values,
        }
    ]


def _folder(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise HoldfastError(codes.BAD_ARGUMENT, f"{name} must be the absolute path of a folder.")
    path = Path(value)
    if not path.is_absolute() or "\0" in value:
        raise HoldfastError(codes.BAD_ARGUMENT, f"{name} must be an absolute path, not {value[:200]!r}.")
    if not path.is_dir():
        raise HoldfastError(codes.BAD_ARGUMENT, f"{name}: there is no folder {value[:200]!r}.")
    return value


def _read(message: Request | Notification, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(message.params, type=kind)
    except msgspec.ValidationError as error:
        raise HoldfastError(codes.BAD_ARGUMENT, f"{message.method} cannot be read: {error}.") from None
