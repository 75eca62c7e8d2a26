"""A web site for the tests: the pages of this folder, and answers that a test defines."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

PAGES = Path(__file__).with_name("pages")
Headers = dict[str, str]
Answer = tuple[int, Headers, bytes]


@dataclass(frozen=True)
class Seen:
    """A request that arrived."""

    method: str
    path: str
    headers: Headers
    body: bytes


@dataclass
class Site:
    """A running site. `host` and `other_host` are two sites for a browser, although one process serves both."""

    port: int
    answers: dict[str, Callable[[Seen], Answer]] = field(default_factory=dict[str, Callable[[Seen], Answer]])
    seen: list[Seen] = field(default_factory=list[Seen])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def other_url(self) -> str:
        """The same pages on another site."""
        return f"http://localhost:{self.port}"

    def page(self, path: str, html: str, **headers: str) -> str:
        """Define a page and return its address."""
        body = f"<!doctype html><meta charset=utf-8>{html}".encode()
        self.answers[path] = lambda seen: (200, {"Content-Type": "text/html; charset=utf-8", **headers}, body)
        return self.url + path

    def paths(self) -> list[str]:
        return [seen.path for seen in self.seen]


@contextmanager
def run_site() -> Iterator[Site]:
    """Serve the pages while the block runs."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_one(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            path = urlsplit(self.path).path
            seen = Seen(self.command, self.path, dict(self.headers.items()), self.rfile.read(length))
            site.seen.append(seen)
            if path in site.answers:
                status, headers, body = site.answers[path](seen)
            elif (file := PAGES / path.lstrip("/")).is_file():
                kind = {".html": "text/html; charset=utf-8", ".js": "text/javascript"}.get(
                    file.suffix, "text/plain"
                )
                status, headers, body = 200, {"Content-Type": kind}, file.read_bytes()
            else:
                status, headers, body = 404, {"Content-Type": "text/plain"}, b"there is no such page"
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body)), "Connection": "close"}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = handle_one  # noqa: N815

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    site = Site(server.server_address[1])
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield site
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
