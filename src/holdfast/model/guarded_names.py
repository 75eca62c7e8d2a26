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
    *(".jj", ".pre-commit-config.yaml", ".pre-commit-config.yml", "prek.toml", ".overcommit.yml", ".aider.conf.yml"),
    # lefthook merges each `-local` file with the other one, so a new file adds hooks.
    *(f"{dot}lefthook{local}.{suffix}" for local in ("", "-local") for dot in ("", ".") for suffix in ("yml", "yaml", "toml", "json")),
    *(".lefthook", ".lefthook-local"),
    # mise trusts a file by its path, not by its content, and runs the hooks in the file when the shell changes into the folder.
    *("mise.toml", ".mise.toml", "mise.local.toml", ".mise.local.toml", ".mise", ".rtx.toml", ".tool-versions", ".shadowenv.d"),
    *(".cargo", ".npmrc", ".yarnrc", ".yarnrc.yml", ".pnpmfile.cjs", ".pnpmfile.mjs", ".bundle", ".mvn", ".bazelrc"),
    *(".pdbrc", ".Rprofile", ".Renviron", ".irbrc", ".pryrc", ".rdbgrc", ".byebugrc", ".perldb", ".iex.exs", ".ghci"),
    *(".gdbinit", ".lldbinit", ".devcontainer.json", ".helix", ".lazy.lua", ".nvim.lua", ".nvimrc", ".vimrc", ".exrc"),
    *(".dir-locals.el", ".dir-locals-2.el", ".fleet", ".run", ".vs"),
    *(".opencode", "opencode.json", "opencode.jsonc", ".crush.json", "crush.json", ".kiro", ".roo", ".qwen"),
    *(".amazonq", ".windsurf", ".continue", ".junie", ".kilocode", ".trae", ".augment", ".factory", ".goose"),
)  # fmt: skip
"""Further names that a confined server may not change if they exist. It may create them if they are missing: the sandbox
would guard a missing name with an empty folder, and the user's programs fail if they find a folder of such a name."""
INSTRUCTION_FILES = (
    *("AGENTS.md", "CLAUDE.md", "CLAUDE.local.md", "GEMINI.md", "QWEN.md", ".agents"),
    *(".cursorrules", ".windsurfrules", ".clinerules", ".rules", ".goosehints"),
)
"""What the user's agents obey. Guarded like `GUARDED_IF_PRESENT`, but only directly in a root and in this spelling, because the names are
usual for other files (`docs/agents.md`). One of them may be a link to another; the link itself is not guarded."""
PACKAGE_FOLDERS = ("node_modules", ".venv", "venv", "env", ".conda", ".pixi", ".tox", ".nox")
"""Folders of packages. A confined server may not change one that shares files with a store of the user, by hard links."""
WRITABLE_NAMES = (".", *GUARDED_NAMES, *GUARDED_IF_PRESENT, *INSTRUCTION_FILES, *PACKAGE_FOLDERS)
"""What the user can let a confined server change: guarded names, and `.` for a folder with programs that run unconfined."""
