-- What happened to sandboxes, written in the same transaction as the change itself. Read as events, as
-- logs and by webhooks. What the sandbox was at that time is copied.
CREATE TABLE events (
    seq         BIGINT PRIMARY KEY,
    id          TEXT NOT NULL,            -- UUID
    team_id     TEXT NOT NULL,
    sandbox_id  TEXT NOT NULL,
    template_id TEXT NOT NULL,
    type        TEXT NOT NULL,            -- 'created', 'updated', 'paused', ...
    level       BIGINT NOT NULL,          -- 0 debug, 1 info, 2 warn, 3 error
    message     TEXT NOT NULL,
    detail      TEXT NOT NULL,            -- 'memory', 'disk', why it ended, ...; '' = nothing
    at_us       BIGINT NOT NULL,
    since_us    BIGINT NOT NULL,          -- when it was made or resumed last
    cpu_count   BIGINT NOT NULL,
    mem_mb      BIGINT NOT NULL,
    metadata    TEXT NOT NULL
);
CREATE INDEX events_by_sandbox ON events (sandbox_id, seq);
CREATE INDEX events_by_team ON events (team_id, seq);
