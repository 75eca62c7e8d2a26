"""Ten typical tools on the toolkit, with the envelope in `_meta`."""

from benchmarks.servers.typical_tools import CALLS
from holdfast.toolkit import Toolbox

box = Toolbox("typical", envelope="meta")
for function, _ in CALLS:
    box.tool(function)

if __name__ == "__main__":
    box.main()
