"""Try a sandbox out: the smallest program, behind every wall."""

import asyncio
import shutil

from holdfast.model.errors import HoldfastError
from holdfast.model.launch import Confinement, Launch
from holdfast.sandbox.confined import raise_walls
from holdfast.sandbox.sandbox import Availability, Sandbox
from holdfast.sandbox.wards import Wards

_SECONDS = 20.0


async def try_out(sandbox: Sandbox) -> Availability:
    """Run `true` inside: whether that worked, or why not."""
    launch = Launch(argv=(shutil.which("true") or "/bin/true",), env={}, cwd="/", confinement=Confinement())
    wards = Wards()
    wards.open()
    try:
        async with asyncio.timeout(_SECONDS):
            child = await raise_walls(wards, sandbox, launch)
            try:
                code = await child.wait()
                words = child.stderr.read(2000).decode(errors="replace").strip()
            finally:
                child.close()
    except HoldfastError as error:
        return Availability(works=False, reason=error.message)
    except TimeoutError:
        return Availability(
            works=False, reason=f"{sandbox.name} hangs: it did not run 'true' in {_SECONDS:g} seconds."
        )
    finally:
        await wards.close()
    if code == 0:
        return Availability(works=True)
    return Availability(
        works=False,
        reason=f"{sandbox.name} fails here: {words or f'exit code {code}'}. {_advice(words)}".rstrip(),
    )


def _advice(words: str) -> str:
    if "user namespace" in words or "uid map" in words:
        return "Allow unprivileged user namespaces (sysctl kernel.unprivileged_userns_clone=1, kernel.apparmor_restrict_unprivileged_userns=0), or configure a container engine."
    if "nknown option" in words:
        return "Install bubblewrap 0.8 or newer."
    return ""
