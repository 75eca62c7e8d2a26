"""Which variables are hidden from a command that an agent runs in a shell."""

from collections.abc import Mapping


def without_keys_and_tokens(environ: Mapping[str, str], key_variable: str = "") -> dict[str, str]:
    """The variables for a command that an agent runs: without `key_variable` and every name that ends in `_API_KEY` or `_TOKEN`.

    They are left out even if `servers.pass_on` names them. `key_variable` is the variable that `model.api_key_env` names.
    """
    return {
        name: value
        for name, value in environ.items()
        if name != key_variable and not name.upper().endswith(("_API_KEY", "_TOKEN"))
    }
