"""The built-in server `stage`: tools that drive Chromium for a session."""
