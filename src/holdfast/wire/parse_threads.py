"""The threads that parse long messages, so that the event loop is not blocked."""

from holdfast.model.worker_threads import WorkerThreads

LONG_BYTES = 1024 * 1024
"""A longer message is parsed in a thread."""
PARSE_THREADS = WorkerThreads("parse", threads=4, per_owner=2)
