"""An echo server that starts quickly and takes little memory, for hundreds of them: no imports but `sys`, no framework."""

import sys

DISCOVERED = '{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"resultType":"complete"}'
SCHEMA = '{"type":"object","properties":{"text":{"type":"string"}},"required":["text"]}'
LISTED = f'{{"tools":[{{"name":"echo","inputSchema":{SCHEMA}}}],"resultType":"complete"}}'

for line in sys.stdin:
    identity = line.partition('"id":')[2].partition(",")[0]
    if '"tools/call"' in line:
        text = line.partition('"text":')[2].partition('"}')[0]
        result = f'{{"content":[{{"type":"text","text":{text}"}}],"resultType":"complete"}}'
    elif '"server/discover"' in line:
        result = DISCOVERED
    else:
        result = LISTED
    sys.stdout.write(f'{{"jsonrpc":"2.0","id":{identity},"result":{result}}}\n')
    sys.stdout.flush()
