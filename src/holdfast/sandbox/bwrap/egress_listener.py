"""Open the egress proxy's listener inside the sandbox, send it to the host, then execute the server.

This file runs as a script in the sandbox: `python -I -S egress_listener.py FD PORT PROGRAM …`. The listener belongs to
the sandbox's network namespace, and the host accepts its connections. FD is a socket to the host, which is closed
before the server is executed.
"""

import os
import socket
import sys


def main() -> None:
    """Listen on loopback, send the listener to the host, execute the server."""
    descriptor, port, *argv = sys.argv[1:]
    with socket.socket(fileno=int(descriptor)) as channel, socket.socket() as listener:
        listener.bind(("127.0.0.1", int(port)))
        listener.listen(64)
        socket.send_fds(channel, [b"+"], [listener.fileno()])
    os.execvp(argv[0], argv)


if __name__ == "__main__":
    main()
