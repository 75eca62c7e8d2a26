"""Copies the owner, the permissions and the extended attributes of a file to the new file that replaces it."""

import errno
import os
import stat
from contextlib import suppress

_ACL_ATTRIBUTE = "system.posix_acl_access"
_NOT_COPIED = ("security.capability",)  # the kernel removes this attribute whenever a file is changed


def copy_attributes(old_fd: int, new_fd: int) -> None:
    """Give the new file the owner, group, permissions and extended attributes of the old file.

    Without root's rights, the new file stays this user's. The new file also keeps its group if this user is not in the old file's group.
    Raises `OSError` if root cannot give the new file to the old file's owner, or if the old file has an access-control
    list and its group cannot be copied: the list would then apply to another group.
    """
    old = os.fstat(old_fd)
    mode = stat.S_IMODE(old.st_mode) & 0o777
    has_same_group = _copy_owner(old, new_fd)
    if not has_same_group:
        mode &= 0o707 | (mode & 0o7) << 3  # the new group may do no more than all other users
    if hasattr(os, "listxattr"):  # Linux
        _copy_extended(old_fd, new_fd, has_same_group=has_same_group)
    os.fchmod(new_fd, mode)


def give_to_folder_owner(new_fd: int, folder: os.stat_result) -> None:
    """If root created the new file, give it to the owner of its folder."""
    if os.fstat(new_fd).st_uid == 0 and (folder.st_uid, folder.st_gid) != (0, 0):
        os.fchown(new_fd, folder.st_uid, folder.st_gid)


def _copy_owner(old: os.stat_result, new_fd: int) -> bool:
    """Copy the owner and the group, or only the group if this user may not change the owner. Return whether the group was copied."""
    new = os.fstat(new_fd)
    if (new.st_uid, new.st_gid) == (old.st_uid, old.st_gid):
        return True
    try:
        os.fchown(new_fd, old.st_uid, old.st_gid)
        return True
    except PermissionError:
        if new.st_uid == 0:
            raise
    # Only root can give a file to another user. The new file stays this user's; try to copy at least the group.
    try:
        os.fchown(new_fd, -1, old.st_gid)
        return True
    except PermissionError:
        return False


def _copy_extended(old_fd: int, new_fd: int, *, has_same_group: bool) -> None:
    names = os.listxattr(old_fd)
    if _ACL_ATTRIBUTE not in names and _ACL_ATTRIBUTE in os.listxattr(new_fd):
        os.removexattr(new_fd, _ACL_ATTRIBUTE)  # the new file got it from its folder
    for name in names:
        if name == _ACL_ATTRIBUTE:
            if not has_same_group:
                raise PermissionError(errno.EPERM, "its group and access-control list cannot be kept")
            os.setxattr(new_fd, name, os.getxattr(old_fd, name))
        elif name not in _NOT_COPIED:
            with suppress(OSError):
                os.setxattr(new_fd, name, os.getxattr(old_fd, name))
