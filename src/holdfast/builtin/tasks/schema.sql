CREATE TABLE IF NOT EXISTS tasks (
    workspace  TEXT    NOT NULL,
    number     INTEGER NOT NULL,
    title      TEXT    NOT NULL,
    body       TEXT    NOT NULL,
    status     TEXT    NOT NULL,
    created_at TEXT    NOT NULL,
    updated_at TEXT    NOT NULL,
    created_by TEXT    NOT NULL,
    PRIMARY KEY (workspace, number)
) STRICT, WITHOUT ROWID;
