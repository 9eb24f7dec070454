-- Numbers that are given once: the last one of each kind. Whoever takes one changes the row in the same
-- transaction, so that numbers are in the order of commits.
CREATE TABLE counters (
    name  TEXT PRIMARY KEY,
    value BIGINT NOT NULL
);
INSERT INTO counters (name, value) SELECT 'events', coalesce(max(seq), 0) FROM events;
INSERT INTO counters (name, value) SELECT 'audit', coalesce(max(seq), 0) FROM audit;

ALTER TABLE runtime_sessions ADD COLUMN last_message BIGINT NOT NULL DEFAULT 0;
UPDATE runtime_sessions SET last_message = coalesce(
    (SELECT max(seq) FROM runtime_messages WHERE session_id = runtime_sessions.id), 0);

-- The distance of the wall clock to the time since the host booted, as it was last seen; one row.
CREATE TABLE IF NOT EXISTS host_clock (
    boot_id  TEXT PRIMARY KEY,
    clock_us BIGINT NOT NULL
);
