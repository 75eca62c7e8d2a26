"""Joining a live session: another door may join if the session is already as requested."""

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.model import codes
from holdfast.model.context import SessionContext
from holdfast.model.errors import HoldfastError
from holdfast.model.permission import DoorKind, Mode, lowest_mode
from holdfast.model.trust import Trust, lowest_trust
from holdfast.session.permission_rules import PermissionRules, limit_mode
from holdfast.session.session import Session
from holdfast.store.types import Lease


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherOwner:
    """Another process that has a session open, and the context that was requested here."""

    lease: Lease
    requested: SessionContext
    """It has the trust and the folders that the session would have if it were opened here, but a new session id."""


def check_join(session: Session, *, trust: Trust, roots: Sequence[str]) -> None:
    """Raise SESSION_HELD unless the session has at most this trust and all of these folders."""
    live = session.context
    if lowest_trust(trust, live.trust_level) is not live.trust_level:
        raise HoldfastError(
            codes.SESSION_HELD,
            f"The session is open with the trust {live.trust_level}, but {trust} was requested.",
            hint="Lower its trust where it is open, or close it there first.",
            session_id=live.session_id,
        )
    if missing := [root for root in roots if root not in live.roots]:
        raise HoldfastError(
            codes.SESSION_HELD,
            f"The session is open without the folder {missing[0]!r}.",
            hint="Leave the folder out, or close the session where it is open and open it again.",
            session_id=live.session_id,
        )


async def lower_mode_for(
    session: Session, door: DoorKind, rules: PermissionRules, requested: Mode | None = None
) -> None:
    """Lower the session's mode to the highest that the rules allow for a door that joins, and to the one it requested."""
    policy = session.permission
    limited = limit_mode(lowest_mode(policy.mode, requested or policy.mode), door, rules)
    if limited is not policy.mode:
        await policy.change_mode(limited)
