"""The name of the user who approves or revokes."""

import getpass
import os


def user_name() -> str:
    """The name of the user who approves. In a container, a user may have a number only."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return f"uid {os.getuid()}"
