"""How much memory, how many processes and files, and how large files a confined server may have."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """Resource limits of one confined server."""

    memory_bytes: int = 2 * 1024**3
    processes: int = 128
    file_bytes: int = 1024**3
    descriptors: int = 768
    """How many files each of its processes may have open. `sandbox/rlimits.py` lowers a number that is too high for this machine."""


DEFAULT_QUOTA = Quota()
