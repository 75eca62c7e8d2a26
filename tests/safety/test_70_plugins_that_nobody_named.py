"""Attack 70: an installed package contains a plugin that nobody named, or gives it the name of another package's plugin."""

import subprocess
import sys
from pathlib import Path

import pytest

SERVER = "from holdfast.toolkit import Toolbox\nToolbox('box').main()\n"
PLUGIN = "import pathlib\npathlib.Path(__file__).with_name('ran').touch()\ndef plug(box): pass\n"


def install(folder: Path, package: str, plugin: str) -> Path:
    """Install a package with this plugin. Return the file that exists once its code has run."""
    place = folder / package
    info = place / f"{package}-1.0.dist-info"
    info.mkdir(parents=True)
    (place / f"{package}.py").write_text(PLUGIN)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[holdfast.toolkit]\n{plugin} = {package}:plug\n")
    return place / "ran"


@pytest.mark.parametrize(
    ("options", "runs"),
    [((), ""), (("--plugin", "good"), ""), (("--plugin", "evil:plug"), ""), (("--plugin", "evil"), "evil")],
    ids=["not named", "two of one name", "an object", "control: named"],
)
def test_only_a_plugin_that_is_named_runs(tmp_path: Path, options: tuple[str, ...], runs: str):
    files = {
        package: install(tmp_path, package, plugin)
        for package, plugin in (("evil", "evil"), ("first", "good"), ("second", "good"))
    }
    script = tmp_path / "server.py"
    script.write_text(SERVER)
    path = [str(Path(__file__).parents[2] / "src"), *(str(file.parent) for file in files.values())]

    subprocess.run(
        [sys.executable, script, *options],
        env={"PYTHONPATH": ":".join(path)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )

    assert [package for package, file in files.items() if file.exists()] == ([runs] if runs else [])
