"""The names in a project that a confined server may not change, because version control, editors and agents execute or obey such files."""

GUARDED_NAMES = (
    *(".git", ".hg", ".githooks", ".husky", ".envrc"),
    *(".vscode", ".idea", ".zed", ".devcontainer"),
    *(".mcp.json", ".holdfast", ".claude", ".cursor", ".codex", ".gemini"),
)
"""Files and folders of a project that the user's version control, editors and agents read as settings or execute.

A confined server may not create or change them, unless `Confinement.writable` names them.
"""
GUARDED_IF_PRESENT = (
    *(".jj", ".pre-commit-config.yaml", "lefthook.yml", ".lefthook.yml", ".aider.conf.yml"),
    *(".cargo", ".yarnrc", ".yarnrc.yml", ".pnpmfile.cjs", ".pdbrc", ".Rprofile", ".irbrc", ".ghci"),
    *(".devcontainer.json", ".helix", ".lazy.lua", ".nvim.lua", ".exrc", ".fleet", ".run", ".vs"),
    *(".opencode", "opencode.json", ".kiro", ".roo", ".qwen", ".amazonq", ".windsurf", ".continue"),
)
"""Further names that a confined server may not change if they exist. It may create them if they are missing: the sandbox
would guard a missing name with an empty folder, and the user's programs fail if they find a folder of such a name."""
PACKAGE_FOLDERS = ("node_modules", ".venv", "venv", "env", ".conda", ".pixi", ".tox", ".nox")
"""Folders of packages. A confined server may not change one that shares files with a store of the user, by hard links."""
WRITABLE_NAMES = (".", *GUARDED_NAMES, *GUARDED_IF_PRESENT, *PACKAGE_FOLDERS)
"""What the user can let a confined server change: guarded names, and `.` for a folder with programs that run unconfined."""
