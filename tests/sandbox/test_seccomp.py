"""The system call filters: bubblewrap's, run by a small BPF interpreter on both architectures, and the container's."""

import errno
import platform
import struct

import pytest

from holdfast.sandbox.bwrap.seccomp import compile_filter
from holdfast.sandbox.container.seccomp import seccomp_profile
from holdfast.sandbox.denied_syscalls import RESTRICTED_CALLS, Architecture, find_architecture

ALLOWED = "allowed"
ARCHITECTURES = ["x86_64", "aarch64"]


def architecture(machine: str) -> Architecture:
    found = find_architecture(machine)
    assert found is not None
    return found


def run_filter(arch: Architecture, number: int, *arguments: int, audit: int | None = None) -> str:
    """The filter's verdict on one call, interpreting classic BPF as the kernel does."""
    words = [*arguments, *[0] * (6 - len(arguments))]
    data = struct.pack("<IIQ6Q", number, arch.audit_arch if audit is None else audit, 0, *words)
    steps = [struct.unpack("<HBBI", step) for step in _split(compile_filter(arch))]
    position = value = 0
    while True:
        code, yes, no, k = steps[position]
        position += 1
        match code:
            case 0x20:
                (value,) = struct.unpack_from("<I", data, k)
            case 0x15:
                position += yes if value == k else no
            case 0x35:
                position += yes if value >= k else no
            case 0x45:
                position += yes if value & k else no
            case 0x54:
                value &= k
            case 0x06:
                return ALLOWED if k == 0x7FFF0000 else errno.errorcode[k & 0xFFFF]
            case _:
                raise AssertionError(f"unknown step {code:#x}")


def _split(program: bytes) -> list[bytes]:
    return [program[at : at + 8] for at in range(0, len(program), 8)]


@pytest.mark.parametrize("machine", ARCHITECTURES)
def test_common_calls_are_allowed_and_listed_ones_denied(machine: str) -> None:
    arch = architecture(machine)
    needed = {"x86_64": (0, 1, 9, 59, 231, 57), "aarch64": (63, 64, 222, 221, 94)}[machine]

    assert {run_filter(arch, number) for number in needed} == {ALLOWED}
    assert {run_filter(arch, number) for number in arch.denied} == {"EPERM"}
    assert len(arch.denied) > 50


@pytest.mark.parametrize("machine", ARCHITECTURES)
def test_landlock_and_secret_memory_are_denied(machine: str) -> None:
    arch = architecture(machine)
    landlock, memfd_secret, memfd_create = (444, 445, 446), 447, {"x86_64": 319, "aarch64": 279}[machine]

    assert {run_filter(arch, number) for number in (*landlock, memfd_secret)} == {"EPERM"}
    assert run_filter(arch, memfd_create) == ALLOWED


@pytest.mark.parametrize("machine", ARCHITECTURES)
@pytest.mark.parametrize(
    ("call", "arguments", "expected"),
    [
        ("socket", (2, 1), ALLOWED),
        ("socket", (10, 2), ALLOWED),
        ("socket", (16, 3, 0), ALLOWED),
        ("socket", (16, 3, 15), "EPROTONOSUPPORT"),
        ("socket", (16, 3, 12), "EPROTONOSUPPORT"),
        ("seccomp", (1, 0), ALLOWED),
        ("seccomp", (1, 8), "EPERM"),
        ("socket", (1, 1), "EAFNOSUPPORT"),
        ("socket", (40, 1), "EAFNOSUPPORT"),
        ("socket", (17, 3), "EAFNOSUPPORT"),
        ("socket", (1 | 1 << 32, 1), "EAFNOSUPPORT"),
        ("socketpair", (1, 1 | 0o2000000), ALLOWED),
        ("socketpair", (1, 5), ALLOWED),
        ("socketpair", (1, 2 | 0o4000), "EPERM"),
        ("socketpair", (1, 3), "EPERM"),
        ("socketpair", (30, 1), "EAFNOSUPPORT"),  # AF_TIPC
        ("clone", (17,), ALLOWED),
        ("clone", (0x3D0F00,), ALLOWED),
        ("clone", (0x10000000 | 17,), "EPERM"),
        ("clone", (0x20000,), "EPERM"),
        ("clone3", (), "ENOSYS"),
        ("openat2", (), "ENOSYS"),
        ("io_setup", (16,), "ENOSYS"),
        ("mmap", (0, 4096, 3, 0x22), ALLOWED),
        ("mmap", (0, 4096, 3, 0x40022), "ENOMEM"),  # MAP_HUGETLB
        ("memfd_create", (0, 1), ALLOWED),
        ("memfd_create", (0, 1 | 4), "EPERM"),
        ("shmget", (0, 4096, 0o1600), ALLOWED),
        ("shmget", (0, 4096, 0o5600), "EPERM"),
        ("ioctl", (0, 0x5401), ALLOWED),
        ("ioctl", (0, 0x5412), "EPERM"),
        ("ioctl", (0, 0x541C), "EPERM"),
        ("ioctl", (0, 0x5412 | 1 << 32), "EPERM"),
        ("ioctl", (0, 0x50009401), "EPERM"),  # BTRFS_IOC_SNAP_CREATE
        ("ioctl", (0, 0x50009418), "EPERM"),  # BTRFS_IOC_SUBVOL_CREATE_V2
        ("ioctl", (0, 0x40049409), ALLOWED),  # FICLONE
        ("fcntl", (0, 1030), ALLOWED),  # F_DUPFD_CLOEXEC
        ("fcntl", (0, 1038), ALLOWED),  # F_SET_FILE_RW_HINT
        ("fcntl", (0, 1024), "EPERM"),  # F_SETLEASE
        ("fcntl", (0, 1040), "EINVAL"),  # F_SETDELEG
        ("fcntl", (0, 1040 | 1 << 32), "EINVAL"),
        ("fchmodat", (0, 0, 0o755), ALLOWED),
        ("fchmodat", (0, 0, 0o4755), "EPERM"),
        ("fchmod", (0, 0o2755), "EPERM"),
        ("openat", (0, 0, 0x41, 0o644), ALLOWED),
        ("openat", (0, 0, 0x41, 0o4755), "EPERM"),
        ("openat", (0, 0, 0, 0o4755), ALLOWED),
        ("openat", (0, 0, 0x410002, 0o600), ALLOWED),
        ("openat", (0, 0, 0x410002, 0o4755), "EPERM"),
        ("mknodat", (0, 0, 0o104755), "EPERM"),
    ],
)
def test_some_calls_are_denied_by_their_arguments(
    machine: str, call: str, arguments: tuple[int, ...], expected: str
) -> None:
    arch = architecture(machine)

    assert run_filter(arch, arch.numbers[call], *arguments) == expected


def test_calls_of_other_architectures_and_x32_get_enosys() -> None:
    arch = architecture("x86_64")

    assert (run_filter(arch, 1, audit=0x40000003), run_filter(arch, 0x40000000 | 1)) == ("ENOSYS", "ENOSYS")


@pytest.mark.parametrize("machine", ARCHITECTURES)
def test_unknown_numbers_get_enosys(machine: str) -> None:
    arch = architecture(machine)
    unknown = (arch.last_specific_number + 1, 400, 423, 457, 463, 467, 469, 500, 5000, 0x40000000, 0xFFFFFFFF)

    assert {run_filter(arch, number) for number in unknown} == {"ENOSYS"}
    assert {run_filter(arch, number) for number in (424, 434, 449, 456)} == {ALLOWED}


def test_unknown_machine_has_no_filter() -> None:
    assert (find_architecture("m68k"), find_architecture(platform.machine()) is None) == (None, False)


def test_container_profile_names_every_restricted_call() -> None:
    text = repr(seccomp_profile())

    assert [name for name in sorted(RESTRICTED_CALLS) if f"'{name}'" not in text] == []
