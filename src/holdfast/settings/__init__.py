"""The settings: their declarations, and the values from the environment and the settings file."""

from holdfast.settings.declarations import (
    DEFAULT_LINK_SETTINGS,
    AgentSettings,
    LinkSettings,
    LogSettings,
    MaxModeSettings,
    ModelSettings,
    Origin,
    PermissionSettings,
    Settings,
)
from holdfast.settings.loader import SETTINGS, Setting, SettingValue, load, setting_values, settings_file

__all__ = [
    "DEFAULT_LINK_SETTINGS",
    "SETTINGS",
    "AgentSettings",
    "LinkSettings",
    "LogSettings",
    "MaxModeSettings",
    "ModelSettings",
    "Origin",
    "PermissionSettings",
    "Setting",
    "SettingValue",
    "Settings",
    "load",
    "setting_values",
    "settings_file",
]
