"""Recognise variables that make Python, Node or the dynamic loader load code from the working folder: `NODE_OPTIONS=--require ./x`."""

import re

from holdfast.model.reserved_variables import loader_variable_reason

# The dynamic loader also separates paths by blanks (`LD_PRELOAD`) and semicolons (`LD_LIBRARY_PATH`).
_LOADER_SEPARATOR, _SEPARATOR = re.compile(r"[:;\s]"), re.compile(":")
_PREFIXES = ("PYTHON", "NODE_", "OPENSSL_")
_NODE_OPTIONS = "NODE_OPTIONS"
# Values of switches. `ignore` and the like are for PYTHONWARNINGS.
_SWITCH = re.compile(
    r"\d*|true|false|yes|no|on|off|default|ignore|error|always|once|production|development|utf-?8",
    re.IGNORECASE,
)
# Options of Node that load no code. They have their value after `=`.
_PLAIN_OPTION = re.compile(
    r"--(?:max-|no-|trace-|stack-|tls-|dns-|unhandled-|use-|enable-source-maps|abort-|disable-|throw-|pending-|network-)[\w-]*(?:=.*)?"
)
# Options with a value that is a path or the name of a package. A name is looked up from the working folder.
_LOADING_OPTION = re.compile(r"-r|--(?:require|import|loader|experimental-loader|env-file|openssl-config)")


def loads_relative_code(name: str, value: str) -> bool:
    """Whether the variable may name code by a relative path, or by an empty entry of a list, which stands for the working folder."""
    upper = name.upper()
    if upper == _NODE_OPTIONS:
        return not all(map(_is_harmless_option, value.split()))
    if not (upper.startswith(_PREFIXES) or loader_variable_reason(upper)) or _SWITCH.fullmatch(value):
        return False
    separator = _LOADER_SEPARATOR if upper.startswith("LD_") else _SEPARATOR
    return not all(part.startswith("/") for part in separator.split(value))


def _is_harmless_option(word: str) -> bool:
    option, equals, value = word.partition("=")
    if _LOADING_OPTION.fullmatch(option):
        return not equals or _is_absolute(value)  # otherwise the next word is the path
    return _is_absolute(word) or _PLAIN_OPTION.fullmatch(word) is not None


def _is_absolute(word: str) -> bool:
    return word.startswith(("/", "file:///"))
