"""Runs the server. The keeper process of the first browser is started before the tools are imported, so that it starts during the import."""

import sys
from contextlib import suppress

from holdfast.sandbox.keeper.client import KeeperClient


def main(arguments: list[str]) -> None:
    """Serve the tools, or print their manifest."""
    is_served = "manifest" not in arguments
    starter = _start_keeper() if is_served else None
    from holdfast.builtin.stage.options import read_options
    from holdfast.builtin.stage.server import stage_toolbox, stage_toolbox_to_serve

    options, files = read_options(arguments)
    box = stage_toolbox_to_serve(options, files, starter) if is_served else stage_toolbox(options, files)
    box.main(arguments)


def _start_keeper() -> KeeperClient | None:
    """Start a keeper process, and return its client; None if there is no keeper process on this system.

    The keeper process exits with this process, even if it is never used.
    """
    if sys.platform != "linux":
        return None
    client = KeeperClient()
    with suppress(OSError):  # the first browser tries again, and reports the failure
        client.open()
    return client
