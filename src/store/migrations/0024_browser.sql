-- Browsers that programs steer (Browserbase's API): sessions, profiles that are kept, and extensions.
CREATE TABLE browser_sessions (
    id            TEXT PRIMARY KEY,
    team_id       TEXT NOT NULL,
    sandbox_id    TEXT NOT NULL,
    context_id    TEXT NOT NULL,          -- '' = none
    status        TEXT NOT NULL,          -- RUNNING, COMPLETED, TIMED_OUT, ERROR
    region        TEXT NOT NULL,
    metadata      TEXT NOT NULL,          -- JSON, an object; '' = none
    keep_alive    BIGINT NOT NULL,        -- it goes on when its client leaves
    persist       BIGINT NOT NULL,        -- it is the one that writes to its context
    created_at_us BIGINT NOT NULL,
    updated_at_us BIGINT NOT NULL,
    expires_at_us BIGINT NOT NULL,
    ended_at_us   BIGINT NOT NULL         -- 0 = not yet
);
CREATE INDEX browser_sessions_by_team ON browser_sessions (team_id, created_at_us);

CREATE TABLE browser_contexts (
    id            TEXT PRIMARY KEY,
    team_id       TEXT NOT NULL,
    volume_id     TEXT NOT NULL,
    created_at_us BIGINT NOT NULL,
    updated_at_us BIGINT NOT NULL
);
CREATE INDEX browser_contexts_by_team ON browser_contexts (team_id);

CREATE TABLE browser_extensions (
    id            TEXT PRIMARY KEY,
    team_id       TEXT NOT NULL,
    file_name     TEXT NOT NULL,
    created_at_us BIGINT NOT NULL,
    updated_at_us BIGINT NOT NULL
);
CREATE INDEX browser_extensions_by_team ON browser_extensions (team_id);
