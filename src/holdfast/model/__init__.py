"""The domain model: frozen values that need only the standard library."""
