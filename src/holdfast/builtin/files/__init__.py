"""Files of the session's folders."""
