"""A client of the Chrome DevTools Protocol: typed commands and events over a pipe or a WebSocket."""
