"""Open the egress proxy's listener inside the sandbox, send it to the host, then execute the server.

This file runs as a script in the sandbox: `python -I -S egress_listener.py FD PORT PROGRAM …`. The listener belongs to
the sandbox's network namespace, and the host accepts its connections. FD is a socket to the host, which is closed
before the server is executed.
"""

import _socket  # `socket` would import many modules, and so delay the start of the server
import os
import sys


def main() -> None:
    """Listen on loopback, send the listener to the host, execute the server."""
    descriptor, port, *argv = sys.argv[1:]
    channel, listener = _socket.socket(fileno=int(descriptor)), _socket.socket()
    listener.bind(("127.0.0.1", int(port)))
    listener.listen(64)
    passed = listener.fileno().to_bytes(4, sys.byteorder)
    channel.sendmsg([b"+"], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, passed)])
    channel.close()
    listener.close()
    os.execvp(argv[0], argv)


if __name__ == "__main__":
    main()
