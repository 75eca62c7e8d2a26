"""Which variables of the host's environment the processes of servers, and the commands of agents, get."""

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


def without_keys_and_tokens(environ: Mapping[str, str], key_variable: str = "") -> dict[str, str]:
    """The variables for a command that an agent runs: without `key_variable` and every name that ends in `_API_KEY` or `_TOKEN`.

    They are left out even if `servers.pass_on` names them. `key_variable` is the variable that `model.api_key_env` names.
    """
    return {
        name: value
        for name, value in environ.items()
        if name != key_variable and not name.upper().endswith(("_API_KEY", "_TOKEN"))
    }


def _is_listed(name: str, names: Collection[str]) -> bool:
    return name in names or name.startswith("LC_")
