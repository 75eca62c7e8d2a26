"""Open a folder by its real path: one that is, or passes through, a symbolic link is not opened at any moment."""

import errno
import os
import platform

from holdfast.model import codes
from holdfast.model.errors import HoldfastError

_OPENAT2 = 437  # the same number on every architecture
_NO_MAGICLINKS, _NO_SYMLINKS = 0x02, 0x04
_NOT_FOR_ROOTS = (
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
    """A descriptor of the folder itself, which no later change of the path can exchange."""
    _check_place(path)
    return open_real(path, folder=True)


def open_real(path: str, *, folder: bool = False) -> int:
    """A descriptor (`O_PATH`) of what is at this real path, on the host's word only."""
    flags = os.O_PATH | os.O_CLOEXEC | (os.O_DIRECTORY if folder else 0)
    try:
        return _openat2(path, flags)
    except OSError as error:
        raise _cannot(path, error) from None


def _check_place(path: str) -> None:
    if not path.startswith("/") or "\0" in path or os.path.normpath(path) != path:
        raise HoldfastError(
            codes.SPAWN_FAILED, f"{path!r} cannot be a root: give the folder's absolute, normal path."
        )
    if path == "/" or any(path == place or path.startswith(f"{place}/") for place in _NOT_FOR_ROOTS):
        raise HoldfastError(
            codes.SPAWN_FAILED,
            f"{path!r} cannot be a root: it belongs to the system. Choose a folder of your own.",
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


def _cannot(path: str, error: OSError) -> HoldfastError:
    if error.errno == errno.ELOOP:
        words = f"{path!r} is, or leads through, a symbolic link. Name the real folder{_real(path)}."
    elif error.errno == errno.ENOSYS:
        words = (
            f"{path!r} cannot be opened safely: Linux {platform.release()} has no openat2. Use 5.6 or newer."
        )
    else:
        words = (
            f"{path!r} cannot be opened: {(error.strerror or 'unknown error').lower()}. Name one that can."
        )
    return HoldfastError(codes.SPAWN_FAILED, words)


def _real(path: str) -> str:
    try:
        return f": {os.path.realpath(path)!r}"
    except OSError:  # it changes under our eyes
        return ""
