"""One chat: the same conversation that an editor has, with a terminal for a face."""

import asyncio
import contextlib
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from types import FrameType

from holdfast.agent.manual import Manual
from holdfast.agent.typed import typed
from holdfast.cli.chat.behind import Behind, Interrupt, Over, Question, Ready, TurnOver
from holdfast.cli.chat.door import TerminalDoor
from holdfast.cli.chat.greeting import greet, say_what_to_type
from holdfast.cli.chat.history import FILE as HISTORY
from holdfast.cli.chat.typist import Pipe, Typist, person
from holdfast.cli.failure import tell
from holdfast.cli.leaving import terminated_gently
from holdfast.cli.screen import MORE, PROMPT, Screen
from holdfast.host import Host, Opening
from holdfast.model.errors import HoldfastError
from holdfast.model.ids import SessionId
from holdfast.model.mask import Mask
from holdfast.session.permission import Mode
from holdfast.session.session import Session
from holdfast.session.turn import Conversation
from holdfast.settings import Settings

_LEAVE = ("/quit", "/exit")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a chat begins with."""

    settings: Settings
    opening: Opening
    mode: Mode | None = None
    """The mode that was asked for."""
    left_in: Mode = Mode.ASK
    """The mode that the session was left in."""
    resume: SessionId | None = None
    title: str = ""
    had: tuple[str, ...] = ()
    """The other directories of the session that is gone on with; they are not restored by themselves."""


class Chat:
    """Keys in front, the session behind."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._screen = Screen()
        self._by_person = sys.stdin.isatty() and self._screen.is_terminal
        self._agent = Manual()
        self._conversation: Conversation | None = None
        self._spoken = False
        self._asking = False
        self._failed = False

    def run(self) -> None:
        """Talk until the person leaves, or the input ends."""
        with terminated_gently(), Behind(self._life) as behind:

            def interrupted(number: int, frame: FrameType | None) -> None:
                if self._asking:
                    raise KeyboardInterrupt
                behind.tell(Interrupt())

            signal.signal(signal.SIGINT, interrupted)
            try:
                self._front(behind)
            except KeyboardInterrupt:
                self._screen.say()
            finally:
                # From here on it takes a moment; whoever cannot wait presses Ctrl-C once more.
                signal.signal(signal.SIGINT, signal.SIG_DFL)
        if self._failed and not self._by_person:
            sys.exit(1)

    # In front

    def _front(self, behind: Behind) -> None:
        match behind.wait():
            case Over(failure=failure) if failure is not None:
                raise failure
            case Interrupt():
                raise KeyboardInterrupt
            case _:
                pass
        with self._typist() as typist:
            interrupted = False
            while True:
                try:
                    line = self._whole(typist, self._asked(typist.line, PROMPT))
                except KeyboardInterrupt:
                    if interrupted or not self._by_person:
                        raise
                    interrupted = True
                    self._screen.say("\nCtrl-C again, or Ctrl-D, leaves.", "dim")
                    continue
                interrupted = False
                if line is None or line.strip() in _LEAVE:
                    break
                if line.strip():
                    self._spoken = True
                    self._turn(behind, typist, line)
        self._screen.new_line()
        if self._by_person and self._spoken:
            self._screen.say("\nThe session is kept: holdfast chat --resume", "dim")

    def _whole(self, typist: Typist, line: str | None) -> str | None:
        """A call whose JSON is not closed goes on with the next lines, up to an empty one."""
        while line and _is_open(line) and (more := self._asked(typist.answer, MORE)):
            line = f"{line}\n{more}"
        return line

    def _turn(self, behind: Behind, typist: Typist, line: str) -> None:
        conversation = self._conversation
        assert conversation is not None
        behind.start(lambda: conversation.prompt([{"type": "text", "text": line}]))
        cancelled = False
        while True:
            match behind.wait():
                case Question(answer=answer) if cancelled:
                    answer(None)
                case Question(text=text, about=about, answer=answer):
                    try:
                        if about:
                            self._screen.new_line()
                            self._screen.say(about)
                        said = self._asked(typist.answer, text)
                        if said is None or said.strip() in _LEAVE:
                            self._screen.new_line()
                            self._screen.say("Ctrl-C cancels the turn; after that you can leave.", "dim")
                        answer(said)
                    except KeyboardInterrupt:
                        self._screen.say()
                        answer(None)
                        cancelled = True
                        behind.do(conversation.cancel)
                case Interrupt():
                    if cancelled:
                        raise KeyboardInterrupt
                    cancelled = True
                    behind.do(conversation.cancel)
                case TurnOver(failure=failed):
                    if failed is not None:
                        self._say_failed(failed)
                    return
                case Over(failure=failure):
                    raise failure or EOFError
                case Ready():
                    pass

    def _say_failed(self, failure: HoldfastError) -> None:
        self._failed = True
        self._screen.new_line()
        tell(failure)

    def _asked(self, ask: Callable[[str], str | None], prompt: str) -> str | None:
        """Ask for a line. Only here does Ctrl-C interrupt the main thread; elsewhere it is news like any other."""
        try:
            self._asking = True
            return ask(prompt)
        finally:
            self._asking = False

    @contextlib.contextmanager
    def _typist(self) -> Iterator[Typist]:
        if not self._by_person:
            yield Pipe()
            return
        history = self._plan.settings.data_dir / HISTORY
        with person(history, self._words, self._mask) as typist:
            yield typist

    def _words(self) -> tuple[str, ...]:
        """What can be typed now: also the tools of servers that came up meanwhile."""
        commands = (f"/{command.name}" for command in self._agent.commands)
        offers = () if self._conversation is None else self._conversation.session.offers
        return (*commands, *_LEAVE, *(f"/call {offer.name}" for offer in offers))

    def _mask(self) -> Mask:
        return self._conversation.session.record.mask if self._conversation is not None else Mask()

    # Behind

    async def _life(self, behind: Behind) -> None:
        plan = self._plan
        door = TerminalDoor(behind.ask if self._by_person else None)
        opening = replace(plan.opening, door=door)
        async with Host(settings=plan.settings) as host:
            session = await (host.reopen(plan.resume, opening) if plan.resume else host.open(opening))
            try:
                settling = asyncio.create_task(session.settle())
                await asyncio.wait([settling], timeout=plan.settings.links.wait_seconds)
                await self._begin(host, session, door)
                behind.tell(Ready())
                await behind.leaving.wait()
                if self._conversation is not None:
                    await self._conversation.stop()
                settling.cancel()
                await asyncio.wait([settling])
            finally:
                await host.close_session(session)

    async def _begin(self, host: Host, session: Session, door: TerminalDoor) -> None:
        screen, plan = self._screen, self._plan
        if plan.resume:
            async for stored in host.store.events(session.context.session_id):
                screen.show(stored.event)
            screen.new_line()
        conversation = Conversation(session, self._agent, door, titled=bool(plan.title))
        conversation.mode = plan.left_in
        if plan.mode not in (None, plan.left_in):
            await conversation.change_mode(plan.mode)
        greet(screen, session, mode=conversation.mode, resumed=plan.title, had=plan.had)
        if not plan.resume:
            say_what_to_type(screen)
        session.record.listen(screen.live)
        self._conversation = conversation


def _is_open(text: str) -> bool:
    commands = typed([{"type": "text", "text": text}])
    return bool(commands) and commands[-1].open
