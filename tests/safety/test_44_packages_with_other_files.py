"""Attack 44: a registry serves other code under the version, and with the checksums, of an approved package."""

from pathlib import Path

import pytest

from holdfast.host.package_record import PackageRecord, make_empty_folder, make_record
from holdfast.resolve.package_runner import PackageCommand, Runner

NAMES = {
    "a module": "tools/tool/lib/python3/site-packages/tool/__init__.py",
    "a compiled module": "tools/tool/lib/python3/site-packages/tool/__pycache__/x.cpython-311.pyc",
    "a file that is in no RECORD": "tools/tool/lib/python3/site-packages/x.pth",
    "a script": "tools/tool/bin/tool",
    "a package in a package": "node_modules/tool/node_modules/inner/index.js",
}


@pytest.mark.promise("BOX-08", "RES-07")
@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
@pytest.mark.parametrize("text", ["evil", "good"], ids=["attack", "control"])
def test_package_with_another_file_and_the_same_checksums_is_another_package(
    tmp_path: Path, name: str, text: str
) -> None:
    approved, fetched_again = (_fetch(tmp_path, name, content) for content in ("good", text))

    assert (approved == fetched_again) == (text == "good")


@pytest.mark.promise("BOX-08")
@pytest.mark.parametrize(
    "name",
    [
        "package-lock.json",
        "tools/tool/uv-receipt.toml",
        "pipx/venvs/tool/pipx_metadata.json",
        ".git/.gitignore",
    ],
)
def test_package_stays_the_same_if_only_the_manager_notes_another_version(tmp_path: Path, name: str) -> None:
    approved, fetched_again = (_fetch(tmp_path, name, content) for content in ("tool", "tool==1.0"))

    assert approved == fetched_again


@pytest.mark.promise("BOX-08")
def test_program_that_became_a_link_to_another_file_is_another_package(tmp_path: Path) -> None:
    approved, fetched_again = (_fetch(tmp_path, target=target) for target in ("one", "two"))

    assert approved != fetched_again


def _fetch(packages: Path, name: str = "x", content: str = "", target: str = "one") -> PackageRecord:
    """Install a package, always with the same `RECORD` and lock file."""
    folder = packages / "package"
    make_empty_folder(packages, folder)
    files = {
        "tools/tool/lib/python3/site-packages/tool-1.0.dist-info/RECORD": "tool/__init__.py,sha256=x,9",
        "package-lock.json": "{}",
        name: content,
    }
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    (folder / "bin").mkdir()
    (folder / "bin/tool").symlink_to(target)
    return make_record(folder, PackageCommand(runner=Runner.UVX, packages=("tool",), program="tool"))
