"""The lowest layer: frozen values, and helpers for files, threads, addresses and text. It needs only the standard library, and msgspec for calls, events and a few other values."""
