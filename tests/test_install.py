"""What `pip install holdfast` brings, and what an import loads. A new dependency needs a line in the decision page."""

import re
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

PAGE = Path(__file__).parent.parent / "docs" / "decisions" / "0027-what-an-install-brings.md"
LISTED = set(re.findall(r"^\| `([\w-]+)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE))

LOADED = """
import sys
before = set(sys.modules)
{statement}
new = set(sys.modules) - before
print(*sorted({{name.split(".")[0] for name in new}} - sys.stdlib_module_names))
print(*sorted({{".".join(name.split(".")[:2]) for name in new if name.startswith("holdfast.")}}))
print(len(new))
"""


def loaded_by(statement: str) -> tuple[set[str], set[str], int]:
    """What a statement imports in a new process: packages outside of the standard library, our packages, and how many modules."""
    code = LOADED.format(statement=statement)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    others, ours, count = done.stdout.splitlines()
    return set(others.split()), {name.partition(".")[2] for name in ours.split()}, int(count)


def test_nothing_is_installed_that_the_page_does_not_list():
    required: set[str] = set()
    left = ["holdfast"]
    while left:
        name = re.sub(r"[-_.]+", "-", left.pop()).lower()
        if name not in required:
            required.add(name)
            found = map(Requirement, distribution(name).requires or ())
            left += [one.name for one in found if one.marker is None or one.marker.evaluate({"extra": ""})]

    assert required - LISTED == set()
    assert len(LISTED - required) <= 5, (
        "the page lists packages that are not required; other platforms need a few more"
    )


def test_import_of_the_package_loads_nothing_else():
    others, ours, _ = loaded_by("import holdfast")

    assert (others, ours) == ({"holdfast"}, set())


@pytest.mark.parametrize("name", ["Trust", "Mode", "HoldfastError", "SessionContext", "JsonObject"])
def test_names_of_the_model_need_the_standard_library_only(name: str):
    others, ours, _ = loaded_by(f"from holdfast import {name}")

    assert (others, ours) == ({"holdfast"}, {"model"})


def test_a_door_needs_only_msgspec_besides():
    others, ours, _ = loaded_by("from holdfast import Door")

    assert (others, ours) == ({"holdfast", "msgspec", "typing_extensions"}, {"model"})


def test_toolkit_loads_only_the_model_the_wire_and_msgspec():
    others, ours, count = loaded_by("import holdfast.toolkit")

    assert (others, ours) == ({"holdfast", "msgspec", "typing_extensions"}, {"model", "toolkit", "wire"})
    assert count <= 240, "it was 231 when this was written"


def test_host_loads_no_library_that_only_some_sessions_need():
    others, _, _ = loaded_by("from holdfast import Host")

    assert others == {"holdfast", "msgspec", "typing_extensions"}
