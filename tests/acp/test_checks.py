"""The messages for folders and prompts that are refused."""

from pathlib import Path
from typing import Any

import pytest

from holdfast.acp.content import check_prompt
from holdfast.host.session_folders import check_folder
from holdfast.model.errors import HoldfastError

LONG = "/" + "x" * 300


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (5, "cwd must be the absolute path of a folder."),
        ("src", "cwd must be an absolute path, not 'src'."),
        ("/nowhere", "cwd: '/nowhere' is not a readable folder."),
        (LONG, f"cwd: {LONG[:200]!r} cannot be accessed: File name too long."),
    ],
)
def test_unusable_folder_is_refused_with_the_reason(value: Any, message: str):
    with pytest.raises(HoldfastError) as refused:
        check_folder("cwd", value, protected=())

    assert refused.value.message == message


def test_folder_inside_a_protected_folder_is_refused(tmp_path: Path):
    (tmp_path / "keys").mkdir()
    with pytest.raises(HoldfastError) as refused:
        check_folder("cwd", str(tmp_path / "keys"), protected=[str(tmp_path.resolve())])

    assert refused.value.message.endswith("is one of Holdfast's own folders. Use another folder.")


@pytest.mark.parametrize(
    ("block", "message"),
    [
        (
            {"type": "audio"},
            "prompt[1]: block type 'audio' is not supported; use text, image, resource_link or resource.",
        ),
        (
            {"type": "resource", "resource": {"uri": "file:///x"}},
            "prompt[1]: malformed block: a resource must have exactly one of text and blob - at `$.resource`.",
        ),
    ],
)
def test_refused_prompt_names_the_block(block: Any, message: str):
    with pytest.raises(HoldfastError) as refused:
        check_prompt([{"type": "text", "text": "x"}, block])

    assert refused.value.message == message
