"""The built-in server `files`: tools to read and change the files in a session's folders."""
