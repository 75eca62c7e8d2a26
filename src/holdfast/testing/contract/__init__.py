"""The parts of what every store must do; `holdfast.testing.store_contract` has the whole."""
