import subprocess
import sys
from pathlib import Path

import pytest

from holdfast import settings
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.limits import Limits
from holdfast.settings import LogSettings, Origin, load

ROOT = Path(__file__).parent.parent
DEFAULT_WIRE = Limits(line_bytes=16 * 1024 * 1024, depth=128, digits=100, values=100_000, in_flight=1024)


def test_settings_have_defaults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))

    loaded = load(environ={})

    assert loaded.log == LogSettings(level="info", format="auto")
    assert loaded.wire == DEFAULT_WIRE
    assert loaded.data_dir.name == "holdfast"
    assert set(loaded.origins.values()) == {Origin(kind="default")}


def test_environment_overrides_the_file_and_the_file_overrides_the_default(tmp_path: Path) -> None:
    file = _file(tmp_path, '[log]\nlevel = "debug"\nformat = "json"\n')

    loaded = load(file, {"HOLDFAST_LOG_LEVEL": "error"})

    assert loaded.log == LogSettings(level="error", format="json")
    assert loaded.wire == DEFAULT_WIRE
    assert {key: loaded.origins[key] for key in ("log.level", "log.format", "wire.depth")} == {
        "log.level": Origin(kind="environment", where="HOLDFAST_LOG_LEVEL"),
        "log.format": Origin(kind="file", where=str(file)),
        "wire.depth": Origin(kind="default"),
    }


def test_every_setting_can_come_from_the_environment(tmp_path: Path) -> None:
    environ = {
        "HOLDFAST_DATA_DIR": str(tmp_path),
        "HOLDFAST_LOG_LEVEL": "warning",
        "HOLDFAST_LOG_FORMAT": "human",
        "HOLDFAST_TRACES_OTLP_URL": "http://127.0.0.1:4318",
        "HOLDFAST_WIRE_LINE_BYTES": "2048",
        "HOLDFAST_WIRE_DEPTH": "16",
        "HOLDFAST_WIRE_DIGITS": "20",
        "HOLDFAST_WIRE_VALUES": "5000",
        "HOLDFAST_WIRE_IN_FLIGHT": "2",
        "HOLDFAST_SERVERS_HOST_FILE": "/srv/mcp.json",
        "HOLDFAST_SERVERS_USER_FILE": "/home/me/mcp.json",
        "HOLDFAST_SERVERS_PASS_ON": "HTTPS_PROXY, DISPLAY",
        "HOLDFAST_SERVERS_REACHABLE": "10.0.0.1",
        "HOLDFAST_SERVERS_REGISTRIES": "packages.example.org",
        "HOLDFAST_SERVERS_PACKAGES": "/var/packages",
        "HOLDFAST_SERVERS_PIN_TOOLS": "project",
        "HOLDFAST_LINKS_MAX_OPEN": "7",
        "HOLDFAST_LINKS_IDLE_SECONDS": "60",
        "HOLDFAST_LINKS_SHARED_IDLE_SECONDS": "0",
        "HOLDFAST_LINKS_WAIT_SECONDS": "3",
        "HOLDFAST_LINKS_CONNECT_SECONDS": "5",
        "HOLDFAST_LINKS_LIST_SECONDS": "6",
        "HOLDFAST_LINKS_CALL_SECONDS": "8",
        "HOLDFAST_PERMISSION_DENY": "git.push, *.delete*",
        "HOLDFAST_PERMISSION_ASK": '"my.server".*',
        "HOLDFAST_PERMISSION_ALLOW": "git.status",
        "HOLDFAST_PERMISSION_WAIT": "30",
        "HOLDFAST_PERMISSION_MAX_MODE_ACP": "ask",
        "HOLDFAST_PERMISSION_MAX_MODE_CHAT": "auto",
        "HOLDFAST_PERMISSION_MAX_MODE_CLI": "read-only",
        "HOLDFAST_PERMISSION_MAX_MODE_GATEWAY": "read-only",
        "HOLDFAST_PERMISSION_MAX_MODE_PYTHON": "ask",
        "HOLDFAST_SANDBOX_ENGINE": "podman",
        "HOLDFAST_SANDBOX_IMAGE": "debian",
        "HOLDFAST_SANDBOX_KEEP": "true",
        "HOLDFAST_STAGE_ENABLED": "false",
        "HOLDFAST_STAGE_BROWSER": "/opt/chromium",
        "HOLDFAST_STAGE_HOSTS": "example.org, *",
        "HOLDFAST_STAGE_ALLOW_EVAL": "true",
        "HOLDFAST_MODEL_NAME": "openai:gpt-5",
        "HOLDFAST_MODEL_ALSO": "ollama:qwen3, anthropic:claude",
        "HOLDFAST_MODEL_BASE_URL": "http://127.0.0.1:8080/v1",
        "HOLDFAST_MODEL_API_KEY_ENV": "MY_KEY",
        "HOLDFAST_MODEL_CONTEXT_TOKENS": "2000",
        "HOLDFAST_MODEL_MAX_REQUESTS": "9",
        "HOLDFAST_MODEL_MAX_CALLS": "10",
        "HOLDFAST_MODEL_MAX_COST_CENTS": "11",
        "HOLDFAST_MODEL_IDLE_SECONDS": "12",
        "HOLDFAST_MODEL_TURN_SECONDS": "13",
        "HOLDFAST_AGENTS_MAX_DEPTH": "2",
        "HOLDFAST_AGENTS_MAX_CHILDREN": "3",
        "HOLDFAST_AGENTS_MAX_MESSAGES_PER_HOUR": "60",
        "HOLDFAST_AUDIT_ARGUMENTS": "true",
        "HOLDFAST_SESSIONS_KEEP_DAYS": "30",
        "HOLDFAST_SESSIONS_MAX_MEGABYTES": "7",
        "HOLDFAST_WORKSPACES_AUTO_REGISTER": "/srv/repositories",
        "HOLDFAST_GATEWAY_PORT": "8080",
        "HOLDFAST_GATEWAY_TOOL_NAMES": "qualified",
        "HOLDFAST_GATEWAY_BUILTIN": "files, tasks",
        "HOLDFAST_GATEWAY_MAX_SESSIONS": "9",
        "HOLDFAST_GATEWAY_MAX_SESSIONS_PER_TOKEN": "3",
        "HOLDFAST_GATEWAY_MAX_NEW_SESSIONS_PER_MINUTE": "4",
        "HOLDFAST_GATEWAY_SESSION_IDLE_SECONDS": "60",
        "HOLDFAST_GATEWAY_MAX_REQUESTS_PER_SECOND": "5",
        "HOLDFAST_GATEWAY_MAX_REQUESTS_IN_FLIGHT": "6",
        "HOLDFAST_GATEWAY_MAX_BODY_BYTES": "2048",
        "HOLDFAST_GATEWAY_ISSUER": "https://login.example.org",
        "HOLDFAST_GATEWAY_AUDIENCE": "https://mcp.example.org/mcp",
        "HOLDFAST_GATEWAY_JWKS_URL": "https://login.example.org/keys",
        "HOLDFAST_TRUST_CEILING": "sandboxed",
        "HOLDFAST_ALIASES_ENV_PREFIXES": "PARACHUTE",
        "HOLDFAST_ALIASES_SESSION_VARIABLES": "AGENT_SESSION_ID",
        "HOLDFAST_ALIASES_WORKSPACE_KEYS": "orbit.workspace",
        "HOLDFAST_ALIASES_SESSION_KEYS": "agent-session-id",
    }

    loaded = load(_file(tmp_path, ""), environ)

    assert {setting.variable for setting in settings.SETTINGS} == set(environ)
    assert [str(entry.value) for entry in settings.setting_values(loaded)] == list(environ.values())
    assert {origin.kind for origin in loaded.origins.values()} == {"environment"}


def test_empty_variable_counts_as_not_set(tmp_path: Path) -> None:
    assert load(_file(tmp_path, ""), {"HOLDFAST_LOG_LEVEL": ""}).log.level == "info"


def test_environment_can_name_the_file(tmp_path: Path) -> None:
    file = _file(tmp_path, "[wire]\ndepth = 64\n")

    assert load(environ={"HOLDFAST_CONFIG": str(file)}).wire.depth == 64


@pytest.mark.parametrize("by", ["path", "environment"])
def test_named_file_must_exist(tmp_path: Path, by: str) -> None:
    missing = tmp_path / "none.toml"

    with pytest.raises(HoldfastError, match=r"none\.toml': there is no such file\. Create it") as caught:
        _ = load(missing, {}) if by == "path" else load(environ={"HOLDFAST_CONFIG": str(missing)})

    assert caught.value.code == codes.BAD_SETTINGS


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[log]\n\nlevle = "info"', "FILE, line 3: unknown key 'log.levle'. Did you mean 'log.level'?"),
        ('level = "info"', "FILE, line 1: unknown key 'level'. Did you mean 'log.level'?"),
        ("[zebra]\nx = 1", "FILE, line 1: unknown key 'zebra'. The keys are: data_dir, log.level, "),
        ("log = 3", "FILE, line 1: 'log' is a section. Write [log], and below it level = ..."),
        (
            "[log]\nlevel = 'loud'",
            "FILE, line 2: log.level must be one of debug, info, warning, error, not 'loud'.",
        ),
        ("log.format = 1", "FILE, line 1: log.format must be one of auto, human, json, not 1."),
        ("log = { format = '' }", "FILE, line 1: log.format must be one of auto, human, json, not ''."),
        ("[wire]\ndepth = true", "FILE, line 2: wire.depth must be a whole number from 8 to 512, not true."),
        ("[wire]\ndepth = 1.5", "FILE, line 2: wire.depth must be a whole number from 8 to 512, not 1.5."),
        (
            "[wire.depth]\nx = 1",
            "FILE, line 1: wire.depth must be a whole number from 8 to 512, not {'x': 1}.",
        ),
        (
            "[wire]\nin_flight = 0",
            "FILE, line 2: wire.in_flight must be a whole number from 1 to 65536, not 0.",
        ),
        (
            "data_dir = 'here'",
            "FILE, line 1: data_dir must be an absolute path, or begin with ~, not 'here'.",
        ),
        ("[audit]\narguments = 1", "FILE, line 2: audit.arguments must be true or false, not 1."),
        ('trust_ceiling = "root"', "FILE, line 1: trust_ceiling must be direct or sandboxed, not 'root'."),
        ("[servers]\npass_on = [1]", "FILE, line 2: servers.pass_on must be a list of names, not [1]."),
        (
            "[permission]\ndeny = ['git', 'my.server.x']",
            'FILE, line 2: permission.deny must be a list of patterns such as "git.push" or "files.*" (it is not clear which',
        ),
        (
            "[permission]\nask = 3",
            'FILE, line 2: permission.ask must be a list of patterns such as "git.push" or "files.*", not 3.',
        ),
        (
            "[permission.max_mode]\nacp = 'root'",
            "FILE, line 2: permission.max_mode.acp must be one of read-only, ask, auto, not 'root'.",
        ),
        (
            "[permission]\nmax_mode = 'ask'",
            "FILE, line 2: 'permission.max_mode' is a section. Write [permission.max_mode], and below it acp = ...",
        ),
        ("data_dir = 7", "FILE, line 1: data_dir must be a path, not 7."),
        ("[log\n", "FILE: not valid TOML: "),
    ],
)
def test_error_in_the_file_names_file_line_key_and_fix(tmp_path: Path, text: str, message: str) -> None:
    file = _file(tmp_path, text)

    with pytest.raises(HoldfastError) as caught:
        load(file, {})

    assert caught.value.code == codes.BAD_SETTINGS
    assert str(caught.value).replace(str(file), "FILE").startswith(message)


def test_error_in_the_environment_names_the_variable() -> None:
    with pytest.raises(
        HoldfastError, match=r"^HOLDFAST_WIRE_DEPTH must be a whole number from 8 to 512, not 'deep'\.$"
    ):
        load(environ={"HOLDFAST_WIRE_DEPTH": "deep"})


def test_all_errors_are_reported_at_once(tmp_path: Path) -> None:
    file = _file(tmp_path, "nonsense = 1\n[wire]\ndepth = 1\ndigits = 1\n")

    with pytest.raises(HoldfastError) as caught:
        load(file, {"HOLDFAST_LOG_LEVEL": "loud"})

    assert [line.partition(" ")[0] for line in str(caught.value).splitlines()] == [
        f"{file},",
        "HOLDFAST_LOG_LEVEL",
        f"{file},",
        f"{file},",
    ]


@pytest.mark.parametrize("content", [b"\xff\xfe", None], ids=["not utf-8", "a folder"])
def test_unreadable_file_is_an_error(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "config.toml"
    if content is None:
        file.mkdir()
    else:
        file.write_bytes(content)

    with pytest.raises(HoldfastError, match="Could not read settings from"):
        load(file, {})


def test_settings_page_is_up_to_date() -> None:
    printed = subprocess.run(
        [sys.executable, ROOT / "scripts" / "settings"], capture_output=True, text=True, check=True
    ).stdout

    page = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    assert page == printed, "run: scripts/settings > docs/settings.md"


def _file(folder: Path, text: str) -> Path:
    file = folder / "config.toml"
    file.write_text(text, encoding="utf-8")
    return file
