"""Decide which servers a session gets: load → validate → admit → select → inject → confine, one file each.

Between admit and select, `expand` replaces the variables of the admitted entries by their values. It completes the validation,
so its refusals have the stage `validate`. `inputs` collects what the stages need, and `resolve` runs them.

The other files:

- Entries: `server_entry`, `entry_summary`, `server_names`, `check_transport`, `server_environment`, `json_with_comments`; `other_clients` imports
  entries from the config files of other MCP clients; `last_good` keeps the entries of a config file while it is damaged.
- What a command runs: `read_program` finds the files of a `program`, with `collect_commands`, `collect_packages` and `collect_files`;
  they use `command_words`, `manifests`, `program_imports`, `bytecode`, `project_folders`, `script_languages`,
  `version_managers` and `file_hashes`; `approved_variables` says which variables belong to the program; `package_runner` is for `npx` and the like.
- Approvals: `approval_store`, `grant`; `screen_tools` checks the definitions of tools.
- Paths that sandboxed sessions must not change or see: `unconfined_paths`, `executed_paths`, `protected_paths`.
- Where a server starts: `relative_code` finds variables that make it load code from its working folder.
"""
