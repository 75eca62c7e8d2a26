"""Keep the owner, the rights and the extended attributes of a file that is replaced by a new one."""

import errno
import os
import stat
from contextlib import suppress

_ACCESS_LIST = "system.posix_acl_access"
_NOT_COPIED = ("security.capability",)  # a change of the file takes its capabilities away


def copy_attributes(replaced: int, descriptor: int) -> None:
    """Give the new file the owner, group, rights and extended attributes of the replaced one.

    Raise `OSError` if that would give root the file of a user, or a group rights that it did not have.
    """
    status = os.fstat(replaced)
    mode = stat.S_IMODE(status.st_mode) & 0o777
    has_same_group = _copy_owner(status, descriptor)
    if not has_same_group:
        mode &= 0o707 | (mode & 0o7) << 3  # the new group gets no more rights than everyone had
    if hasattr(os, "listxattr"):  # Linux
        _copy_extended(replaced, descriptor, with_access_list=has_same_group)
    os.fchmod(descriptor, mode)


def keep_owner(descriptor: int, folder: os.stat_result) -> None:
    """Give a new file that root creates to the owner of its folder."""
    if os.fstat(descriptor).st_uid == 0 and (folder.st_uid, folder.st_gid) != (0, 0):
        os.fchown(descriptor, folder.st_uid, folder.st_gid)


def _copy_owner(status: os.stat_result, descriptor: int) -> bool:
    """Copy owner and group if possible. Whether the group is the same."""
    new = os.fstat(descriptor)
    if (new.st_uid, new.st_gid) == (status.st_uid, status.st_gid):
        return True
    try:
        os.fchown(descriptor, status.st_uid, status.st_gid)
        return True
    except PermissionError:
        if new.st_uid == 0:
            raise
    # Another user's file that this user may write becomes this user's, and stays the group's if possible.
    try:
        os.fchown(descriptor, -1, status.st_gid)
        return True
    except PermissionError:
        return False


def _copy_extended(replaced: int, descriptor: int, *, with_access_list: bool) -> None:
    names = os.listxattr(replaced)
    if _ACCESS_LIST not in names and _ACCESS_LIST in os.listxattr(descriptor):
        os.removexattr(descriptor, _ACCESS_LIST)  # the folder's default
    for name in names:
        if name == _ACCESS_LIST:
            if not with_access_list:
                raise PermissionError(errno.EPERM, "its group and access-control list cannot be kept")
            os.setxattr(descriptor, name, os.getxattr(replaced, name))
        elif name not in _NOT_COPIED:
            with suppress(OSError):
                os.setxattr(descriptor, name, os.getxattr(replaced, name))
