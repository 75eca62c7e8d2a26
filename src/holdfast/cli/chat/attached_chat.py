"""A chat in a session that another process has open."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from holdfast.cli.chat.chat import Chat
from holdfast.cli.find_session import resume_command, short_id
from holdfast.host.describe_session import SessionDescription
from holdfast.host.remote.client import AS_CHAT, AttachRequest, RemoteSession, attach_to_owner
from holdfast.masking.mask import Mask
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.json import JsonObject
from holdfast.model.permission import Mode
from holdfast.session.turns import TurnResult
from holdfast.settings import Settings
from holdfast.store.types import Lease, StoredEvent


class AttachedChat(Chat):
    """Attaches to the session, and detaches at the end. The session continues in the process that has it open."""

    def __init__(
        self,
        settings: Settings,
        lease: Lease,
        title: str,
        *,
        user_id: str | None = None,
        request: AttachRequest = AS_CHAT,
        mode: Mode | None = None,
    ) -> None:
        """`user_id` is the user that the session belongs to. If `mode` is given, the session's mode is changed to it."""
        super().__init__(settings)
        self._lease = lease
        self._title = title
        self._user_id = user_id
        self._request = request
        self._mode = mode
        self._remote: RemoteSession | None = None

    async def _run_session(self) -> None:
        self._open_terminal()  # the session may ask a question as soon as this chat is attached
        async with attach_to_owner(
            self._settings.data_dir,
            self._lease,
            door=self._door,
            on_events=self._show_events,
            request=self._request,
        ) as remote:
            self._remote = remote
            if self._mode not in (None, remote.description.mode):
                await remote.change_mode(self._mode)
                await remote.describe()
            await remote.wait_handled(remote.last_seq)
            self._print_banner(remote.description)
            # The mask is empty: the prompts to save are masked already.
            prompting = asyncio.create_task(self._run_prompts(_AttachedSession(remote), Mask()))
            closed = asyncio.create_task(remote.ended.wait())
            try:
                await asyncio.wait([prompting, closed], return_when=asyncio.FIRST_COMPLETED)
                if not prompting.done():
                    raise self._ended_error(remote)
                prompting.result()
            finally:
                for task in (prompting, closed):
                    task.cancel()
                await asyncio.wait([prompting, closed])

    def _ended_error(self, remote: RemoteSession) -> HoldfastError:
        """The error that ends the chat when the session or its process has ended."""
        hint = f"To open it here: {resume_command(self._lease.session_id, self._user_id)}"
        return HoldfastError(codes.CONNECTION_CLOSED, remote.end_reason, hint=hint)

    def _print_failure(self, error: HoldfastError) -> None:
        """Print the error of a command, or end the chat if the reason is that the session has ended."""
        if self._remote is not None and self._remote.ended.is_set():
            self._printer.clear_status()
            self._printer.new_line()
            raise self._ended_error(self._remote)
        super()._print_failure(error)

    def _prompts_to_save(self, typed: Sequence[str]) -> Sequence[str]:
        """The prompts that were answered, as the process that has the session open masked them: only it knows the session's secrets."""
        return () if self._remote is None else self._remote.answered_prompts

    async def _show_events(self, events: Sequence[StoredEvent]) -> None:
        for stored in events:
            await self._show_event(stored)

    def _print_banner(self, description: SessionDescription) -> None:
        printer, owner = self._printer, self._lease.owner
        printer.new_line()
        printer.print(
            f"Attached to {short_id(self._lease.session_id)}… in {description.cwd}, "
            f"{description.trust}, mode {description.mode}; process {owner.pid} has it open.",
            "bold cyan",
        )
        printer.print("/quit detaches you; the session stays open.", "dim")
        if self._title:
            printer.print(f"Its title is {self._title!r}.", "dim")
        printer.print()


class _AttachedSession:
    """The `ChatSession` of a session in another process."""

    def __init__(self, remote: RemoteSession) -> None:
        self._remote = remote
        self._requests: set[asyncio.Task[object]] = set()

    async def prompt(self, text: str) -> TurnResult:
        turn = await self._remote.prompt([{"type": "text", "text": text}])
        await self._remote.describe()  # the tools may have changed
        return turn

    def cancel(self) -> None:
        async def send() -> None:
            with suppress(HoldfastError):  # the session has ended, and the chat ends with the reason
                await self._remote.cancel()

        task: asyncio.Task[object] = asyncio.create_task(send())
        self._requests.add(task)
        task.add_done_callback(self._requests.discard)

    async def cancel_if_running(self) -> bool:
        is_busy = (await self._remote.describe()).is_busy
        await self._remote.cancel()
        return is_busy

    def describe(self) -> SessionDescription:
        return self._remote.description

    def input_schema(self, tool: str) -> JsonObject | None:
        return None

    def progress_of(self, call_id: str) -> str:
        return ""

    async def change_mode(self, mode: Mode) -> None:
        await self._remote.change_mode(mode)
        await self._remote.describe()
