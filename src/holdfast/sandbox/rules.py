"""The filter of system calls in the words of container engines: the same denials as `seccomp.py`, by name."""

import errno

from holdfast.sandbox.syscalls import CONDITIONAL, NAMES

_ERRNO = "SCMP_ACT_ERRNO"
_SETUID_BITS = (0o4000, 0o2000)
_CREATE = 0x40

Argument = dict[str, int | str]


def profile() -> dict[str, object]:
    """A profile for `--security-opt seccomp=`: what is not denied is allowed."""
    return {
        "defaultAction": "SCMP_ACT_ALLOW",
        "syscalls": [
            {"names": sorted(NAMES - CONDITIONAL), "action": _ERRNO, "errnoRet": errno.EPERM},
            {"names": ["clone3", "openat2"], "action": _ERRNO, "errnoRet": errno.ENOSYS},
            *(_when(["clone"], _any(0, 1 << bit)) for bit in (17, 25, 26, 27, 28, 29, 30)),
            *(_when(["socket"], _is(0, family), number=errno.EAFNOSUPPORT) for family in (1, 40)),
            *(_when(["socketpair"], _masked(1, 0xF, kind)) for kind in (2, 3)),
            *(_when(["ioctl"], _is(1, request)) for request in (0x5412, 0x541C)),
            *(_when(["chmod", "fchmod", "creat", "mknod"], _any(1, bit)) for bit in _SETUID_BITS),
            *(_when(["fchmodat", "fchmodat2", "mknodat"], _any(2, bit)) for bit in _SETUID_BITS),
            *(_when(["open"], _any(1, _CREATE), _any(2, bit)) for bit in _SETUID_BITS),
            *(_when(["openat"], _any(2, _CREATE), _any(3, bit)) for bit in _SETUID_BITS),
        ],
    }


def _when(names: list[str], *arguments: Argument, number: int = errno.EPERM) -> dict[str, object]:
    """Deny these calls when all of this is true of their arguments."""
    return {"names": names, "action": _ERRNO, "errnoRet": number, "args": list(arguments)}


def _is(index: int, value: int) -> Argument:
    return {"index": index, "op": "SCMP_CMP_EQ", "value": value}


def _masked(index: int, mask: int, value: int) -> Argument:
    return {"index": index, "op": "SCMP_CMP_MASKED_EQ", "value": mask, "valueTwo": value}


def _any(index: int, bit: int) -> Argument:
    return _masked(index, bit, bit)
