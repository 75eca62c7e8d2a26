"""The system call filter for container engines, as a JSON profile.

It has the same purpose as `bwrap/seccomp.py`, but denies less: it lists the families and types of sockets to deny, not
those to allow, and it denies calls by name, so it cannot deny calls of future kernels.
"""

import errno

from holdfast.sandbox.denied_syscalls import DENIED_IOCTLS, NEWER_CALLS, RESTRICTED_CALLS, SPECIAL_CASES

_ERRNO = "SCMP_ACT_ERRNO"
_SETUID_BITS = (0o4000, 0o2000)
_CREATE = (0x40, 0x400000)  # O_CREAT, O_TMPFILE
_NETLINK, _NETLINK_ROUTE = 16, 0
_NEW_LISTENER = 0x8
_MAP_HUGE, _MEMFD_HUGE, _SHM_HUGE = 0x40000, 0x4, 0o4000
_SET_LEASE, _UNKNOWN_COMMAND = 1024, 1039

Argument = dict[str, int | str]


def seccomp_profile() -> dict[str, object]:
    """A profile for `--security-opt seccomp=`. It allows every call that no rule denies."""
    return {
        "defaultAction": "SCMP_ACT_ALLOW",
        "syscalls": [
            {"names": sorted(RESTRICTED_CALLS - SPECIAL_CASES), "action": _ERRNO, "errnoRet": errno.EPERM},
            {
                "names": ["clone3", "openat2", "io_setup", *NEWER_CALLS],
                "action": _ERRNO,
                "errnoRet": errno.ENOSYS,
            },
            *(_deny_if(["clone"], _has_bit(0, 1 << bit)) for bit in (17, 25, 26, 27, 28, 29, 30)),
            # AF_UNIX and AF_VSOCK, which network namespaces do not confine. Bubblewrap's filter allows three families only.
            *(_deny_if(["socket"], _equals(0, family), error=errno.EAFNOSUPPORT) for family in (1, 40)),
            *(_deny_if(["socketpair"], _masked(1, 0xF, kind)) for kind in (2, 3)),
            _deny_if(["socketpair"], _differs(0, 1), error=errno.EAFNOSUPPORT),
            *(_deny_if(["ioctl"], _equals(1, request)) for request in DENIED_IOCTLS),
            _deny_if(["fcntl"], _equals(1, _SET_LEASE)),
            _deny_if(["mmap"], _has_bit(3, _MAP_HUGE), error=errno.ENOMEM),
            _deny_if(["memfd_create"], _has_bit(1, _MEMFD_HUGE)),
            _deny_if(["shmget"], _has_bit(2, _SHM_HUGE)),
            _deny_if(
                ["fcntl"], {"index": 1, "op": "SCMP_CMP_GE", "value": _UNKNOWN_COMMAND}, error=errno.EINVAL
            ),
            *(_deny_if(["chmod", "fchmod", "creat", "mknod"], _has_bit(1, bit)) for bit in _SETUID_BITS),
            *(_deny_if(["fchmodat", "fchmodat2", "mknodat"], _has_bit(2, bit)) for bit in _SETUID_BITS),
            *(
                _deny_if([name], _has_bit(index, create), _has_bit(index + 1, bit))
                for name, index in (("open", 1), ("openat", 2))
                for create in _CREATE
                for bit in _SETUID_BITS
            ),
            _deny_if(
                ["socket"], _equals(0, _NETLINK), _differs(2, _NETLINK_ROUTE), error=errno.EPROTONOSUPPORT
            ),
            _deny_if(["seccomp"], _has_bit(1, _NEW_LISTENER)),
        ],
    }


def _deny_if(names: list[str], *arguments: Argument, error: int = errno.EPERM) -> dict[str, object]:
    """Deny these calls if all conditions on their arguments are true."""
    return {"names": names, "action": _ERRNO, "errnoRet": error, "args": list(arguments)}


def _equals(index: int, value: int) -> Argument:
    """Compare only the low half of an argument: the kernel ignores the high half, so a program can set any bits there."""
    return _masked(index, 0xFFFFFFFF, value)


def _differs(index: int, value: int) -> Argument:
    return {"index": index, "op": "SCMP_CMP_NE", "value": value}


def _masked(index: int, mask: int, value: int) -> Argument:
    return {"index": index, "op": "SCMP_CMP_MASKED_EQ", "value": mask, "valueTwo": value}


def _has_bit(index: int, bit: int) -> Argument:
    return _masked(index, bit, bit)
