"""Tests that you can run on your own stores: `holdfast.testing.store_contract`."""
