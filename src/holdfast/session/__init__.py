"""A session from open to close: its servers, its calls, its record."""
