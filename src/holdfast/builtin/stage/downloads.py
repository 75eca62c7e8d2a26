"""The downloads of a stage, and limits on their number and size."""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from holdfast.builtin.stage.cdp import protocol as cdp
from holdfast.builtin.stage.files import DownloadFile
from holdfast.builtin.stage.limits import MAX_DOWNLOAD_BYTES, MAX_DOWNLOADS, MAX_TEXT

_MAX_AT_ONCE = 10
_MAX_REFUSED = 1000


@dataclass(slots=True)
class Download:
    """A file that a page sent. In the stage's folder, its name is its `guid`."""

    guid: str
    url: str
    suggested_name: str
    state: str = "inProgress"
    """As in the DevTools protocol: `inProgress`, `completed` or `canceled`."""
    received: int = 0
    """In bytes."""
    total: int = 0
    """In bytes; 0 if it is not known."""
    reason: str = ""
    """Why Holdfast cancelled it."""
    is_reported: bool = True
    """Whether the browser reports it. If not, its name and address are not known, and its progress is the size of its file."""


class Downloads:
    """The numbered list of a stage's downloads. If the list is full, the oldest cancelled download is dropped, never one that was not cancelled."""

    def __init__(self) -> None:
        self.count = 0
        self._listed: dict[int, Download] = {}
        self._refused: deque[str] = deque(maxlen=_MAX_REFUSED)

    def __iter__(self) -> Iterator[tuple[int, Download]]:
        return iter(tuple(self._listed.items()))

    @property
    def dropped(self) -> int:
        """How many downloads are not listed."""
        return self.count - len(self._listed)

    def get(self, number: int) -> Download | None:
        """Return the download with this number; None if there is none, or if it was dropped."""
        return self._listed.get(number)

    def find(self, guid: str) -> Download | None:
        """Return the listed download to which the browser has given this id; None if there is none."""
        return next((download for download in self._listed.values() if download.guid == guid), None)

    def begin(self, event: cdp.BrowserDownloadWillBegin) -> tuple[int, Download]:
        """Add a download, and return it with its number. Its state is `canceled` if there are too many."""
        download = Download(event.guid, event.url[:MAX_TEXT], event.suggested_filename[:MAX_TEXT])
        running = sum(other.state == "inProgress" for other in self._listed.values())
        canceled = [number for number, other in self if other.state == "canceled"]
        if len(self._listed) - len(canceled) >= MAX_DOWNLOADS or running >= _MAX_AT_ONCE:
            download.state, download.reason = "canceled", "too many downloads"
            self._refused.append(download.guid)
        self.count += 1
        if len(self._listed) >= MAX_DOWNLOADS and canceled:
            del self._listed[canceled[0]]
        if len(self._listed) < MAX_DOWNLOADS:
            self._listed[self.count] = download
        return self.count, download

    def record_progress(self, download: Download, event: cdp.BrowserDownloadProgress) -> bool:
        """Record the progress of a download. Return whether a limit has cancelled it, so that the browser must cancel it, too."""
        download.received, download.total = int(event.received_bytes), int(event.total_bytes)
        if download.state == "inProgress":
            download.state = event.state
        return self._limit(download)

    def unknown(self, guids: Iterable[str]) -> list[str]:
        """Return the ids that belong to no download that was added."""
        known = {*self._refused, *(download.guid for download in self._listed.values())}
        return [guid for guid in guids if guid not in known]

    def refused(self, guids: Iterable[str]) -> list[str]:
        """Return the ids of downloads that were cancelled because of the limits."""
        return [guid for guid in guids if guid in self._refused]

    def begin_unreported(self, guid: str) -> tuple[int, Download]:
        """Add a download that the browser does not report. See `begin`."""
        event = cdp.BrowserDownloadWillBegin(frame_id="", guid=guid, url="", suggested_filename="")
        number, download = self.begin(event)
        download.is_reported = False
        return number, download

    def unreported(self) -> list[Download]:
        """Return the listed downloads that are in progress, and that the browser does not report."""
        return [
            download
            for download in self._listed.values()
            if not download.is_reported and download.state == "inProgress"
        ]

    def record_unreported_progress(self, download: Download, file: DownloadFile | None) -> bool:
        """Record the progress of a download that the browser does not report. See `record_progress`.

        `file` is None if the file is gone, because the download was cancelled.
        """
        if file is None:
            download.state = "canceled"
            return False
        download.received = file.size
        if self._limit(download):
            return True
        if file.is_complete:
            download.state = "completed"
        return False

    def _limit(self, download: Download) -> bool:
        """Cancel a download in progress if the stage's downloads together are too large. Return whether it was cancelled."""
        kept = sum(other.received for other in self._listed.values() if other.state != "canceled")
        if kept <= MAX_DOWNLOAD_BYTES or download.state != "inProgress":
            return False
        download.state, download.reason = "canceled", "the stage's downloads are too large"
        self._refused.append(download.guid)
        return True
