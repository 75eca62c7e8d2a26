"""Inside the walls: open the one way out, hand it to the host, and become the server.

Run alone, as `python -I -S bridge.py FD PORT PROGRAM …`. The listener lives in the sandbox's own network; the
host accepts from it. Nothing of ours stays behind: the descriptor closes and the server takes our place.
"""

import os
import socket
import sys


def main() -> None:
    """Listen on loopback, send the listener out, execute the server."""
    descriptor, port, *argv = sys.argv[1:]
    with socket.socket(fileno=int(descriptor)) as host, socket.socket() as listener:
        listener.bind(("127.0.0.1", int(port)))
        listener.listen(64)
        socket.send_fds(host, [b"+"], [listener.fileno()])
    os.execvp(argv[0], argv)


if __name__ == "__main__":
    main()
