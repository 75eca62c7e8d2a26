"""Attack 45: secrets in URLs, after flags, in arguments and under names such as `DB_PASS`."""

import io
import json
import logging
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from holdfast import log_output, settings
from holdfast.cli.servers.describe_entry import describe_entry
from holdfast.masking import likely_secrets
from holdfast.masking.mask import Mask
from holdfast.model.server import Source
from holdfast.resolve import entry_summary
from holdfast.resolve.server_entry import ServerEntry
from tests.cli.test_servers import Environment
from tests.connect.conftest import HostFactory, make_host

__all__ = ["make_host"]

CANARIES = {
    name: f"canary{number}hunter"
    for number, name in enumerate(
        (
            "pass",
            "key",
            "pat",
            "userinfo",
            "flag",
            "assigned",
            "header",
            "short",
            "query",
            "hook",
            "joined",
            "default",
        )
    )
} | {"positional": "q7Rk2Zp9Xw4Lm8Tb1Vn6"}
ENV = {
    "DB_PASS": CANARIES["pass"],
    "OPENAI_KEY": CANARIES["key"],
    "GITHUB_PAT": CANARIES["pat"],
    "DATABASE_URL": f"postgres://bob:{CANARIES['userinfo']}@db/x?sslmode=require",
}
ARGS = [
    "--api-key", CANARIES["flag"],
    f"PASSWORD={CANARIES['assigned']}",
    "--header", f"Authorization: Bearer {CANARIES['header']}",
    "-p", CANARIES["short"],
    f"https://api.example/v1?key={CANARIES['query']}",
    f"https://api.example/hooks/T000/B000/{CANARIES['hook']}",
    f"--token={CANARIES['joined']}-${{LANG:-en}}",
    f"--secret=${{NOT_SET_ANYWHERE:-{CANARIES['default']}}}",
    CANARIES["positional"],
]  # fmt: skip
ENTRY: dict[str, Any] = {
    "command": sys.executable,
    "args": ["-I", "-S", str(Path(__file__).with_name("leaky_server.py")), *ARGS],
    "env": {**ENV, "TESTS_LEAKY_SERVER": "running"},
}
REMOTE: dict[str, Any] = {
    "url": f"http://127.0.0.1:9/hooks/{CANARIES['hook']}?k={CANARIES['query']}&key={CANARIES['key']}"
}
TOOLS = ("succeed", "fail", "refuse", "garble", "die")


@pytest.mark.anyio
@pytest.mark.promise("AUD-04")
@pytest.mark.parametrize("is_refused", [False, True])
async def test_no_secret_is_stored_or_logged(make_host: HostFactory, tmp_path: Path, *, is_refused: bool):
    assert await _find_canaries(make_host, tmp_path, is_refused=is_refused) == []


@pytest.mark.anyio
async def test_control_without_masking_every_secret_is_stored(
    make_host: HostFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def mask_nothing(values: Iterable[str]) -> Mask:
        return Mask()

    monkeypatch.setattr(Mask, "of", mask_nothing)

    assert await _find_canaries(make_host, tmp_path, is_refused=False) == [*CANARIES]


@pytest.mark.promise("AUD-04")
def test_no_secret_is_listed_and_the_options_stay_readable(tmp_path: Path):
    env = Environment(tmp_path)
    unknown = {"UNKNOWN_NAME": "Zk3Pq8Wn5Rt2Xv7Lc4Hd"}
    env.own(leaky={**ENTRY, "env": {**ENTRY["env"], **unknown}}, remote=REMOTE)

    listed = env.run("servers", "list").stdout + env.run("servers", "explain", "leaky").stdout

    assert (unknown["UNKNOWN_NAME"] in listed, 'UNKNOWN_NAME = "[masked]"' in listed) == (False, True)
    assert [name for name, canary in CANARIES.items() if canary in listed] == []
    for part in (
        "leaky_server.py",
        "--api-key [masked]",
        'DB_PASS = "[masked]"',
        "PASSWORD=[masked]",
        "Authorization: Bearer [masked]",
    ):
        assert part in listed
    for part in ("https://api.example/v1?key=[masked]", "127.0.0.1:9/hooks/[masked]?k=[masked]"):
        assert part in listed


PASSWORD, QUERY = "settings1hunter", "settings2hunter"
URLS = {
    "HOLDFAST_MODEL_BASE_URL": f"http://me:{PASSWORD}@127.0.0.1:9/v1?api_key={QUERY}",
    "HOLDFAST_TRACES_OTLP_URL": f"http://me:{PASSWORD}@127.0.0.1:9/?api_key={QUERY}",
}


@pytest.mark.promise("AUD-04")
@pytest.mark.parametrize("arguments", [("settings", "show"), ("settings", "show", "--json"), ("model",)])
def test_no_secret_of_a_url_is_in_the_settings_that_are_shown(tmp_path: Path, arguments: tuple[str, ...]):
    env = Environment(tmp_path)
    env.environ |= {**URLS, "HOLDFAST_MODEL_NAME": "openai-chat:x"}

    shown = env.run(*arguments).stdout

    assert (PASSWORD in shown, QUERY in shown) == (False, False)
    assert "http://me:[masked]@127.0.0.1:9/v1?api_key=[masked]" in shown


def test_control_without_masking_the_settings_contain_the_secrets(monkeypatch: pytest.MonkeyPatch):
    for name, url in URLS.items():
        monkeypatch.setenv(name, url)
    monkeypatch.setattr(likely_secrets, "mask_listing", str)

    shown = " ".join(str(entry.value) for entry in settings.setting_values(settings.load()))

    assert (PASSWORD in shown, QUERY in shown) == (True, True)


@pytest.mark.anyio
@pytest.mark.parametrize(
    "value", ["me:{}@tcp(db:3306)/shop", "host=db password='{}'", '{{"db":{{"password":"{}"}}}}']
)
async def test_a_password_in_a_connection_string_is_not_stored(
    make_host: HostFactory, tmp_path: Path, value: str
):
    entry = {
        **ENTRY,
        "args": ENTRY["args"][:3],
        "env": {"TESTS_LEAKY_SERVER": "running", "DATABASE_URL": value.format(PASSWORD)},
    }
    async with make_host({"db": entry}, durable=True) as host, host.session(cwd=tmp_path) as session:
        for tool in TOOLS:
            await session.call(f"db.{tool}", {"note": f"as {PASSWORD}"})

    found = b"".join(path.read_bytes() for path in (tmp_path / "data").rglob("*") if path.is_file())
    assert (b"[masked]" in found, PASSWORD.encode() in found) == (True, False)


def test_control_without_masking_every_argument_is_listed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(entry_summary, "mask_command", tuple)
    entry = ServerEntry(name="leaky", source=Source.USER, origin="mcp.json", value=ENTRY)

    listed = "\n".join(describe_entry(entry_summary.summarize(entry)))

    assert {name for name, canary in CANARIES.items() if canary in listed} == {*CANARIES} - {
        "pass",
        "key",
        "pat",
        "userinfo",
    }


@pytest.mark.promise("AUD-04")
@pytest.mark.parametrize("format", ["json", "human"])
def test_no_secret_is_logged_even_if_it_is_not_known(format: Any):
    logged = _log(format)

    known_by_place = set(CANARIES) - {"positional", "short"}
    assert [name for name in known_by_place if CANARIES[name] in logged] == []
    assert "api.example" in logged
    if format == "json":
        assert [json.loads(line)["event"] for line in logged.splitlines()]


def _log(format: Any) -> str:
    stream = io.StringIO()
    log_output.configure("info", format, stream)
    try:
        log = logging.getLogger("holdfast.test")
        log.info("started with %s", " ".join(ARGS[:-3]), extra={"env": ENV, "url": REMOTE["url"]})
        log.info(" ".join(ARGS[-3:-1]), extra={"db_pass": 12345})
    finally:
        log_output.configure("info", "auto")
    assert "12345" not in stream.getvalue()
    return stream.getvalue()


async def _find_canaries(make_host: HostFactory, folder: Path, *, is_refused: bool) -> list[str]:
    """The secrets that are on the disk or in the log after a session in which the server, or a file, contained all of them."""
    stream = io.StringIO()
    servers = {"running": {**ENTRY, "disabled": is_refused}, "remote": REMOTE}
    (folder / "notes").write_text(" ".join((*ARGS, *ENV.values())))
    log_output.configure("debug", "json", stream)
    try:
        async with make_host(servers, durable=True) as host, host.session(cwd=folder) as session:
            await session.wait_ready_and_store()
            await session.call("files.read", {"path": "notes"})
            for tool in () if is_refused else TOOLS:
                await session.call(f"running.{tool}", {"note": " ".join(ARGS)})
    finally:
        log_output.configure("info", "auto")
    files = (path for path in (folder / "data").rglob("*") if path.is_file())
    found = b"\0".join(path.read_bytes() for path in files).decode(errors="replace") + stream.getvalue()
    return [name for name, canary in CANARIES.items() if canary in found]
