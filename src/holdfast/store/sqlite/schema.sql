-- The store's tables. A new version is a new section at the end; the SQL of a released section never changes.
-- A file of version n gets every section after n, in one transaction.
-- Comments stand before statements, not inside them: SQLite stores a comment inside a statement with the schema, and
-- `holdfast store check` compares the schema.

-- version 1

CREATE TABLE meta (
    name TEXT PRIMARY KEY,
    value BLOB NOT NULL
) STRICT, WITHOUT ROWID;

-- Both are random: the secret that signs the cursors of queries, and the id that the store's audit chain starts with.
INSERT INTO meta (name, value) VALUES ('cursor_secret', randomblob(32)), ('store_id', randomblob(16));

-- The state of a session after its last event, for lists and searches. Events set most columns; the title, the
-- tags, the settings and the folders can also be changed without an event.
-- n: a short number for the session, which other tables have as session_n, instead of the text session_id.
-- open_turn: the id of the turn that has no end yet, or ''.
-- resolved_seq: the number of the latest ServersResolved event, or 0.
-- indexed_seq: the number of the last event whose text is in the search index.
-- unindexed: 1 if there are later messages that are not in the index yet.
CREATE TABLE sessions (
    n INTEGER PRIMARY KEY,
    session_id TEXT NOT NULL UNIQUE,
    workspace_id TEXT NOT NULL,
    trust_level TEXT NOT NULL CHECK (trust_level IN ('direct', 'sandboxed')),
    user_id TEXT,
    parent_session_id TEXT,
    cwd TEXT NOT NULL,
    roots TEXT NOT NULL,
    title TEXT NOT NULL,
    tags TEXT NOT NULL,
    source TEXT NOT NULL,
    settings TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('open', 'closed')),
    created INTEGER NOT NULL,
    updated INTEGER NOT NULL,
    open_turn TEXT NOT NULL DEFAULT '',
    resolved_seq INTEGER NOT NULL DEFAULT 0,
    indexed_seq INTEGER NOT NULL DEFAULT 0,
    unindexed INTEGER NOT NULL DEFAULT 0
) STRICT;

CREATE INDEX sessions_latest ON sessions (updated, n);
CREATE INDEX sessions_of_workspace ON sessions (workspace_id, updated, n);
CREATE INDEX sessions_of_parent ON sessions (parent_session_id) WHERE parent_session_id IS NOT NULL;
-- No query uses this index at present.
CREATE INDEX sessions_in_a_turn ON sessions (n) WHERE open_turn <> '';
CREATE INDEX sessions_unindexed ON sessions (n) WHERE unindexed;

-- Clustered by session (session_n is sessions.n), so that the events of one session are on consecutive pages.
-- seq counts from 1 in each session; key is the key of events that are stored only once.
CREATE TABLE events (
    session_n INTEGER NOT NULL REFERENCES sessions (n) ON DELETE CASCADE,
    seq INTEGER NOT NULL CHECK (seq > 0),
    at INTEGER NOT NULL,
    kind TEXT NOT NULL,
    key TEXT,
    body BLOB NOT NULL,
    PRIMARY KEY (session_n, seq)
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX events_by_key ON events (session_n, key) WHERE key IS NOT NULL;

-- One row per searchable message; the one with the empty message_id is the session's title.
CREATE TABLE messages (
    id INTEGER PRIMARY KEY,
    session_n INTEGER NOT NULL REFERENCES sessions (n) ON DELETE CASCADE,
    message_id TEXT NOT NULL,
    first_seq INTEGER NOT NULL,
    UNIQUE (session_n, message_id)
) STRICT;

-- The full-text index. Its rowid is messages.id; text is the text of the message, up to the first million characters.
CREATE VIRTUAL TABLE words USING fts5 (text, tokenize = 'unicode61 remove_diacritics 2');

-- holder: the random id of an open store. The columns from machine to started identify the process that has it open.
CREATE TABLE leases (
    session_n INTEGER PRIMARY KEY REFERENCES sessions (n) ON DELETE CASCADE,
    holder TEXT NOT NULL,
    machine TEXT NOT NULL,
    boot TEXT NOT NULL,
    namespace TEXT NOT NULL,
    pid INTEGER NOT NULL,
    started TEXT NOT NULL,
    until INTEGER NOT NULL
) STRICT;

CREATE INDEX leases_of_holder ON leases (holder);

-- what: the key of what was approved, such as a server, a tool or an agent. content_hash: the hash of what was shown.
CREATE TABLE approvals (
    what TEXT NOT NULL,
    content_hash TEXT NOT NULL,
    approved_by TEXT NOT NULL,
    at INTEGER NOT NULL,
    PRIMARY KEY (what, content_hash)
) STRICT, WITHOUT ROWID;

-- The hash chain of the audit. Its rows stay when their session is deleted.
CREATE TABLE audit (
    seq INTEGER PRIMARY KEY,
    body TEXT NOT NULL,
    digest BLOB NOT NULL
) STRICT;

CREATE INDEX audit_of_session ON audit (json_extract(body, '$.session_id'), seq);

-- version 2

-- agent: the id of the sub-agent that the event is about; '' for the main agent.
-- parent_call: the id of the call that this sub-agent works for, or ''. cause: the id of the message that started the turn, or ''.
ALTER TABLE events ADD COLUMN agent TEXT NOT NULL DEFAULT '';
ALTER TABLE events ADD COLUMN parent_call TEXT NOT NULL DEFAULT '';
ALTER TABLE events ADD COLUMN cause TEXT NOT NULL DEFAULT '';

-- In version 1, the kinds were the names of classes.
UPDATE events SET kind = CASE kind
    WHEN 'SessionOpened' THEN 'session_opened'
    WHEN 'SessionClosed' THEN 'session_closed'
    WHEN 'ServersResolved' THEN 'servers_resolved'
    WHEN 'TrustLowered' THEN 'trust_lowered'
    WHEN 'Titled' THEN 'titled'
    WHEN 'ModeChanged' THEN 'mode_changed'
    WHEN 'Prompted' THEN 'prompted'
    WHEN 'Replied' THEN 'replied'
    WHEN 'Thought' THEN 'thought'
    WHEN 'Planned' THEN 'planned'
    WHEN 'ToolCalled' THEN 'tool_called'
    WHEN 'ToolStarted' THEN 'tool_started'
    WHEN 'ToolEnded' THEN 'tool_ended'
    WHEN 'PermissionDecided' THEN 'permission_decided'
    WHEN 'TurnEnded' THEN 'turn_ended'
    ELSE kind
END;

-- The last epoch that was given out. It only rises, even when leases and sessions are deleted.
CREATE TABLE epochs (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    last INTEGER NOT NULL
) STRICT;

INSERT INTO epochs (id, last) VALUES (1, 0);

-- Who holds a session. epoch is the epoch of the hold. It has no default, so that a process of an earlier version cannot
-- acquire a session.
DROP TABLE leases;

CREATE TABLE leases (
    session_n INTEGER PRIMARY KEY REFERENCES sessions (n) ON DELETE CASCADE,
    epoch INTEGER NOT NULL UNIQUE,
    holder TEXT NOT NULL,
    machine TEXT NOT NULL,
    boot TEXT NOT NULL,
    namespace TEXT NOT NULL,
    pid INTEGER NOT NULL,
    started TEXT NOT NULL,
    until INTEGER NOT NULL
) STRICT;

CREATE INDEX leases_of_holder ON leases (holder);

-- Approvals cover more than in version 1, so the user is asked once again.
DELETE FROM approvals;

-- The same rows with the same digests, in book 0. A store that several hosts write to at once has a book for each.
-- The index by session is dropped, because every call had to write a page of it, and few people ever used it.
DROP INDEX audit_of_session;
ALTER TABLE audit RENAME TO audit_of_version_1;

CREATE TABLE audit (
    book INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    body TEXT NOT NULL,
    digest BLOB NOT NULL,
    PRIMARY KEY (book, seq)
) STRICT, WITHOUT ROWID;

INSERT INTO audit (book, seq, body, digest) SELECT 0, seq, body, digest FROM audit_of_version_1;
DROP TABLE audit_of_version_1;

-- version 3

-- Messages between the sessions of a workspace. sender is the id of the session that sent it, which may be deleted by now.
-- delivered: the number of the event in the target's turn that contains the message; 0 if it is not delivered.
CREATE TABLE inbox (
    n INTEGER PRIMARY KEY,
    message_id TEXT NOT NULL UNIQUE,
    target_n INTEGER NOT NULL REFERENCES sessions (n) ON DELETE CASCADE,
    sender TEXT NOT NULL,
    sender_title TEXT NOT NULL,
    text TEXT NOT NULL,
    sent INTEGER NOT NULL,
    delivered INTEGER NOT NULL DEFAULT 0
) STRICT;

CREATE INDEX inbox_of_session ON inbox (target_n, n);
CREATE INDEX inbox_undelivered ON inbox (target_n) WHERE delivered = 0;
