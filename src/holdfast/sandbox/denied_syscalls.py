"""The system calls that confined servers may not use, or not with all arguments. Both backends build their filters from these lists."""

from collections.abc import Mapping
from dataclasses import dataclass

# The number on x86_64 and on aarch64; None if the call does not exist there.
_NUMBERS: Mapping[str, tuple[int | None, int | None]] = {
    # Ways around the filter or the mounts: io_uring, file handles, descriptors of other processes.
    "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
    "name_to_handle_at": (303, 264), "open_by_handle_at": (304, 265), "pidfd_getfd": (438, 438),
    # Other processes.
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "kcmp": (312, 272),
    "process_madvise": (440, 440), "move_pages": (279, 239), "migrate_pages": (256, 238), "perf_event_open": (298, 241),
    # Namespaces and mounts.
    "unshare": (272, 97), "setns": (308, 268), "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41),
    "chroot": (161, 51), "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430),
    "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433), "mount_setattr": (442, 442),
    "quotactl": (179, 60), "quotactl_fd": (443, 443), "swapon": (167, 224), "swapoff": (168, 225),
    # The kernel itself.
    "bpf": (321, 280), "userfaultfd": (323, 282), "keyctl": (250, 219), "add_key": (248, 217),
    "request_key": (249, 218), "kexec_load": (246, 104), "kexec_file_load": (320, 294), "init_module": (175, 105),
    "finit_module": (313, 273), "delete_module": (176, 106), "reboot": (169, 142), "syslog": (103, 116),
    "acct": (163, 89), "fanotify_init": (300, 262), "lookup_dcookie": (212, 18), "nfsservctl": (180, 42),
    "iopl": (172, None), "ioperm": (173, None), "modify_ldt": (154, None), "uselib": (134, None),
    "ustat": (136, None), "sysfs": (139, None), "vhangup": (153, 58), "_sysctl": (156, None),
    # Second names of files (hard links). What protects a file is a mount on one name, or compares paths: a server could make
    # another name early, and change the file by that name after a person has approved it.
    "link": (86, None), "linkat": (265, 37),
    # Landlock (access rules of the server's own), and secret memory, which no other process can read.
    "landlock_create_ruleset": (444, 444), "landlock_add_rule": (445, 445), "landlock_restrict_self": (446, 446),
    "memfd_secret": (447, 447),
    # The clock.
    "settimeofday": (164, 170), "clock_settime": (227, 112), "clock_adjtime": (305, 266), "adjtimex": (159, 171),
    # Calls with rules of their own: see `SPECIAL_CASES`.
    "clone": (56, 220), "clone3": (435, 435), "socket": (41, 198), "socketpair": (53, 199), "ioctl": (16, 29),
    "chmod": (90, None), "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452),
    "open": (2, None), "creat": (85, None), "openat": (257, 56), "openat2": (437, 437),
    "mknod": (133, None), "mknodat": (259, 33), "seccomp": (317, 277), "fcntl": (72, 25), "io_setup": (206, 0),
    "mmap": (9, 222), "memfd_create": (319, 279), "shmget": (29, 194),
}  # fmt: skip
SPECIAL_CASES = frozenset(
    {"clone", "clone3", "socket", "socketpair", "ioctl", "chmod", "fchmod", "fchmodat", "fchmodat2", "open"}
    | {"creat", "openat", "openat2", "mknod", "mknodat", "seccomp", "fcntl", "io_setup"}
    | {"mmap", "memfd_create", "shmget"}
)
"""Calls that are denied only with some arguments, or that are always denied with ENOSYS (`clone3`, `openat2`, `io_setup`).

The rules are in `bwrap/seccomp.py` and `container/seccomp.py`.
"""
RESTRICTED_CALLS = frozenset(_NUMBERS)
"""The names of all calls above: those that are always denied, and the special cases."""
DENIED_IOCTLS = (
    *(0x5412, 0x541C),  # TIOCSTI, TIOCLINUX: they insert input into a terminal
    # BTRFS_IOC_SNAP_CREATE and SUBVOL_CREATE, with their second versions. Earlier kernels let the owner of any folder take a
    # snapshot of the whole subvolume that contains it, and so read what is outside of a root.
    *(0x50009401, 0x50009417, 0x5000940E, 0x50009418),
)
"""The `ioctl` requests that are denied."""
FIRST_COMMON_NUMBER = 424
"""From this number on, a call has the same number on all architectures."""
NEWER_CALLS = (
    *("statmount", "listmount", "lsm_get_self_attr", "lsm_set_self_attr", "lsm_list_modules", "mseal"),
    *("setxattrat", "getxattrat", "listxattrat", "removexattrat"),
    *("open_tree_attr", "file_getattr", "file_setattr"),
)
"""The names of calls with numbers above `LAST_NUMBER`. A container's filter denies calls only by name."""
LAST_NUMBER = 456
"""The highest number that was examined. Bubblewrap's filter denies all numbers above it: calls of future kernels, and x32."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """A processor architecture: its `AUDIT_ARCH_*` constant, and its system call numbers."""

    audit_arch: int
    numbers: Mapping[str, int]
    last_specific_number: int
    """The highest number in use below `FIRST_COMMON_NUMBER`."""

    @property
    def denied(self) -> tuple[int, ...]:
        """The numbers of the calls that are always denied with EPERM."""
        return tuple(number for name, number in self.numbers.items() if name not in SPECIAL_CASES)


def find_architecture(machine: str) -> Architecture | None:
    """The architecture with this `platform.machine()` name; None if it is not supported."""
    return _ARCHITECTURES.get(machine)


def _numbers_in_column(index: int) -> dict[str, int]:
    return {name: number for name, row in _NUMBERS.items() if (number := row[index]) is not None}


_ARCHITECTURES = {
    "x86_64": Architecture(audit_arch=0xC000003E, numbers=_numbers_in_column(0), last_specific_number=334),
    "aarch64": Architecture(audit_arch=0xC00000B7, numbers=_numbers_in_column(1), last_specific_number=294),
}
