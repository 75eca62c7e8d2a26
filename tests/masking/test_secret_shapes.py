"""Which values look as if they were generated."""

import pytest

from holdfast.masking.secret_shapes import looks_generated

GENERATED = "q7Rk2Zp9Xw4Lm8Tb1Vn6"


@pytest.mark.promise("AUD-04")
@pytest.mark.parametrize(
    "value",
    [
        GENERATED,
        "4f9a2c81d3e7b6a5f0e1",
        "sk-proj-abcdefghijkl",
        "123e4567-e89b-12d3-a456-426614174000",
        "eyJhbGciOiJIUzI1NiJ9",
        "npm_abcdefghijklmnopqrst",
        "pypi-AgEIcHlwaS5vcmcabc",
        "AKIAIOSFODNNEXAMPLE",
        "glpat-abcdefghijklmnop",
    ],
)
def test_generated_value(value: str) -> None:
    assert looks_generated(value)


@pytest.mark.parametrize(
    "value",
    [
        "mcp-server-sqlite3-v2", "@modelcontextprotocol/server-github", "/home/me/4f9a2c81d3e7b6a5f0e1/x", "2026-11-17T10:00:00Z",
        "pkg-config-wrapper", "skeleton-component", "npm-check-updates", "sky-weather-server", "pypi-query-server-x",
        "npm_config_registry", "hf_transfer_enabled", "ModelContextProtocolServer", "configuration-file", "12345678901234567890", "sha256:" + "ab12" * 16,
    ],
)  # fmt: skip
def test_value_that_is_not_generated(value: str) -> None:
    assert not looks_generated(value)
