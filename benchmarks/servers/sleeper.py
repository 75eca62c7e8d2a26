"""A server that takes 300 ms to start, and hardly any CPU time: it has no framework."""

import sys
import time

time.sleep(0.3)
for line in sys.stdin:
    identity = line.partition('"id":')[2].partition(",")[0]
    if '"server/discover"' in line:
        result = '{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"resultType":"complete"}'
    else:
        result = '{"tools":[],"resultType":"complete"}'
    sys.stdout.write(f'{{"jsonrpc":"2.0","id":{identity},"result":{result}}}\n')
    sys.stdout.flush()
