"""The downloads of a stage, within limits."""

from dataclasses import dataclass

from holdfast.builtin.stage.cdp import protocol as cdp
from holdfast.builtin.stage.limits import MAX_DOWNLOAD_BYTES, MAX_DOWNLOADS, MAX_TEXT
from holdfast.builtin.stage.recent import Recent

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


class Downloads:
    """The last downloads of a stage."""

    def __init__(self) -> None:
        self.recent: Recent[Download] = Recent(MAX_DOWNLOADS)

    def begin(self, event: cdp.BrowserDownloadWillBegin) -> tuple[int, Download]:
        """Note a download, and return it with its number. Its state is `canceled` if there are too many."""
        download = Download(event.guid, event.url[:MAX_TEXT], event.suggested_filename[:MAX_TEXT])
        running = sum(other.state == "inProgress" for _, other in self.recent)
        if self.recent.count >= MAX_DOWNLOADS or running >= _MAX_AT_ONCE:
            download.state, download.reason = "canceled", "too many downloads"
        return self.recent.add(download), download

    def find(self, guid: str) -> Download | None:
        """The download with this id of the browser."""
        return next((download for _, download in self.recent if download.guid == guid), None)

    def progress(self, download: Download, event: cdp.BrowserDownloadProgress) -> bool:
        """Note how far a download is. Return whether it must be cancelled, because the stage's downloads together are too large."""
        total = sum(other.received for _, other in self.recent)
        download.received, download.total = int(event.received_bytes), int(event.total_bytes)
        if download.state == "inProgress":
            download.state = event.state
        if total <= MAX_DOWNLOAD_BYTES or download.state != "inProgress":
            return False
        download.state, download.reason = "canceled", "the stage's downloads are too large"
        return True
