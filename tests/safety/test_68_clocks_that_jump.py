"""Attack 68: the clock of a running host is set back and forward, by days and years."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.safety import jumping_clock

ROOT = Path(__file__).parents[2]
# Replaces the C library's functions that read the clock. Python and SQLite call these.
CLOCK = """
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
static volatile long *offset;
__attribute__((constructor)) static void start(void) {
    int file = open(getenv("CLOCK_OFFSET"), O_RDONLY);
    offset = mmap(0, sizeof(long), PROT_READ, MAP_SHARED, file, 0);
}
int clock_gettime(clockid_t id, struct timespec *found) {
    int failed = syscall(SYS_clock_gettime, id, found);
    if (!failed && id == CLOCK_REALTIME) found->tv_sec += *offset;
    return failed;
}
int gettimeofday(struct timeval *found, void *zone) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    found->tv_sec = now.tv_sec;
    found->tv_usec = now.tv_nsec / 1000;
    return 0;
}
time_t time(time_t *found) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (found) *found = now.tv_sec;
    return now.tv_sec;
}
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux" or not shutil.which("cc"), reason="needs a C compiler, on Linux")
def test_sessions_go_on_and_only_an_expired_token_is_refused_when_the_clock_jumps(tmp_path: Path):
    source, library, offset = tmp_path / "clock.c", tmp_path / "clock.so", tmp_path / "offset"
    source.write_text(CLOCK)
    offset.write_bytes(bytes(8))
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    variables = {"LD_PRELOAD": str(library), "CLOCK_OFFSET": str(offset), "HOME": str(tmp_path)}

    done = subprocess.run(
        [sys.executable, "-m", jumping_clock.__name__, str(tmp_path)],
        env={**os.environ, **variables}, cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip

    days = [round(jump / jumping_clock.DAY) for jump in jumping_clock.JUMPS]
    expected = [[day, [True, True], 401 if day > 1 else 200, ""] for day in days]
    assert json.loads(done.stdout) == expected
