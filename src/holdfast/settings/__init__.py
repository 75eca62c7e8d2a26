"""The settings. Each comes from the environment, else from the settings file, else it has its default."""

from holdfast.settings.declarations import (
    DEFAULT_LINKS,
    LinkSettings,
    LogSettings,
    MaxModeSettings,
    Origin,
    PermissionSettings,
    Settings,
)
from holdfast.settings.loader import SETTINGS, Setting, SettingValue, default_file, load, setting_values

__all__ = [
    "DEFAULT_LINKS",
    "SETTINGS",
    "LinkSettings",
    "LogSettings",
    "MaxModeSettings",
    "Origin",
    "PermissionSettings",
    "Setting",
    "SettingValue",
    "Settings",
    "default_file",
    "load",
    "setting_values",
]
