"""FastMCP's proxy in front of one stdio server: fastmcp_proxy.py <command…>. Prints its URL."""

import json
import socket
import sys

from fastmcp.client.transports import StdioTransport
from fastmcp.server import create_proxy

if __name__ == "__main__":
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    proxy = create_proxy(StdioTransport(sys.argv[1], sys.argv[2:]))
    print(json.dumps({"url": f"http://127.0.0.1:{port}/mcp", "handles": []}), flush=True)
    proxy.run("http", host="127.0.0.1", port=port, show_banner=False, log_level="error")
