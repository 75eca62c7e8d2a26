"""Opening sessions: a new one, a stored one, or one that is live already."""

import asyncio
import logging
import shlex
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace

from holdfast import telemetry
from holdfast.agent.agent import Agent
from holdfast.audit.audit import Audit
from holdfast.connect.argument_check import ArgumentChecks
from holdfast.connect.connection import ConnectOptions
from holdfast.connect.link_pool import LinkPool
from holdfast.connect.scope import Scope
from holdfast.host.admission import Admitted, SessionPlan
from holdfast.host.live_sessions import LiveSessions
from holdfast.host.open_options import OpenOptions
from holdfast.masking.mask import Mask
from holdfast.model import codes
from holdfast.model.context import SessionContext
from holdfast.model.errors import HoldfastError
from holdfast.model.permission import DoorKind, Mode
from holdfast.model.resolution import Resolution
from holdfast.model.trust import lowest_trust
from holdfast.model.worker_threads import WorkerThreads
from holdfast.session.permission import stored_mode
from holdfast.session.permission_rules import limit_mode
from holdfast.session.record import Record
from holdfast.session.run_to_completion import run_to_completion
from holdfast.session.servers import ServerDeps
from holdfast.session.session import Session, SessionConfig
from holdfast.store.store import Store, Tx
from holdfast.store.types import Hold, NewSession, StoredSession

log = logging.getLogger(__name__)

_MAX_SECRETS_ON_LOOP = 5000
_MASK_THREADS = WorkerThreads("log-mask", threads=2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Opener:
    """Opens the sessions of one host."""

    store: Store
    audit: Audit
    links: LinkPool
    live: LiveSessions
    connect_options: ConnectOptions
    argument_checks: ArgumentChecks
    agent: Agent
    wait_seconds: float
    """How long a question waits for a door that can answer it."""

    async def open_new(self, plan: SessionPlan) -> Session:
        """Open a new session. Returns while its servers are starting."""
        context, options = plan.context, plan.options
        admitted = await plan.admit()
        title = admitted.mask.mask_known(options.title)
        new = NewSession(context=context, title=title, source=options.opened_by)

        def create(tx: Tx) -> Hold:
            tx.create(new)
            return tx.acquire(context.session_id)

        hold = await self._acquire(create, _delete_new)
        try:
            return await self._start(
                plan, hold, admitted, mode=options.mode or Mode.ASK, has_title=bool(title)
            )
        except BaseException:
            await run_to_completion(self._roll_back(lambda tx: _delete_new(tx, hold)))
            raise

    async def open_stored(self, stored: StoredSession, plan: SessionPlan) -> Session:
        """Open a stored session, or return it if it is open already. A turn that a crash interrupted is ended first."""
        session_id = stored.context.session_id
        _check_folder(stored, plan)
        async with self.live.lock(session_id):
            await self.live.wait_closed(session_id)
            if (live := self.live.find(session_id)) is not None:
                return await _join(live, plan)
            return await self._reopen(stored, plan)

    async def _reopen(self, stored: StoredSession, plan: SessionPlan) -> Session:
        kept = stored.context

        def acquire(tx: Tx) -> Hold:
            hold = tx.acquire(kept.session_id)
            self.audit.end_and_record_interrupted(tx, hold, kept)
            return hold

        hold = await self._acquire(acquire, lambda tx, hold: tx.release(hold))
        try:
            # Read again: now that this process holds the session, no other can change it.
            current = await self.store.session(kept.session_id) or stored
            context = replace(
                plan.context,
                session_id=kept.session_id,
                trust_level=lowest_trust(plan.context.trust_level, current.context.trust_level),
                parent_session_id=kept.parent_session_id,
            )
            plan = replace(plan, context=context)
            admitted = await plan.admit()
        except BaseException:
            await run_to_completion(self.store.release(hold))
            raise
        return await self._start(
            plan,
            hold,
            admitted,
            mode=plan.options.mode or stored_mode(current.settings),
            has_title=bool(current.title),
        )

    async def _start(
        self, plan: SessionPlan, hold: Hold, admitted: Admitted, *, mode: Mode, has_title: bool
    ) -> Session:
        context, options = plan.context, plan.options
        async with AsyncExitStack() as resources:
            resources.callback(
                self.live.remove, context.session_id
            )  # last: until then, it cannot be opened again
            resources.push_async_callback(self._release, hold)
            log_masks = await resources.enter_async_context(AsyncExitStack())
            await _mask_in_log(admitted.mask, log_masks)
            record = Record(context, hold, self.store, self.audit, admitted.mask, admitted.question_mask)

            async def resolve_again(context: SessionContext) -> Resolution:
                """Admit the session again. What is masked is extended before any server starts."""
                again = await replace(plan, context=context).admit()
                await _mask_in_log(again.mask, log_masks)
                record.set_masks(*await _MASK_THREADS.run(_join_masks, record, again))
                return again.resolution

            deps = ServerDeps(
                links=self.links,
                options=self.connect_options,
                arguments=self.argument_checks,
                resolve=resolve_again,
                screen=lambda spec, tools: plan.screen(spec, tools, record.mask),
            )
            config = SessionConfig(
                agent=self.agent,
                mode=limit_mode(mode, _door_kind(options), plan.rules),
                rules=plan.rules,
                wait_seconds=self.wait_seconds,
                has_title=has_title,
            )
            session = Session(Scope(context), admitted.resolution, record, deps, config, resources.pop_all())
        self.live.add(session)
        if options.door is not None:
            session.attach(options.door)
        try:
            await session.open()
        except BaseException:
            await session.close()
            raise
        return session

    async def _acquire(self, work: Callable[[Tx], Hold], undo: Callable[[Tx, Hold], None]) -> Hold:
        """Acquire a session, in one transaction with other work. If the caller is cancelled, all of it is rolled back."""
        written: list[Hold] = []

        async def write() -> Hold:
            written.append(await self.store.write(work))
            return written[0]

        try:
            return await run_to_completion(write())
        except asyncio.CancelledError:
            for hold in written:
                await run_to_completion(self._roll_back(lambda tx, hold=hold: undo(tx, hold)))
            raise

    async def _release(self, hold: Hold) -> None:
        await run_to_completion(self.store.release(hold))

    async def _roll_back(self, undo: Callable[[Tx], None]) -> None:
        """Undo the writes of a session open that failed, now or as soon as the store can be written to."""
        try:
            await self.store.write(undo, must_happen=True)
        except HoldfastError as error:
            log.warning("could not roll back a failed session open", extra={"reason": error.message})


def _delete_new(tx: Tx, hold: Hold) -> None:
    """Delete a session that could not be opened; its hold may have been released already."""
    lease = tx.lease(hold.session_id)
    is_held = lease is not None and lease.epoch == hold.epoch
    tx.delete(hold if is_held else tx.acquire(hold.session_id))


def _door_kind(options: OpenOptions) -> DoorKind:
    try:
        return DoorKind(options.opened_by)
    except ValueError:
        raise HoldfastError(
            codes.BAD_ARGUMENT,
            f"`opened_by` must be one of {', '.join(DoorKind)}, not {options.opened_by!r}.",
        ) from None


def _check_folder(stored: StoredSession, plan: SessionPlan) -> None:
    folder, asked = stored.context.cwd, plan.context.cwd
    if folder != asked:
        move = shlex.join(["holdfast", "sessions", "move", stored.context.session_id, asked])
        raise HoldfastError(
            codes.BAD_ARGUMENT,
            f"The session was opened in {folder}, not in {asked}. To move it: {move}",
            hint=f"Open it in {folder}, or move it: {move}",
            cwd=folder,
        )


async def _join(session: Session, plan: SessionPlan) -> Session:
    """Check that a live session is what the options ask for. It keeps its servers; its mode may be lowered."""
    live, asked = session.context, plan.context
    if lowest_trust(asked.trust_level, live.trust_level) is not live.trust_level:
        raise HoldfastError(
            codes.SESSION_HELD,
            f"The session is open as {live.trust_level}, and was asked for as {asked.trust_level}.",
            hint="Lower its trust where it is open, or close it there first.",
            session_id=live.session_id,
        )
    if missing := [root for root in asked.roots if root not in live.roots]:
        raise HoldfastError(
            codes.SESSION_HELD,
            f"The session is open without the folder {missing[0]!r}.",
            hint="Leave the folder out, or close the session where it is open and open it again.",
            session_id=live.session_id,
        )
    door, policy = plan.options.door, session.permission
    limited = limit_mode(policy.mode, _door_kind(plan.options), plan.rules)
    if limited is not policy.mode:
        await policy.change_mode(limited)
    if door is not None:
        session.attach(door)
    return session


def _join_masks(record: Record, again: Admitted) -> tuple[Mask, Mask]:
    """The session's masks, with the secrets of a later admission: those of the first may still occur."""
    return record.mask.plus(again.mask), record.question_mask.plus(again.question_mask)


async def _mask_in_log(mask: Mask, until: AsyncExitStack) -> None:
    """Mask a session's secrets in the log until the stack is closed."""
    await _change_log_mask(telemetry.add_mask, mask)
    until.push_async_callback(_change_log_mask, telemetry.remove_mask, mask)


async def _change_log_mask(change: Callable[[Mask], None], mask: Mask) -> None:
    """Add or remove a session's secrets in the log's mask; very many of them in a thread."""
    if len(mask.secrets) > _MAX_SECRETS_ON_LOOP:
        await _MASK_THREADS.run(change, mask)
    else:
        change(mask)
