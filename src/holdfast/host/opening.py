"""Opening sessions: a new one, a stored one, or one that is live already."""

import shlex
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace

from holdfast import telemetry
from holdfast.agent.agent import Agent
from holdfast.connect.argument_check import ArgumentChecker
from holdfast.connect.connection import ConnectOptions
from holdfast.connect.link_pool import LinkPool
from holdfast.connect.scope import Scope
from holdfast.host.admission import Admitted, SessionPlan
from holdfast.host.join import check_join, lower_mode_for
from holdfast.host.live_sessions import LiveSessions
from holdfast.host.open_options import OpenOptions
from holdfast.host.session_storage import Acquired, SessionStorage
from holdfast.masking.mask import Mask
from holdfast.model import codes
from holdfast.model.context import SessionContext
from holdfast.model.errors import HoldfastError
from holdfast.model.permission import DoorKind, Mode
from holdfast.model.resolution import Resolution
from holdfast.model.trust import lowest_trust
from holdfast.model.worker_threads import WorkerThreads
from holdfast.session.opening_events import OpeningEvents
from holdfast.session.permission import stored_mode
from holdfast.session.permission_rules import limit_mode
from holdfast.session.record import Record
from holdfast.session.run_to_completion import run_to_completion
from holdfast.session.servers import ServerDeps
from holdfast.session.session import Session, SessionConfig
from holdfast.store.store import Tx
from holdfast.store.types import Hold, NewSession, StoredSession

_MAX_SECRETS_ON_LOOP = 5000
_MASK_THREADS = WorkerThreads("log-mask", threads=2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Opener:
    """Opens the sessions of one host."""

    storage: SessionStorage
    links: LinkPool
    live: LiveSessions
    connect_options: ConnectOptions
    argument_checker: ArgumentChecker
    agent: Agent
    wait_seconds: float
    """How long a question waits for a door that can answer it."""

    async def open_new(self, plan: SessionPlan) -> Session:
        """Open a new session. Returns while its servers are starting."""
        context, options = plan.context, plan.options
        admitted = await plan.admit()
        mask = admitted.mask
        title, tags = mask.mask_known(options.title), tuple(map(mask.mask_known, options.tags))
        new = NewSession(context=context, title=title, tags=tags, source=options.opened_by)

        storage = self.storage if options.keep else self.storage.unkept()
        first = storage.opening_events(context, admitted.resolution, mask, is_new=True)

        def create(tx: Tx) -> Acquired:
            tx.create(new)
            hold = tx.acquire(context.session_id)
            return Acquired(hold, stored_seq=first.write(tx, hold))

        acquired = await storage.acquire(create, _delete_new)
        try:
            config = self._config(plan, options.mode or Mode.ASK, has_title=bool(title))
            session = await self._make_session(plan, storage, acquired.hold, admitted, config)
            return await self._start(session, options, first, stored_seq=acquired.stored_seq)
        except BaseException:
            await run_to_completion(storage.roll_back(lambda tx: _delete_new(tx, acquired.hold)))
            raise

    async def open_stored(self, stored: StoredSession, plan: SessionPlan) -> Session:
        """Open a stored session, or return it if it is open already. A turn that a crash interrupted is ended first."""
        session_id = stored.context.session_id
        check_folder(stored, plan)
        async with self.live.lock(session_id):
            await self.live.wait_closed(session_id)
            if (live := self.live.find(session_id)) is not None:
                return await _join(live, plan)
            return await self._reopen(stored, plan)

    async def _reopen(self, stored: StoredSession, plan: SessionPlan) -> Session:
        if not plan.options.keep:
            raise HoldfastError(codes.BAD_ARGUMENT, "A stored session stays stored: `keep` must be true.")
        kept, storage = stored.context, self.storage

        def acquire(tx: Tx) -> Acquired:
            hold = tx.acquire(kept.session_id)
            storage.audit.end_and_record_interrupted(tx, hold, kept)
            return Acquired(hold)

        hold = (await storage.acquire(acquire, lambda tx, hold: tx.release(hold))).hold
        try:
            # Read again: now that this process holds the session, no other can change it.
            current = await storage.store.session(kept.session_id) or stored
            context = replace(
                plan.context,
                session_id=kept.session_id,
                trust_level=lowest_trust(plan.context.trust_level, current.context.trust_level),
                parent_session_id=kept.parent_session_id,
            )
            plan = replace(plan, context=context)
            admitted = await plan.admit()
            mode = plan.options.mode or stored_mode(current.settings)
            config = self._config(plan, mode, has_title=bool(current.title))
        except BaseException:
            await run_to_completion(storage.store.release(hold))
            raise
        first = storage.opening_events(context, admitted.resolution, admitted.mask, is_new=False)
        session = await self._make_session(plan, storage, hold, admitted, config)
        return await self._start(session, plan.options, first)

    async def _start(
        self, session: Session, options: OpenOptions, first: OpeningEvents, *, stored_seq: int | None = None
    ) -> Session:
        self.live.add(session, options)
        if options.door is not None:
            session.attach(options.door)
        try:
            await session.open(first, stored_seq=stored_seq)
        except BaseException:
            await session.close()
            raise
        return session

    def _config(self, plan: SessionPlan, mode: Mode, *, has_title: bool) -> SessionConfig:
        return SessionConfig(
            agent=self.agent,
            mode=limit_mode(mode, _door_kind(plan.options), plan.rules),
            rules=plan.rules,
            wait_seconds=self.wait_seconds,
            has_title=has_title,
        )

    async def _make_session(
        self,
        plan: SessionPlan,
        storage: SessionStorage,
        hold: Hold,
        admitted: Admitted,
        config: SessionConfig,
    ) -> Session:
        context = plan.context
        async with AsyncExitStack() as resources:
            # Removed last: until then, the session cannot be opened again.
            resources.callback(self.live.remove, context.session_id)
            record = Record(
                context, hold, storage.store, storage.audit, admitted.mask, admitted.question_mask
            )
            resources.push_async_callback(storage.release, record)
            log_masks: list[Mask] = []
            resources.push_async_callback(_unmask_in_log, log_masks)
            await _mask_in_log(admitted.mask, log_masks)

            async def resolve_again(context: SessionContext) -> Resolution:
                """Admit the session again. What is masked is extended before any server starts."""
                again = await replace(plan, context=context).admit()
                await _mask_in_log(again.mask, log_masks)
                record.set_masks(*await _MASK_THREADS.run(_join_masks, record, again))
                return again.resolution

            deps = ServerDeps(
                links=self.links,
                options=self.connect_options,
                arguments=self.argument_checker,
                resolve=resolve_again,
                screen=lambda spec, tools: plan.screen(spec, tools, record.mask),
            )
            return Session(Scope(context), admitted.resolution, record, deps, config, resources.pop_all())


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


def check_folder(stored: StoredSession, plan: SessionPlan) -> None:
    """Raise BAD_ARGUMENT unless the session was opened in the folder of the plan."""
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
    check_join(session, trust=plan.context.trust_level, roots=plan.context.roots)
    await lower_mode_for(session, _door_kind(plan.options), plan.rules)
    if plan.options.door is not None:
        session.attach(plan.options.door)
    return session


def _join_masks(record: Record, again: Admitted) -> tuple[Mask, Mask]:
    """The session's masks, with the secrets of a later admission: those of the first may still occur."""
    return record.mask.plus(again.mask), record.question_mask.plus(again.question_mask)


async def _mask_in_log(mask: Mask, masks: list[Mask]) -> None:
    """Mask a session's secrets in the log until `_unmask_in_log`."""
    await _change_log_mask(telemetry.add_mask, mask)
    masks.append(mask)


async def _unmask_in_log(masks: list[Mask]) -> None:
    while masks:
        await _change_log_mask(telemetry.remove_mask, masks.pop())


async def _change_log_mask(change: Callable[[Mask], None], mask: Mask) -> None:
    """Add or remove a session's secrets in the log's mask; very many of them in a thread."""
    if len(mask.secrets) > _MAX_SECRETS_ON_LOOP:
        await _MASK_THREADS.run(change, mask)
    else:
        change(mask)
