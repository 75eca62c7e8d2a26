"""Streams very many updates to a slow reader: `make soak-stream`."""

import sys

from benchmarks.acp import STREAM_UPDATES, slow_reader

if __name__ == "__main__":
    result = slow_reader(STREAM_UPDATES)
    print(f"{result.ours:.1f} MB growth; {result.peer_name}: {result.peer:g} MB")
    sys.exit(0 if result.met else 1)
