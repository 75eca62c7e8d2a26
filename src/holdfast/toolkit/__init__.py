"""Write MCP servers that know their session.

```python
from holdfast.toolkit import Call, Toolbox, Workspace

box = Toolbox("notes", version="1.0")

@box.tool(operation="query")
async def describe_caller(workspace: Workspace, call: Call) -> dict[str, str]:
    "Return the workspace and the trust of this call."
    return {"workspace": workspace.slug, "trust": call.session.trust_level if call.session else "unknown"}

if __name__ == "__main__":
    box.main()
```
"""

from typing import TYPE_CHECKING, Any

from msgspec import Meta

from holdfast.model.codes import Code
from holdfast.model.context import SessionContext
from holdfast.model.context_aliases import ContextAliases
from holdfast.model.errors import HoldfastError
from holdfast.model.trust import Trust
from holdfast.model.workspace import Workspace
from holdfast.toolkit.call import Call, current_call, current_session
from holdfast.toolkit.content import Audio, Content, Image, Reply, Resource, ResourceLink, Text
from holdfast.toolkit.driven_sessions import DrivenSessions, SessionManager
from holdfast.toolkit.errors import ToolError
from holdfast.toolkit.given import Given
from holdfast.toolkit.guards import Guard, direct_only, needs_session
from holdfast.toolkit.observers import Observation, Observer
from holdfast.toolkit.operation import Annotations, Operation
from holdfast.toolkit.paging import Page, paginate
from holdfast.toolkit.parameter import Header
from holdfast.toolkit.tool import ToolDefinition, define_tool
from holdfast.toolkit.toolbox import Toolbox

if TYPE_CHECKING:
    from holdfast.toolkit.completion import Completion
    from holdfast.toolkit.message import Message
    from holdfast.toolkit.sampling import Root, Sample

__all__ = [
    "Annotations",
    "Audio",
    "Call",
    "Code",
    "Completion",
    "Content",
    "ContextAliases",
    "DrivenSessions",
    "Given",
    "Guard",
    "Header",
    "HoldfastError",
    "Image",
    "Message",
    "Meta",
    "Observation",
    "Observer",
    "Operation",
    "Page",
    "Reply",
    "Resource",
    "ResourceLink",
    "Root",
    "Sample",
    "SessionContext",
    "SessionManager",
    "Text",
    "ToolDefinition",
    "ToolError",
    "Toolbox",
    "Trust",
    "Workspace",
    "current_call",
    "current_session",
    "define_tool",
    "direct_only",
    "needs_session",
    "paginate",
]

_LAZY_MODULES = {
    "Completion": "holdfast.toolkit.completion",
    "Message": "holdfast.toolkit.message",
    "Root": "holdfast.toolkit.sampling",
    "Sample": "holdfast.toolkit.sampling",
}


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    """Import a name that few servers need when it is first used."""
    if name not in _LAZY_MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_LAZY_MODULES[name]), name)
