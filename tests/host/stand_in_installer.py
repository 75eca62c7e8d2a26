"""A stand-in for `npm install`, `bun add`, `uv tool install` and `pipx install`: it fetches one file from a registry, and
installs it as a package with a program, in the folders that the real one uses."""

import hashlib
import json
import os
import sys
import urllib.request
from pathlib import Path

installer, words = Path(sys.argv[0]).name, sys.argv[1:]
spec = next(word for word in words if word.startswith("fetched"))
name, _, version = spec.replace("==", "@").partition("@")
address = f"{os.environ['NPM_CONFIG_REGISTRY']}/{name}@{version or 'latest'}"
with urllib.request.urlopen(address, timeout=20) as answer:
    found = json.load(answer)
folder = Path.cwd()
if installer in ("npm", "bun"):
    package, programs = folder / "node_modules" / name, folder / "node_modules" / ".bin"
else:
    tools = Path(os.environ["UV_TOOL_DIR"] if installer == "uv" else os.environ["PIPX_HOME"])
    environment = tools / name if installer == "uv" else tools / "venvs" / name
    package = environment / "lib" / "python3" / "site-packages" / name
    (environment / "bin").mkdir(parents=True)
    (environment / "bin" / "python").symlink_to(os.path.realpath(sys.executable))
    programs = Path(os.environ["UV_TOOL_BIN_DIR" if installer == "uv" else "PIPX_BIN_DIR"])
    record = package.parent / f"{name}-{found['version']}.dist-info" / "RECORD"
    record.parent.mkdir(parents=True)
    record.write_text(hashlib.sha256(found["script"].encode()).hexdigest())
package.mkdir(parents=True)
script = package / "server.py"
script.write_text(found["script"])
script.chmod(0o755)
manifest = {"name": name, "version": found["version"], "bin": {name: "server.py"}}
(package / "package.json").write_text(json.dumps(manifest))
(package / "seen.json").write_text(
    json.dumps({path: Path(path).exists() for path in json.loads(found["look_for"])})
)
for number in range(found["size"]):
    (package / f"large{number}").write_bytes(os.urandom(1024) * 1024)
programs.mkdir(parents=True)
(programs / name).symlink_to(script)
(folder / "package-lock.json").write_text(hashlib.sha256(found["script"].encode()).hexdigest())
