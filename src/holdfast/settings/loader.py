"""Loads the settings, each from the environment or else from the settings file."""

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import reduce
from pathlib import Path
from typing import Any, Literal, TypeVar, cast, get_args, get_origin

from msgspec import Struct, field

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.permission import Mode, parse_mode
from holdfast.model.tool_pattern import ToolPattern, parse_tool_patterns
from holdfast.model.trust import Trust, parse_trust
from holdfast.model.untrusted_file import SharedFileError, UnusableFileError, read_own_file
from holdfast.settings.declarations import Origin, Settings

T = TypeVar("T")
_MAX_FILE_BYTES = 1024 * 1024
_MAX_UNKNOWN_KEYS = 20
"""How many unknown keys are reported."""


class Setting(Struct, frozen=True, kw_only=True):
    """One setting, derived from its dataclass field."""

    key: str
    """Section and name, such as `links.call_seconds`."""
    declared: Field[Any]
    parse: Callable[[object], Any]
    """Converts a TOML value, or the text of the environment variable. Raises ValueError."""
    default: Callable[[], Any]

    @property
    def variable(self) -> str:
        """The environment variable for this setting."""
        return "HOLDFAST_" + self.key.upper().replace(".", "_")

    @property
    def help(self) -> str:
        """What it sets, with its limits if it is a number."""
        metadata = self.declared.metadata
        limits = f" From {metadata['min']} to {metadata['max']}." if "min" in metadata else ""
        return metadata["help"] + limits

    @property
    def documented_default(self) -> str:
        """Its default in Markdown, or a phrase for a default that depends on the machine."""
        return self.declared.metadata.get("default") or f"`{_display(self.default())}`".replace("``", "none")


class SettingValue(Struct, frozen=True, kw_only=True):
    """A setting with its current value, as shown to the user."""

    setting: Setting
    value: str | int
    origin: Origin


def load(path: Path | None = None, environ: Mapping[str, str] = os.environ) -> Settings:
    """Load and check all settings. If `path` or `HOLDFAST_CONFIG` names the file, it must exist."""
    file = path or settings_file(environ)
    must_exist = path is not None or bool(environ.get("HOLDFAST_CONFIG"))
    reader = _SettingReader(file=file, text=_read_text(file, must_exist=must_exist), environ=environ)
    settings = _build(Settings, reader, file=file, origins=reader.origins)
    if reader.problems:
        raise HoldfastError(codes.BAD_SETTINGS, "\n".join(reader.problems))
    return settings


def settings_file(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the path of the settings file: the value of `HOLDFAST_CONFIG`, else `config.toml` in the user's configuration folder."""
    if path := environ.get("HOLDFAST_CONFIG"):
        return Path(path).expanduser()
    from platformdirs import user_config_path

    return user_config_path("holdfast") / "config.toml"


def setting_values(settings: Settings) -> tuple[SettingValue, ...]:
    """Return every setting with its value and origin, in the order of the documentation. Secrets in the values are masked."""
    return tuple(
        SettingValue(
            setting=setting,
            value=_display(reduce(getattr, setting.key.split("."), settings)),
            origin=settings.origins[setting.key],
        )
        for setting in SETTINGS
    )


def _display(value: object) -> str | int:
    from holdfast.masking.likely_secrets import mask_listing  # most commands show no settings

    match value:
        case bool():
            return str(value).lower()
        case int():
            return value
        case tuple():
            return mask_listing(", ".join(map(str, cast(tuple[object, ...], value))))
        case _:
            return mask_listing(str(value))


def _declared_settings(kind: type[Any], prefix: str = "") -> Iterator[Setting]:
    for each in fields(kind):
        if is_dataclass(each.type):
            yield from _declared_settings(cast(type[Any], each.type), f"{prefix}{each.name}.")
        elif "help" in each.metadata:
            yield _make_setting(prefix + each.name, each)


def _make_setting(key: str, declared: Field[Any]) -> Setting:
    default: Callable[[], Any] = (
        (lambda: declared.default) if declared.default_factory is MISSING else declared.default_factory
    )
    return Setting(key=key, declared=declared, parse=_parser(declared), default=default)


def _build(kind: type[T], reader: "_SettingReader", prefix: str = "", **values: object) -> T:
    """Make a dataclass from the values of its settings. `values` are the values of the fields that are not settings."""
    for each in fields(cast(Any, kind)):
        key = prefix + each.name
        if is_dataclass(each.type):
            values[each.name] = _build(cast(type[Any], each.type), reader, f"{key}.")
        elif key in _BY_KEY:
            values[each.name] = reader.get(_BY_KEY[key])
    return kind(**values)


def _parser(declared: Field[Any]) -> Callable[[object], Any]:
    kind = declared.type
    if get_origin(kind) is Literal:
        return _choice_parser(get_args(kind))
    if kind is int:
        return _number_parser(declared.metadata["min"], declared.metadata["max"])
    return _PARSERS[kind]


def _choice_parser(words: tuple[str, ...]) -> Callable[[object], str]:
    def parse(raw: object) -> str:
        for word in words:
            if raw == word:
                return word
        raise ValueError(f"must be one of {', '.join(words)}")

    return parse


def _number_parser(minimum: int, maximum: int) -> Callable[[object], int]:
    def parse(raw: object) -> int:
        if isinstance(raw, str) and re.fullmatch(r"[0-9]{1,20}", raw):
            raw = int(raw)
        if isinstance(raw, bool) or not isinstance(raw, int) or not minimum <= raw <= maximum:
            raise ValueError(f"must be a whole number from {minimum} to {maximum}")
        return raw

    return parse


def _parse_path(raw: object) -> Path:
    if not isinstance(raw, str) or not raw or "\0" in raw:
        raise ValueError("must be a path")
    path = Path(raw).expanduser()
    if not path.is_absolute():
        raise ValueError("must be an absolute path, or begin with ~")
    return path


def _parse_boolean(raw: object) -> bool:
    if raw is True or raw == "true":
        return True
    if raw is False or raw == "false":
        return False
    raise ValueError("must be true or false")


def _parse_names(raw: object) -> tuple[str, ...]:
    names = _split_at_commas(raw)
    if not isinstance(names, list) or not all(isinstance(name, str) for name in cast(list[object], names)):
        raise ValueError("must be a list of names")
    return tuple(cast(list[str], names))


def _parse_tool_patterns(raw: object) -> tuple[ToolPattern, ...]:
    return parse_tool_patterns(_split_at_commas(raw))


def _split_at_commas(raw: object) -> object:
    return [part.strip() for part in raw.split(",") if part.strip()] if isinstance(raw, str) else raw


def _parse_word(raw: object) -> str:
    if not isinstance(raw, str) or raw.startswith("-") or any(letter.isspace() for letter in raw):
        raise ValueError("must be a single word")
    return raw


def _parse_trust(raw: object) -> Trust:
    try:
        return parse_trust(str(raw))
    except HoldfastError:
        raise ValueError("must be direct or sandboxed") from None


_PARSERS: dict[Any, Callable[[object], Any]] = {
    Path: _parse_path,
    bool: _parse_boolean,
    str: _parse_word,
    tuple[str, ...]: _parse_names,
    tuple[ToolPattern, ...]: _parse_tool_patterns,
    Mode: parse_mode,
    Trust: _parse_trust,
}

SETTINGS = tuple(_declared_settings(Settings))
_BY_KEY = {setting.key: setting for setting in SETTINGS}


def _read_text(file: Path, *, must_exist: bool) -> str:
    try:
        return read_own_file(file, limit=_MAX_FILE_BYTES).decode("utf-8")
    except FileNotFoundError:
        if not must_exist:
            return ""
        reason = "there is no such file. Create it, or set HOLDFAST_CONFIG to another file."
    except UnicodeDecodeError:
        reason = "it is not UTF-8. Save it as UTF-8."
    except SharedFileError as error:
        reason = str(error.strerror)
    except UnusableFileError as error:
        reason = f"{error.strerror}. It must be a regular file of at most {_MAX_FILE_BYTES} bytes."
    except OSError as error:
        reason = f"{error.strerror}."
    raise HoldfastError(codes.BAD_SETTINGS, f"Could not read settings from {str(file)!r}: {reason}")


class _SettingReader(Struct, kw_only=True):
    """Reads the value of each setting, and collects origins and problems."""

    file: Path
    text: str
    environ: Mapping[str, str]
    origins: dict[str, Origin] = field(default_factory=dict[str, Origin])
    problems: list[str] = field(default_factory=list[str])
    file_values: dict[str, object] = field(default_factory=dict[str, object])

    def __post_init__(self) -> None:
        if not self.text:
            return
        import tomllib

        try:
            self.file_values = dict(_flatten(tomllib.loads(self.text)))
        except tomllib.TOMLDecodeError as error:
            message = f"{self.file}: not valid TOML: {error}. Correct that line."
            raise HoldfastError(codes.BAD_SETTINGS, message) from None
        unknown = sorted(self.file_values.keys() - {setting.key for setting in SETTINGS})
        for key in unknown[:_MAX_UNKNOWN_KEYS]:
            self.problems.append(f"{self._location(key)}: {_describe_unknown_key(key)}")
        self.problems.sort()

    def get(self, setting: Setting) -> Any:
        """Return the value of a setting. If it is invalid, add to `problems` and return the default."""
        location, raw = "", None
        if value := self.environ.get(setting.variable):
            location, raw = setting.variable, value
            origin = Origin(kind="environment", where=setting.variable)
        elif setting.key in self.file_values:
            location, raw = f"{self._location(setting.key)}: {setting.key}", self.file_values[setting.key]
            origin = Origin(kind="file", where=str(self.file))
        else:
            origin = Origin(kind="default")
        self.origins[setting.key] = origin
        if origin.kind == "default":
            return setting.default()
        try:
            return setting.parse(raw)
        except ValueError as error:
            self.problems.append(f"{location} {error}, not {_format_raw(raw)}.")
            return setting.default()

    def _location(self, key: str) -> str:
        line = _find_line(key, self.text)
        return f"{self.file}, line {line}" if line else f"{self.file}"


def _format_raw(raw: object) -> str:
    return repr(raw).lower() if isinstance(raw, bool) else repr(raw)


def _flatten(table: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, object]]:
    """Yield the keys and values of nested tables, with keys joined by dots as in `Setting.key`."""
    for name, value in table.items():
        key = prefix + name
        if isinstance(value, dict) and any(setting.key.startswith(f"{key}.") for setting in SETTINGS):
            yield from _flatten(value, f"{key}.")  # pyright: ignore[reportUnknownArgumentType]
        else:
            yield key, value


def _describe_unknown_key(key: str) -> str:
    from difflib import get_close_matches

    keys = [setting.key for setting in SETTINGS]
    in_section = [known for known in keys if known.startswith(f"{key}.")]
    if in_section:
        return (
            f"{key!r} is a section. Write [{key}], and below it {in_section[0].removeprefix(f'{key}.')} = ..."
        )
    close = get_close_matches(key, keys, n=1)
    fix = f"Did you mean {close[0]!r}?" if close else f"The keys are: {', '.join(keys)}."
    return f"unknown key {key!r}. {fix}"


def _find_line(key: str, text: str) -> int | None:
    """Return the number of the line that sets a key, which tomllib does not report."""
    section = ""
    for number, line in enumerate(text.splitlines(), start=1):
        if header := re.match(r"\s*\[\s*([\w.\-]+)\s*\]", line):
            section = f"{header[1]}."
        elif (name := re.match(r"""\s*["']?([\w.\-]+)["']?\s*=""", line)) and (
            key == section + name[1] or key.startswith(f"{section}{name[1]}.")
        ):
            return number
        if section.rstrip(".") == key:
            return number
    return None
