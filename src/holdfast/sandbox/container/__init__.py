"""The container backend: podman or docker."""
