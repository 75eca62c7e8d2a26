"""The built-in server `shell`: runs commands in the session's folders."""
