"""What the tests of the store share."""

import pytest

pytest.register_assert_rewrite("holdfast.testing.store_contract")
