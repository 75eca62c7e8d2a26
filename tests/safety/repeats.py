"""How often random attacks are repeated: a few times in `make test`, HOLDFAST_REPEATS times as often in `make fuzz`."""

import os

REPEATS = int(os.environ.get("HOLDFAST_REPEATS", "1"))
