"""Which variables of the host's environment the processes of servers get."""

from collections.abc import Collection, Mapping

from holdfast.model.reserved_variables import is_holdfast_variable

_DIRECT_VARIABLES = frozenset(
    {"HOME", "LANG", "LANGUAGE", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER"}
    | {"XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"}
)
_CONFINED_VARIABLES = frozenset({"LANG", "LANGUAGE", "PATH", "TERM", "TZ"})


def direct_environment(environ: Mapping[str, str], extra: Collection[str] = ()) -> dict[str, str]:
    """The variables that a direct server starts with: the usual ones, and those named in `extra`."""
    return {
        name: value
        for name, value in environ.items()
        if _is_listed(name, _DIRECT_VARIABLES) or (name in extra and not is_holdfast_variable(name))
    }


def confined_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that a confined server starts with: few of the host's, and `/tmp` as its home."""
    kept = {name: value for name, value in environ.items() if _is_listed(name, _CONFINED_VARIABLES)}
    return {**kept, "HOME": "/tmp", "TMPDIR": "/tmp"}  # each sandbox has a /tmp of its own


def _is_listed(name: str, names: Collection[str]) -> bool:
    return name in names or name.startswith("LC_")
