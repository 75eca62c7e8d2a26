"""What a server is given that nobody else may read."""

from holdfast.model.mask import secrets_in
from holdfast.model.server import Http, InProcess, ServerSpec, Sse, Stdio


def secrets_of(spec: ServerSpec) -> tuple[str, ...]:
    """The values that a server gets under telling names: in its environment, or in the headers of every request."""
    match spec.transport:
        case Stdio(env=env):
            return secrets_in(env)
        case Http(headers=headers) | Sse(headers=headers):
            return secrets_in(headers)
        case InProcess():
            return ()
