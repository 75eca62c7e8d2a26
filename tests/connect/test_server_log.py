from pathlib import Path

import pytest

from holdfast.connect.server_log import ServerLog
from holdfast.masking.mask import Mask

pytestmark = pytest.mark.anyio

SECRET = b"correct-horse-battery"
TOO_MUCH = b"x" * 32 * 1024


@pytest.mark.parametrize(
    "written",
    [
        [b"the token is " + SECRET + TOO_MUCH[: -len(SECRET)] + b"\n", b"the next line\n"],
        [b"the token is " + TOO_MUCH + SECRET[:7], SECRET[7:] + b"\nthe next line\n"],
    ],
    ids=["in the middle of a line", "up to the end of what was written"],
)
async def test_output_is_skipped_in_whole_lines_so_that_no_part_of_a_secret_is_logged(
    tmp_path: Path, written: list[bytes]
):
    path = tmp_path / "s.log"
    log = ServerLog(path, "sess_1", Mask.of([SECRET.decode()]))

    for data in written:
        log.add(data)
    await log.finish()

    line, note = path.read_text().splitlines()
    skipped = len(b"".join(written)) - len(b"the next line\n")
    assert line.endswith(" | the next line")
    assert note.endswith(f" # {skipped} bytes were skipped: the server wrote too much at once")
