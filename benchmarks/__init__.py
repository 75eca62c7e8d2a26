"""Compares Holdfast with peers: both sides are measured in one run, on the same machine."""
