"""The downloads of a stage, within limits."""

from collections.abc import Iterator
from dataclasses import dataclass

from holdfast.builtin.stage.cdp import protocol as cdp
from holdfast.builtin.stage.limits import MAX_DOWNLOAD_BYTES, MAX_DOWNLOADS, MAX_TEXT

_MAX_AT_ONCE = 10


@dataclass(slots=True)
class Download:
    """A file that a page sent. In the stage's folder, its name is its `guid`."""

    guid: str
    url: str
    suggested_name: str
    state: str = "inProgress"
    received: int = 0
    total: int = 0
    reason: str = ""
    """Why Holdfast cancelled it."""


class Downloads:
    """The downloads of a stage, numbered. A cancelled one is dropped from the list if there is no more room; no other ever is."""

    def __init__(self) -> None:
        self.count = 0
        self._listed: dict[int, Download] = {}

    def __iter__(self) -> Iterator[tuple[int, Download]]:
        return iter(tuple(self._listed.items()))

    @property
    def dropped(self) -> int:
        """How many downloads are not listed."""
        return self.count - len(self._listed)

    def get(self, number: int) -> Download | None:
        """The download with this number; None if there is none, or if it was dropped."""
        return self._listed.get(number)

    def find(self, guid: str) -> Download | None:
        """The download with this id of the browser."""
        return next((download for download in self._listed.values() if download.guid == guid), None)

    def begin(self, event: cdp.BrowserDownloadWillBegin) -> tuple[int, Download]:
        """Note a download, and return it with its number. Its state is `canceled` if there are too many."""
        download = Download(event.guid, event.url[:MAX_TEXT], event.suggested_filename[:MAX_TEXT])
        running = sum(other.state == "inProgress" for other in self._listed.values())
        canceled = [number for number, other in self if other.state == "canceled"]
        if len(self._listed) - len(canceled) >= MAX_DOWNLOADS or running >= _MAX_AT_ONCE:
            download.state, download.reason = "canceled", "too many downloads"
        self.count += 1
        if len(self._listed) >= MAX_DOWNLOADS and canceled:
            del self._listed[canceled[0]]
        if len(self._listed) < MAX_DOWNLOADS:
            self._listed[self.count] = download
        return self.count, download

    def progress(self, download: Download, event: cdp.BrowserDownloadProgress) -> bool:
        """Note how far a download is. Return whether it must be cancelled, because the stage's downloads together are too large."""
        download.received, download.total = int(event.received_bytes), int(event.total_bytes)
        if download.state == "inProgress":
            download.state = event.state
        kept = sum(other.received for other in self._listed.values() if other.state != "canceled")
        if kept <= MAX_DOWNLOAD_BYTES or download.state != "inProgress":
            return False
        download.state, download.reason = "canceled", "the stage's downloads are too large"
        return True
