"""The user and the group that a confined server runs with."""

import os
import pwd

from holdfast.sandbox.opened_path import OpenedPath

NOBODY = 65534


def server_user(root: OpenedPath | None) -> tuple[int, int]:
    """The uid and gid that a confined server runs with.

    A host that runs as uid 0 uses the owner of the server's first root, or the user `nobody` if the server has no roots. Any other
    host uses its own ids.
    """
    if os.geteuid() != 0:
        return os.geteuid(), os.getegid()
    return owner_ids(root.status) if root is not None else (NOBODY, NOBODY)


def owner_ids(status: os.stat_result) -> tuple[int, int]:
    """The owner of the folder with this `status`, and the primary group of the owner's account.

    Never the folder's group: it may be `docker` or root's, and the server would get that group's access. An owner
    without an account gets the group of the user `nobody`.
    """
    try:
        return status.st_uid, pwd.getpwuid(status.st_uid).pw_gid
    except KeyError:
        return status.st_uid, NOBODY
