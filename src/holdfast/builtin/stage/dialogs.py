"""The dialogs of a stage: how the next ones are answered, and how the last ones were."""

from dataclasses import dataclass

from holdfast.builtin.stage.limits import MAX_DIALOGS, MAX_TEXT
from holdfast.builtin.stage.recent_items import RecentItems


@dataclass(slots=True)
class Dialog:
    """A dialog that a page opened, and how it was answered."""

    tab: str
    kind: str
    message: str
    accepted: bool
    expected: bool
    """Whether a policy applied to it, or a call was leaving the page."""


@dataclass(slots=True)
class DialogPolicy:
    """How the next dialogs are answered."""

    accept: bool = False
    text: str | None = None
    left: int = 0
    """For how many more dialogs the policy applies; -1 for all."""


class Dialogs:
    """The last dialogs, and the policy for the next ones. Without a policy, a dialog is dismissed."""

    def __init__(self) -> None:
        self.recent: RecentItems[Dialog] = RecentItems(MAX_DIALOGS)
        self.policy = DialogPolicy()

    def choose_answer(
        self, tab: str, kind: str, message: str, *, is_leaving: bool
    ) -> tuple[Dialog, str | None]:
        """Decide how a dialog is answered, and which text is typed into it. If a call is leaving the page, `beforeunload` is accepted."""
        policy = self.policy
        has_policy = policy.left != 0
        leaves = kind == "beforeunload" and is_leaving
        accept = leaves or (has_policy and policy.accept)
        if not leaves and policy.left > 0:
            policy.left -= 1
        dialog = Dialog(tab, kind, message[:MAX_TEXT], accept, expected=leaves or has_policy)
        self.recent.add(dialog)
        return dialog, policy.text if accept and kind == "prompt" else None
