"""The name of the user who runs a command, for approvals and the audit."""

import getpass
import os


def user_name() -> str:
    """The name of the current user, or the user's number if there is no name, as in some containers."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return f"uid {os.getuid()}"
