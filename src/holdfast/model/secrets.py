"""What a server is given that nobody else may read."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from holdfast.model.mask import secrets_in, tells
from holdfast.model.server import Http, InProcess, ServerSpec, Sse, Stdio


def secrets_of(spec: ServerSpec) -> tuple[str, ...]:
    """The values that a server gets under telling names: in its environment, its arguments, its headers."""
    match spec.transport:
        case Stdio(env=env, args=args):
            return (*spec.secrets, *secrets_in(env), *_in_arguments(args))
        case Http(headers=headers) | Sse(headers=headers):
            return (*spec.secrets, *secrets_in(headers))
        case InProcess():
            return ()


def _in_arguments(args: Sequence[str]) -> Iterator[str]:
    """`--api-key=VALUE`, and `--api-key VALUE`."""
    for option, after in pairwise((*args, "")):
        name, given, value = option.partition("=")
        if name.startswith("-") and tells(name):
            yield value if given else after
