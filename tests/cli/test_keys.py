import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

HOLDFAST = str(Path(sys.executable).parent / "holdfast")


def run(folder: Path, *words: str) -> str:
    environ = {**os.environ, "HOLDFAST_DATA_DIR": str(folder)}
    done = subprocess.run([HOLDFAST, "keys", *words], env=environ, capture_output=True, text=True, check=True)
    return done.stdout


def ids(folder: Path) -> list[Any]:
    return [key["kid"] for key in json.loads(run(folder, "show"))["keys"]]


def test_show_prints_public_keys_only(tmp_path: Path):
    (key,) = json.loads(run(tmp_path, "show"))["keys"]

    assert (key["kty"], key["crv"], "d" in key) == ("OKP", "Ed25519", False)


def test_after_rotation_a_new_key_signs_and_the_old_one_still_verifies(tmp_path: Path):
    (old,) = ids(tmp_path)
    run(tmp_path, "rotate")
    new, kept = ids(tmp_path)

    assert (new != old, kept) == (True, old)


def test_revoke_drops_the_old_keys_at_once(tmp_path: Path):
    (old,) = ids(tmp_path)
    run(tmp_path, "rotate", "--revoke")

    assert old not in ids(tmp_path)
