-- Limits of teams (0 = none), creates that may be repeated, and who changed what.
ALTER TABLE teams ADD COLUMN banned BIGINT NOT NULL DEFAULT 0;
ALTER TABLE teams ADD COLUMN max_sandboxes BIGINT NOT NULL DEFAULT 0;   -- running at the same time
ALTER TABLE teams ADD COLUMN max_cpu BIGINT NOT NULL DEFAULT 0;         -- of those
ALTER TABLE teams ADD COLUMN max_mem_mb BIGINT NOT NULL DEFAULT 0;      -- of those
ALTER TABLE teams ADD COLUMN max_disk_mb BIGINT NOT NULL DEFAULT 0;     -- of those and the paused
ALTER TABLE teams ADD COLUMN max_creates BIGINT NOT NULL DEFAULT 0;     -- per minute

CREATE TABLE idempotency (
    team_id       TEXT NOT NULL,
    idem_key      TEXT NOT NULL,
    request_hash  TEXT NOT NULL,
    sandbox_id    TEXT NOT NULL,
    created_at_us BIGINT NOT NULL,
    PRIMARY KEY (team_id, idem_key)
);
CREATE INDEX idempotency_by_time ON idempotency (created_at_us);

CREATE TABLE audit (
    seq        BIGINT PRIMARY KEY,
    at_us      BIGINT NOT NULL,
    team_id    TEXT NOT NULL,
    key_id     TEXT NOT NULL,             -- '' = the one from the configuration
    method     TEXT NOT NULL,
    path       TEXT NOT NULL,
    status     BIGINT NOT NULL,
    request_id TEXT NOT NULL
);
CREATE INDEX audit_by_team ON audit (team_id, seq);
