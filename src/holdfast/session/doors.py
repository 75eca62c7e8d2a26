"""The doors that are attached to a live session."""

from collections import Counter
from functools import partial
from typing import Any, TypeVar, cast

from holdfast.model import codes
from holdfast.model.door import (
    CommandResult,
    CommandRunner,
    Door,
    DoorCapabilities,
    PermissionQuestion,
    ShellCommand,
)
from holdfast.model.errors import HoldfastError
from holdfast.model.event import Decision
from holdfast.model.json import JsonObject
from holdfast.model.permission import DoorKind
from holdfast.session.open_question import OpenQuestion
from holdfast.session.run_to_completion import run_to_completion
from holdfast.session.subscription import EventFeed, Subscription
from holdfast.wire.mcp.client_answers import wrong_answer

T = TypeVar("T")


class AttachedDoor:
    """An attached door, and the subscriptions through which it shows the session's events."""

    def __init__(self, door: Door, *, may_answer: bool, kind: DoorKind | None = None) -> None:
        self.door = door
        self.kind = kind
        """The kind of door, if the settings limit the mode for it; else None."""
        self.may_answer = may_answer
        self.has_left = False
        self.subscriptions: list[Subscription] = []

    def add(self, subscription: Subscription) -> None:
        """Add a subscription, and forget those that have ended."""
        self.subscriptions = [
            *(earlier for earlier in self.subscriptions if not earlier.is_closed),
            subscription,
        ]

    async def wait_handled(self, seq: int) -> None:
        """Wait until the door has shown every event up to this number."""
        for subscription in [*self.subscriptions]:
            await subscription.wait_handled(seq)


class Doors:
    """The attached doors of a session, as one door.

    A question goes to every attached door that can and may answer it, including doors that are attached later. The first
    answer counts; then the question is withdrawn from the other doors. If no door is left that could answer, and none is
    attached within `permission_wait` seconds, the question fails.
    """

    def __init__(self, events: EventFeed, *, permission_wait: float = 0.0) -> None:
        self._events = events
        self._permission_wait = permission_wait
        self._attached: list[AttachedDoor] = []
        self._kinds_without_door: Counter[DoorKind] = Counter()
        self._questions: set[OpenQuestion[Any]] = set()
        self._rejected_by: dict[str, str] = {}
        """By the id of a call: the name of the door that rejected it, if several doors were asked."""

    def attach(self, door: Door, *, may_answer: bool = True, kind: DoorKind | None = None) -> AttachedDoor:
        """Attach a door, unless it is attached already. It also gets the open questions."""
        for attached in self._attached:
            if attached.door is door:
                return attached
        attached = AttachedDoor(door, may_answer=may_answer, kind=kind)
        self._attached.append(attached)
        for question in self._questions:
            question.put_to(attached)
        return attached

    def detach(self, attached: AttachedDoor) -> None:
        """Detach a door. Its questions stay open for the others."""
        if attached in self._attached:
            self._attached.remove(attached)
            attached.has_left = True
            for question in self._questions:
                question.withdraw(attached)

    @property
    def count(self) -> int:
        return len(self._attached)

    def begin_without_door(self, kind: DoorKind) -> None:
        """Note that a caller without a door, such as an application, has the session open. Its kind limits the mode, too."""
        self._kinds_without_door[kind] += 1

    def end_without_door(self, kind: DoorKind) -> None:
        """Note that such a caller no longer has the session open."""
        self._kinds_without_door[kind] -= 1

    @property
    def kinds(self) -> set[DoorKind]:
        """The kinds of the attached doors that may answer questions, and of the callers without a door."""
        attached = {each.kind for each in self._attached if each.kind is not None and each.may_answer}
        return attached | {kind for kind, count in self._kinds_without_door.items() if count > 0}

    @property
    def answering_count(self) -> int:
        """How many attached doors may answer questions."""
        return sum(attached.may_answer for attached in self._attached)

    @property
    def capabilities(self) -> DoorCapabilities:
        """What the attached doors support together."""
        supported = [(attached.door.capabilities, attached.may_answer) for attached in self._attached]
        files = self._files_door()
        return DoorCapabilities(
            permission=any(door.permission and may_answer for door, may_answer in supported),
            elicitation=any(door.elicitation and may_answer for door, may_answer in supported),
            elicitation_url=any(door.elicitation_url and may_answer for door, may_answer in supported),
            sampling=any(door.sampling for door, _ in supported),
            read_files=files is not None and files.capabilities.read_files,
            write_files=files is not None and files.capabilities.write_files,
            terminal=self._command_runner() is not None,
        )

    async def request_permission(self, question: PermissionQuestion) -> Decision:
        """Ask whether a call may run.

        If no door is left that could answer, raise the error of a door that failed, or else NO_ANSWER.
        """
        asked = OpenQuestion(
            can_answer=lambda capabilities: capabilities.permission,
            ask=partial(_ask_permission, question),
            after_seq=self._events.last,
            permission_wait=self._permission_wait,
        )
        decision = await self._ask(asked)
        if decision is Decision.REJECT and asked.asked_count > 1:
            self._rejected_by[question.call.call_id] = asked.answered_by
        return decision

    def pop_rejected_by(self, call_id: str) -> str:
        """The name of the door that rejected this call, if several doors were asked; else empty. Can be read once."""
        return self._rejected_by.pop(call_id, "")

    async def elicit(self, params: JsonObject) -> JsonObject:
        """Ask for input that a server needs. Raise like `request_permission`."""
        return await self._ask(
            OpenQuestion(
                can_answer=lambda capabilities: capabilities.elicitation,
                ask=partial(_elicit, params),
                after_seq=self._events.last,
                permission_wait=self._permission_wait,
            )
        )

    async def sample(self, params: JsonObject) -> JsonObject:
        """Answer a server's sampling request with the model of the first attached door that has a model."""
        for attached in self._attached:
            if attached.door.capabilities.sampling:
                return _require_object("sample", await attached.door.sample(params))
        raise HoldfastError(codes.UNSUPPORTED_BY_CLIENT, "No attached client has a model for sampling.")

    async def read_text(self, path: str) -> str:
        return await self._require_files_door().read_text(path)

    async def write_text(self, path: str, text: str) -> None:
        await self._require_files_door().write_text(path, text)

    async def run_command(self, command: ShellCommand) -> CommandResult:
        """Run a command in a terminal of the first attached editor that has terminals."""
        runner = self._command_runner()
        if runner is None:
            raise HoldfastError(codes.UNSUPPORTED_BY_CLIENT, "No attached editor has terminals.")
        return await runner.run_command(command)

    def _command_runner(self) -> CommandRunner | None:
        for attached in self._attached:
            if attached.door.capabilities.terminal and isinstance(attached.door, CommandRunner):
                return attached.door
        return None

    def _files_door(self) -> Door | None:
        for attached in self._attached:
            capabilities = attached.door.capabilities
            if capabilities.read_files or capabilities.write_files:
                return attached.door
        return None

    def _require_files_door(self) -> Door:
        door = self._files_door()
        if door is None:
            raise HoldfastError(codes.UNSUPPORTED_BY_CLIENT, "No attached editor can read or write files.")
        return door

    async def _ask(self, question: OpenQuestion[T]) -> T:
        self._questions.add(question)
        try:
            for attached in self._attached:
                question.put_to(attached)
            return await question.wait()
        finally:
            self._questions.discard(question)
            # Remove the question from the other doors' screens before the session continues.
            await run_to_completion(question.withdraw_all())


async def _ask_permission(question: PermissionQuestion, door: Door) -> Decision:
    """Ask a door. An answer that is no `Decision`, such as False, is an error: it must not count as a permission."""
    answer: object = await door.request_permission(question)
    try:
        return Decision(answer)
    except ValueError:
        raise _wrong_answer("request_permission", f"one of {', '.join(Decision)}", answer) from None


async def _elicit(params: JsonObject, door: Door) -> JsonObject:
    return _require_object("elicit", await door.elicit(params))


def _require_object(method: str, answer: object) -> JsonObject:
    if isinstance(answer, dict):
        return cast("JsonObject", answer)
    raise _wrong_answer(method, "a dictionary", answer)


def _wrong_answer(method: str, expected: str, answer: object) -> HoldfastError:
    return wrong_answer(method, expected, f"a value of the type {type(answer).__name__}")
