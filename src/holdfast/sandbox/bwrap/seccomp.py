"""The system call filter for bubblewrap: a seccomp program in classic BPF."""

import errno
import struct
from collections.abc import Iterator

from holdfast.sandbox.denied_syscalls import DENIED_IOCTLS, FIRST_COMMON_NUMBER, LAST_NUMBER, Architecture

# BPF operations: load a word of `seccomp_data`, compare, test bits, mask, return.
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _AND, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
_ALLOW, _DENY = 0x7FFF0000, 0x00050000

_NEW_NAMESPACE = 0x7E020000  # CLONE_NEWNS, CGROUP, UTS, IPC, USER, PID, NET
_SETUID_BITS = 0o6000
_CREATE = 0x40 | 0x400000  # O_CREAT, O_TMPFILE
# AF_INET, AF_INET6. Not AF_VSOCK, which reaches the hypervisor.
_FAMILIES = (2, 10)
_UNIX = 1  # AF_UNIX
_NETLINK, _NETLINK_ROUTE = 16, 0
_NEW_LISTENER = 0x8  # SECCOMP_FILTER_FLAG_NEW_LISTENER: another process decides about a program's calls
# SOCK_STREAM, SOCK_SEQPACKET. One end of a datagram pair could send to any Unix socket.
_PAIR_TYPES = (1, 5)
_SET_LEASE = 1024  # F_SETLEASE: other processes wait when they open the file
# MAP_HUGETLB, MFD_HUGETLB, SHM_HUGETLB
_MAP_HUGE, _MEMFD_HUGE, _SHM_HUGE = 0x40000, 0x4, 0o4000
_UNKNOWN_COMMAND = 1039  # the first fcntl command that was not examined; F_SETDELEG (1040) is like F_SETLEASE

Instruction = tuple[int, int, int, int]
"""An operation, how many instructions to skip if its test is true, how many if it is false, and the operand."""


def compile_filter(arch: Architecture, *, unix_sockets: bool = False) -> bytes:
    """The filter program. It denies calls of other architectures and unknown numbers with ENOSYS.

    It allows every known call that no rule denies.
    """
    rules = {**_RULES, "socket": _socket_rule((*_FAMILIES, _UNIX))} if unix_sockets else _RULES
    instructions = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 1, 0, arch.audit_arch),
        _deny(errno.ENOSYS),
        (_LOAD, 0, 0, _NUMBER),
    ]
    instructions += [(_AT_LEAST, 0, 1, LAST_NUMBER + 1), _deny(errno.ENOSYS)]
    instructions += [
        (_AT_LEAST, 0, 2, arch.last_specific_number + 1),
        (_AT_LEAST, 1, 0, FIRST_COMMON_NUMBER),
        _deny(errno.ENOSYS),
    ]
    for number in arch.denied:
        instructions += [(_EQUAL, 0, 1, number), _deny(errno.EPERM)]
    for name, rule in rules.items():
        if name in arch.numbers:
            body = list(rule)
            instructions += [(_EQUAL, 0, len(body), arch.numbers[name]), *body]
    instructions.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("<HBBI", *instruction) for instruction in instructions)


def _deny(error: int) -> Instruction:
    return (_RETURN, 0, 0, _DENY | error)


def _load_argument(index: int) -> Instruction:
    """Load the low half of an argument. The calls that are checked here ignore the high half."""
    return (_LOAD, 0, 0, _ARGUMENTS + 8 * index)


def _deny_bits(index: int, bits: int, error: int = errno.EPERM) -> tuple[Instruction, ...]:
    """A rule that denies a call if one of these bits is set in the argument, else allows it."""
    return (_load_argument(index), (_ANY_BIT, 0, 1, bits), _deny(error), (_RETURN, 0, 0, _ALLOW))


def _allow_only(
    index: int, values: tuple[int, ...], error: int, mask: int = 0xFFFFFFFF
) -> Iterator[Instruction]:
    """A rule that allows a call only with these values of the argument, and else denies it with `error`."""
    yield _load_argument(index)
    yield (_AND, 0, 0, mask)
    for position, value in enumerate(values):
        yield (_EQUAL, len(values) - position, 0, value)
    yield _deny(error)
    yield (_RETURN, 0, 0, _ALLOW)


def _deny_values(index: int, values: tuple[int, ...]) -> Iterator[Instruction]:
    """A rule that denies a call with one of these values of the argument, else allows it."""
    yield _load_argument(index)
    for value in values:
        yield (_EQUAL, 0, 1, value)
        yield _deny(errno.EPERM)
    yield (_RETURN, 0, 0, _ALLOW)


def _deny_create(flags: int, mode: int) -> tuple[Instruction, ...]:
    """A rule that denies creating a file with setuid bits. `flags` and `mode` are the indexes of these arguments."""
    return (
        _load_argument(flags),
        (_ANY_BIT, 1, 0, _CREATE),
        (_RETURN, 0, 0, _ALLOW),
        *_deny_bits(mode, _SETUID_BITS),
    )


def _socket_rule(families: tuple[int, ...]) -> tuple[Instruction, ...]:
    """A rule that allows sockets of these families, and netlink sockets only for routes."""
    return (
        _load_argument(0),
        (_EQUAL, 0, 4, _NETLINK),
        _load_argument(2),
        (_EQUAL, 1, 0, _NETLINK_ROUTE),
        _deny(errno.EPROTONOSUPPORT),
        (_RETURN, 0, 0, _ALLOW),
        *_allow_only(0, families, errno.EAFNOSUPPORT),
    )


_RULES: dict[str, tuple[Instruction, ...]] = {
    # The flags of these two are in memory, which a filter cannot read. With ENOSYS, programs fall back to `clone` and `openat`.
    "clone3": (_deny(errno.ENOSYS),),
    "openat2": (_deny(errno.ENOSYS),),
    # The kernel limits asynchronous requests for the whole machine (fs.aio-max-nr). With ENOSYS, programs use threads.
    "io_setup": (_deny(errno.ENOSYS),),
    # The machine reserves its huge pages for one program, such as a database, and no quota counts them. Without them, programs use normal pages.
    "mmap": _deny_bits(3, _MAP_HUGE, errno.ENOMEM),
    "memfd_create": _deny_bits(1, _MEMFD_HUGE),
    "shmget": _deny_bits(2, _SHM_HUGE),
    "clone": _deny_bits(0, _NEW_NAMESPACE),
    "socket": _socket_rule(_FAMILIES),
    "seccomp": _deny_bits(1, _NEW_LISTENER),
    # Another family with pairs is TIPC, which the rule for `socket` does not allow.
    "socketpair": (
        _load_argument(0),
        (_EQUAL, 1, 0, _UNIX),
        _deny(errno.EAFNOSUPPORT),
        *_allow_only(1, _PAIR_TYPES, errno.EPERM, mask=0xF),
    ),
    "ioctl": tuple(_deny_values(1, DENIED_IOCTLS)),
    "fcntl": (
        _load_argument(1),
        (_AT_LEAST, 0, 1, _UNKNOWN_COMMAND),
        _deny(errno.EINVAL),
        *_deny_values(1, (_SET_LEASE,)),
    ),
    "chmod": _deny_bits(1, _SETUID_BITS),
    "fchmod": _deny_bits(1, _SETUID_BITS),
    "fchmodat": _deny_bits(2, _SETUID_BITS),
    "fchmodat2": _deny_bits(2, _SETUID_BITS),
    "creat": _deny_bits(1, _SETUID_BITS),
    "mknod": _deny_bits(1, _SETUID_BITS),
    "mknodat": _deny_bits(2, _SETUID_BITS),
    "open": _deny_create(1, 2),
    "openat": _deny_create(2, 3),
}
