"""Attack 16: a session in the folder of temporary files reads the profile of another session's browser, with its cookies."""

import tempfile
from pathlib import Path

import pytest

from holdfast.builtin.stage.browser_folder import BrowserFolder
from holdfast.host.host import Host
from holdfast.model import browsers_folder as module
from holdfast.model.trust import Trust
from tests.connect.conftest import HostFactory, make_host

__all__ = ["make_host"]
pytestmark = pytest.mark.anyio


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of temporary files, which contains the folder of a browser."""
    folder = tmp_path.resolve() / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setattr(module.os, "geteuid", lambda: 1000)  # root always uses /tmp
    return folder


@pytest.mark.promise("STG-14", "BOX-02")
async def test_sandboxed_session_gets_no_server_in_a_folder_with_the_browsers_of_others(
    make_host: HostFactory, temporary: Path
) -> None:
    browser = BrowserFolder()
    (browser.path / "profile" / "Cookies").write_text("a cookie")
    (temporary / "project").mkdir()
    async with make_host({}) as host:
        attacks = [await _read(host, folder, browser) for folder in (temporary, browser.path / "profile")]
        beside = await _read(host, temporary / "project", browser)
        control = await _read(host, temporary, browser, Trust.DIRECT)
    browser.remove()

    assert [answer for answer in attacks if "a cookie" in answer] == []
    assert "is outside this session's folders" in beside
    assert "a cookie" in control


async def _read(host: Host, folder: Path, browser: BrowserFolder, trust: Trust = Trust.SANDBOXED) -> str:
    try:
        async with host.session(cwd=folder, trust=trust.value, permission="auto") as session:
            result = await session.call("files.read", {"path": str(browser.path / "profile" / "Cookies")})
            return f"{result.text} {result.message}"
    except Exception as error:
        return str(error)
