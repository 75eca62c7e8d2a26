"""Which variables are hidden from a command that an agent runs in a shell."""

from collections.abc import Mapping


def without_keys_and_tokens(environ: Mapping[str, str], key_variable: str = "") -> dict[str, str]:
    """Return the variables for a command that an agent runs: all but `key_variable` and those whose names end in `_API_KEY` or `_TOKEN`.

    `servers.pass_on` makes no exception. `key_variable` is the variable that `model.api_key_env` names.
    """
    return {
        name: value
        for name, value in environ.items()
        if name != key_variable and not name.upper().endswith(("_API_KEY", "_TOKEN"))
    }
