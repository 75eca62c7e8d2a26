"""The lowest layer: frozen values, and helpers for files, threads, addresses and text.

It needs only the standard library and, for calls and events, msgspec.
"""
