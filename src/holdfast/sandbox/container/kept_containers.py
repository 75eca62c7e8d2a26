"""Containers that are kept for the length of a stored session (`sandbox.keep`), one for each of its confined servers.

When a server is started again, its container still has the files that the server wrote there. Processes are not kept: they
end with the server. A kept container is used again only if a new one would get the same image, mounts, limits and
environment. Otherwise a new one replaces it, so a server never keeps access that was taken from it.
"""

import hashlib
import json
import logging
import os
import re
from collections.abc import Iterable
from pathlib import Path

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.process import KeptFor
from holdfast.sandbox.container.engine import Engine

log = logging.getLogger(__name__)

_SESSION_LABEL = "dev.holdfast.session"
_DATA_LABEL = "dev.holdfast.data"
_CONFIG_LABEL = "dev.holdfast.config"
_INSPECT_FORMAT = f'{{{{.Image}}}} {{{{.State.Running}}}} {{{{index .Config.Labels "{_CONFIG_LABEL}"}}}}'


class KeptContainers:
    """The kept containers of the sessions in one data folder."""

    def __init__(self, engine: Engine, data_folder: Path) -> None:
        self._engine = engine
        self._data = hashlib.sha256(os.path.realpath(data_folder).encode()).hexdigest()[:32]

    def labels(self, kept_for: KeptFor, config: str) -> tuple[str, ...]:
        """The engine's arguments that label a new container, so that it can be found later."""
        labels = {_SESSION_LABEL: kept_for.session_id, _DATA_LABEL: self._data, _CONFIG_LABEL: config}
        return tuple(word for name, value in labels.items() for word in ("--label", f"{name}={value}"))

    def prepare_reuse(self, name: str, image: str, config: str) -> bool:
        """Stop the container with this name if it still runs. Return False if a new container must be created. Blocks.

        A container with this name, but another image or configuration, is removed.
        """
        try:
            code, state = self._engine.run_blocking("container", "inspect", "--format", _INSPECT_FORMAT, name)
            if code != 0:
                # There is no such container. If the engine is wrong, it refuses to create another one with this name.
                return False
            used_image, is_running, used_config = (*state.split(), "", "", "")[:3]
            if (used_image, used_config) != (self._image_id(image), config):
                log.info(
                    "a kept container is replaced: its image, access or variables have changed",
                    extra={"container": name},
                )
                self._run("rm", "--force", name)
                return False
            # The host that started the container was killed. No other host uses it, because only one at a time has the session open.
            if is_running != "false":
                self._run("stop", "-t", "0", name)
        except TimeoutError as error:
            raise HoldfastError(codes.NO_SANDBOX, f"{error}.") from None
        return True

    async def remove(self, session_ids: Iterable[str]) -> str:
        """Remove the containers of sessions that were deleted. Return the reasons why some remain; empty if none do."""
        problems: dict[str, None] = {}
        for session_id in session_ids:
            try:
                problems[await self._remove(session_id)] = None
            except TimeoutError as error:
                problems[str(error)] = None
            except OSError as error:
                problems[f"{self._engine.name} could not be run: {error.strerror}"] = None
        return "; ".join(filter(None, problems))

    async def sessions(self) -> set[str]:
        """The ids of the sessions that have kept containers. Raises TimeoutError and OSError."""
        code, output = await self._engine.run(
            *("ps", "--all", "--filter", f"label={_DATA_LABEL}={self._data}", "--format", "{{.Names}}")
        )
        return set(re.findall(r"^holdfast-(sess_\w+)-", output, re.MULTILINE)) if code == 0 else set()

    async def _remove(self, session_id: str) -> str:
        filters = (f"label={_SESSION_LABEL}={session_id}", f"label={_DATA_LABEL}={self._data}")
        code, output = await self._engine.run(
            *(
                "ps",
                "--all",
                *(word for each in filters for word in ("--filter", each)),
                "--format",
                "{{.ID}}",
            )
        )
        if code == 0 and output:
            code, output = await self._engine.run("rm", "--force", *output.split())
        return output if code != 0 else ""

    def _image_id(self, image: str) -> str:
        return self._run("image", "inspect", "--format", "{{.Id}}", image)

    def _run(self, *arguments: str) -> str:
        code, output = self._engine.run_blocking(*arguments)
        if code != 0:
            raise HoldfastError(
                codes.NO_SANDBOX, f"{self._engine.name} {arguments[0]} failed for a kept container: {output}"
            )
        return output


def find_kept_containers(engine: str, data_folder: Path) -> KeptContainers | None:
    """The kept containers of this engine, even if `sandbox.keep` is not set now. None if there is no such engine."""
    candidate = Engine(engine)
    return KeptContainers(candidate, data_folder) if engine and candidate.find() else None


def kept_name(kept_for: KeptFor) -> str:
    """The name of the container of one server of a session."""
    return f"holdfast-{kept_for.session_id}-{hashlib.sha256(kept_for.server.encode()).hexdigest()[:16]}"


def config_digest(arguments: tuple[str, ...], *contents: bytes) -> str:
    """A digest of everything that decides what a container may access."""
    digest = hashlib.sha256(json.dumps(arguments).encode())
    for content in contents:
        digest.update(hashlib.sha256(content).digest())
    return digest.hexdigest()
