"""The filter, run by a small interpreter of our own: what it answers to which call, on both architectures."""

import errno
import platform
import struct

import pytest

from holdfast.sandbox import rules, seccomp
from holdfast.sandbox.syscalls import NAMES, Architecture, architecture

ALLOWED = "allowed"
ARCHITECTURES = ["x86_64", "aarch64"]


def known(machine: str) -> Architecture:
    found = architecture(machine)
    assert found is not None
    return found


def answer(arch: Architecture, number: int, *arguments: int, audit: int | None = None) -> str:
    """What the kernel would answer: each step of classic BPF, as its manual says."""
    words = [*arguments, *[0] * (6 - len(arguments))]
    data = struct.pack("<IIQ6Q", number, arch.audit if audit is None else audit, 0, *words)
    steps = [struct.unpack("<HBBI", step) for step in _pieces(seccomp.program(arch))]
    place = value = 0
    while True:
        code, yes, no, k = steps[place]
        place += 1
        match code:
            case 0x20:
                (value,) = struct.unpack_from("<I", data, k)
            case 0x15:
                place += yes if value == k else no
            case 0x35:
                place += yes if value >= k else no
            case 0x45:
                place += yes if value & k else no
            case 0x54:
                value &= k
            case 0x06:
                return ALLOWED if k == 0x7FFF0000 else errno.errorcode[k & 0xFFFF]
            case _:
                raise AssertionError(f"unknown step {code:#x}")


def _pieces(program: bytes) -> list[bytes]:
    return [program[at : at + 8] for at in range(0, len(program), 8)]


@pytest.mark.parametrize("machine", ARCHITECTURES)
def test_what_a_server_needs_is_allowed_and_the_rest_of_the_list_is_denied(machine: str) -> None:
    arch = known(machine)
    needed = {"x86_64": (0, 1, 9, 59, 231, 57), "aarch64": (63, 64, 222, 221, 94)}[machine]

    assert {answer(arch, number) for number in needed} == {ALLOWED}
    assert {answer(arch, number) for number in arch.denied} == {"EPERM"}
    assert len(arch.denied) > 50


@pytest.mark.parametrize("machine", ARCHITECTURES)
@pytest.mark.parametrize(
    ("call", "arguments", "expected"),
    [
        ("socket", (2, 1), ALLOWED),
        ("socket", (10, 2), ALLOWED),
        ("socket", (16, 3), ALLOWED),
        ("socket", (1, 1), "EAFNOSUPPORT"),
        ("socket", (40, 1), "EAFNOSUPPORT"),
        ("socket", (17, 3), "EAFNOSUPPORT"),
        ("socket", (1 | 1 << 32, 1), "EAFNOSUPPORT"),
        ("socketpair", (1, 1 | 0o2000000), ALLOWED),
        ("socketpair", (1, 5), ALLOWED),
        ("socketpair", (1, 2 | 0o4000), "EPERM"),
        ("socketpair", (1, 3), "EPERM"),
        ("clone", (17,), ALLOWED),
        ("clone", (0x3D0F00,), ALLOWED),
        ("clone", (0x10000000 | 17,), "EPERM"),
        ("clone", (0x20000,), "EPERM"),
        ("clone3", (), "ENOSYS"),
        ("openat2", (), "ENOSYS"),
        ("ioctl", (0, 0x5401), ALLOWED),
        ("ioctl", (0, 0x5412), "EPERM"),
        ("ioctl", (0, 0x541C), "EPERM"),
        ("ioctl", (0, 0x5412 | 1 << 32), "EPERM"),
        ("fchmodat", (0, 0, 0o755), ALLOWED),
        ("fchmodat", (0, 0, 0o4755), "EPERM"),
        ("fchmod", (0, 0o2755), "EPERM"),
        ("openat", (0, 0, 0x41, 0o644), ALLOWED),
        ("openat", (0, 0, 0x41, 0o4755), "EPERM"),
        ("openat", (0, 0, 0, 0o4755), ALLOWED),
        ("mknodat", (0, 0, 0o104755), "EPERM"),
    ],
)
def test_some_calls_depend_on_their_arguments(
    machine: str, call: str, arguments: tuple[int, ...], expected: str
) -> None:
    arch = known(machine)

    assert answer(arch, arch.numbers[call], *arguments) == expected


def test_other_architectures_and_the_second_set_of_numbers_do_not_exist() -> None:
    arch = known("x86_64")

    assert (answer(arch, 1, audit=0x40000003), answer(arch, 0x40000000 | 1)) == ("ENOSYS", "ENOSYS")


def test_an_unknown_machine_has_no_filter() -> None:
    assert (architecture("m68k"), architecture(platform.machine()) is None) == (None, False)


def test_every_name_that_is_denied_is_denied_in_the_words_of_container_engines() -> None:
    text = repr(rules.profile())

    assert [name for name in sorted(NAMES) if f"'{name}'" not in text] == []
