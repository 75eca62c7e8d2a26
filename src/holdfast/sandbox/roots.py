"""Open a confined server's roots, and find the user it runs as."""

import errno
import os
import platform
import pwd

from holdfast.model import codes
from holdfast.model.errors import HoldfastError

NOBODY = 65534
_OPENAT2 = 437  # the same number on every architecture
_NO_MAGICLINKS, _NO_SYMLINKS = 0x02, 0x04
_SYSTEM_FOLDERS = (
    "/bin",
    "/boot",
    "/dev",
    "/etc",
    "/lib",
    "/lib32",
    "/lib64",
    "/proc",
    "/sbin",
    "/sys",
    "/usr",
)


def open_root(path: str) -> int:
    """Open a root. The descriptor stays on this folder even if the path is changed later."""
    _check_path(path)
    return open_no_symlinks(path, folder=True)


def open_no_symlinks(path: str, *, folder: bool = False) -> int:
    """Open a path with `O_PATH`. Fail if any part of it is a symbolic link."""
    flags = os.O_PATH | os.O_CLOEXEC | (os.O_DIRECTORY if folder else 0)
    try:
        return _openat2(path, flags)
    except OSError as error:
        raise _open_error(path, error) from None


def server_user(root_fd: int | None) -> tuple[int, int]:
    """The uid and gid that a confined server runs with.

    A host that is not root uses its own. A root host uses the owner of the server's first root, or nobody if the
    server has no roots. The root is given by descriptor, because its path may be swapped.
    """
    if os.geteuid() != 0:
        return os.geteuid(), os.getegid()
    return owner_ids(os.fstat(root_fd)) if root_fd is not None else (NOBODY, NOBODY)


def owner_ids(status: os.stat_result) -> tuple[int, int]:
    """The owner of the folder with this `status`, and the primary group of the owner's account.

    Never the folder's group: it may be `docker` or root's, and the server would get that group's access. An owner
    without an account gets the group of nobody.
    """
    try:
        return status.st_uid, pwd.getpwuid(status.st_uid).pw_gid
    except KeyError:
        return status.st_uid, NOBODY


def _check_path(path: str) -> None:
    if not path.startswith("/") or "\0" in path or os.path.normpath(path) != path:
        raise HoldfastError(
            codes.SPAWN_FAILED, f"{path!r} cannot be a root: use the folder's absolute, normalized path."
        )
    if path == "/" or any(path == folder or path.startswith(f"{folder}/") for folder in _SYSTEM_FOLDERS):
        raise HoldfastError(
            codes.SPAWN_FAILED,
            f"{path!r} cannot be a root: it belongs to the system. Use a folder of your own.",
        )


def _openat2(path: str, flags: int) -> int:
    import ctypes

    class OpenHow(ctypes.Structure):
        _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))

    how = OpenHow(flags, 0, _NO_SYMLINKS | _NO_MAGICLINKS)
    libc = ctypes.CDLL(None, use_errno=True)
    fd: int = libc.syscall(
        ctypes.c_long(_OPENAT2), ctypes.c_int(-100), ctypes.c_char_p(os.fsencode(path)),
        ctypes.byref(how), ctypes.c_size_t(ctypes.sizeof(how)),
    )  # fmt: skip
    if fd < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), path)
    return fd


def _open_error(path: str, error: OSError) -> HoldfastError:
    if error.errno == errno.ELOOP:
        text = f"{path!r} is, or contains, a symbolic link. Use the real path: {os.path.realpath(path)!r}."
    elif error.errno == errno.ENOSYS:
        text = f"{path!r} cannot be opened safely: Linux {platform.release()} has no openat2. Use Linux 5.6 or newer."
    else:
        reason = (error.strerror or "unknown error").lower()
        text = f"{path!r} cannot be opened: {reason}. Use another path."
    return HoldfastError(codes.SPAWN_FAILED, text)
