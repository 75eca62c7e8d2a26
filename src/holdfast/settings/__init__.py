"""Settings: from the environment, else from the settings file, else the default."""

from holdfast.settings.declarations import DEFAULT_LINKS, LinkSettings, LogSettings, Origin, Settings
from holdfast.settings.loader import SETTINGS, Setting, SettingValue, default_file, load, setting_values

__all__ = [
    "DEFAULT_LINKS",
    "SETTINGS",
    "LinkSettings",
    "LogSettings",
    "Origin",
    "Setting",
    "SettingValue",
    "Settings",
    "default_file",
    "load",
    "setting_values",
]
