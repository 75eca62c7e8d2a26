"""How much a stage keeps, and how long its tools wait."""

MAX_STAGES = 20
MAX_TABS = 30
MAX_FRAMES = 200
"""Frames of a tab that a snapshot includes."""
MAX_CONSOLE = 300
MAX_REQUESTS = 500
MAX_HEADERS = 60
"""Headers of one request or response."""
MAX_HEADER = 300
"""Characters of one header."""
MAX_DIALOGS = 50
MAX_NOTICES = 20
MAX_TEXT = 2000
"""Characters of one message, address or title that a page wrote."""
MAX_SNAPSHOTS = 5
MAX_KEPT_ANSWERS = 5
"""Answers whose lines did not fit, and can still be continued."""
MAX_DOWNLOADS = 50
MAX_DOWNLOAD_BYTES = 200 * 1024 * 1024
MAX_UPLOAD_BYTES = 100 * 1024 * 1024

SCRIPT_SECONDS = 10.0
"""How long a page may take to answer before it counts as hung."""
ACTION_SECONDS = 5.0
LOAD_SECONDS = 15.0
SETTLE_SECONDS = 1.5
"""How long an action waits for its consequences: requests that it started, and changes of the page."""
