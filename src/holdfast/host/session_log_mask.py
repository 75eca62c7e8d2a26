"""Masks the secrets of one session in the log, while the session is open."""

from collections.abc import Callable

from holdfast.masking import log_mask
from holdfast.masking.log_mask import LogSecrets
from holdfast.masking.mask import Mask
from holdfast.model.worker_threads import WorkerThreads

_MAX_SECRETS_ON_LOOP = 5000
MASK_THREADS = WorkerThreads("log-mask", threads=2)


class SessionLogMask:
    """The secrets of one session in the log's mask."""

    def __init__(self, session_id: str) -> None:
        self._session_id = session_id
        self._added: list[LogSecrets] = []

    async def add(self, mask: Mask, question_mask: Mask) -> None:
        """Also mask these secrets, until `remove_all`."""
        masks = mask, question_mask
        if len(mask.secrets) > _MAX_SECRETS_ON_LOOP:
            secrets = await MASK_THREADS.run(LogSecrets.of, self._session_id, *masks)
        else:
            secrets = LogSecrets.of(self._session_id, *masks)
        await _change_log_mask(log_mask.add_secrets, secrets)
        self._added.append(secrets)

    async def remove_all(self) -> None:
        """Stop masking the session's secrets."""
        while self._added:
            await _change_log_mask(log_mask.remove_secrets, self._added.pop())


async def _change_log_mask(change: Callable[[LogSecrets], None], secrets: LogSecrets) -> None:
    """Add secrets to the log's mask, or remove them; in a thread if there are very many."""
    if len(secrets.in_all_records) > _MAX_SECRETS_ON_LOOP:
        await MASK_THREADS.run(change, secrets)
    else:
        change(secrets)
