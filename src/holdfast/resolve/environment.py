"""What of the host's own environment a server may see: a short list, never the whole."""

from collections.abc import Collection, Mapping

from holdfast.model.variables import is_context_variable

_NAMES = frozenset(
    {"HOME", "LANG", "LANGUAGE", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER"}
    | {"XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"}
)
_CONFINED = frozenset({"LANG", "LANGUAGE", "PATH", "TERM", "TZ"})


def passed_on(environ: Mapping[str, str], extra: Collection[str] = ()) -> dict[str, str]:
    """The variables a direct server starts with; `extra` names those the host's settings add."""
    return {
        name: value
        for name, value in environ.items()
        if _is(name, _NAMES) or (name in extra and not is_context_variable(name))
    }


def confined(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables a confined server starts with: nothing that names the person or the home folder."""
    kept = {name: value for name, value in environ.items() if _is(name, _CONFINED)}
    return {**kept, "HOME": "/tmp", "TMPDIR": "/tmp"}  # the sandbox's own, private


def _is(name: str, names: Collection[str]) -> bool:
    return name in names or name.startswith("LC_")
