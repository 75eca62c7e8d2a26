"""What the server reads from its environment and its command line."""

import os
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from holdfast.builtin.stage.files import SessionFiles
from holdfast.builtin.stage.launch_options import LaunchOptions
from holdfast.model.trust import Trust
from holdfast.resolve.protected_paths import paths_closed_to_tools

DENIED_PORTS = "HOLDFAST_STAGE_DENIED_PORTS"
"""The variable with the ports of this machine that no page may reach, separated by commas."""

STARTED_BY_CALL = "HOLDFAST_STAGE_STARTED_BY_CALL"
"""The variable that is set if the server is started by a tool call, so that its browser starts at once."""


def read_options(arguments: Sequence[str]) -> tuple[LaunchOptions, SessionFiles]:
    """Return how browsers are started, and which files the tools may use: those in the working directory."""
    from holdfast import settings

    loaded = settings.load()
    folder = os.path.realpath(Path.cwd())
    options = LaunchOptions(
        program=loaded.stage.browser,
        is_sandboxed=os.environ.get("HOLDFAST_TRUST_LEVEL") == Trust.SANDBOXED,
        hosts=loaded.stage.hosts,
        private_hosts=loaded.servers.reachable,
        data_dir=loaded.data_dir,
        denied_ports=(*_ports(os.environ.get(DENIED_PORTS, "")), *_own_port(arguments)),
        early="browser" if os.environ.get(STARTED_BY_CALL) else "sandbox",
    )
    files = SessionFiles(
        roots=() if folder == "/" else (folder,),
        protected=tuple(paths_closed_to_tools(loaded)),
        read_only=None if options.is_sandboxed else (),
    )
    return options, files


def _ports(text: str) -> list[int]:
    return [int(word) for word in text.split(",") if word.strip().isdigit()]


def _own_port(arguments: Sequence[str]) -> list[int]:
    """Return the port of the argument `--http HOST:PORT`."""
    for word, value in pairwise(arguments):
        if word == "--http":
            return _ports(value.rpartition(":")[2])
    return []
