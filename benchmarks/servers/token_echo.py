"""An echo server on our toolkit that verifies tokens with the library named first: `token_echo.py PyJWT --http …`."""

import sys

import holdfast.token
from benchmarks.jose import LIBRARIES
from holdfast.toolkit import Toolbox

box = Toolbox("echo", version="1")


@box.tool()
async def echo(text: str) -> str:
    """Echo."""
    return text


if __name__ == "__main__":
    holdfast.token.Verifier = LIBRARIES[sys.argv[1]].verifier  # type: ignore[misc,assignment]  # pyright: ignore
    box.main(sys.argv[2:])
