-- What commands printed, of those that asked for it to be kept. Strings are '' where there is nothing.
CREATE TABLE agent_executions (
    id            TEXT PRIMARY KEY,      -- of the process, as its events have it
    team_id       TEXT NOT NULL,
    sandbox_id    TEXT NOT NULL,
    agent_id      TEXT NOT NULL,
    task_id       TEXT NOT NULL,
    actor         TEXT NOT NULL,
    command       TEXT NOT NULL,         -- masked, cut
    error         TEXT NOT NULL,         -- '' = it ran to an end
    exit_code     BIGINT NOT NULL,
    timed_out     BIGINT NOT NULL,
    truncated     BIGINT NOT NULL,
    duration_ms   BIGINT NOT NULL,
    started_at_us BIGINT NOT NULL,
    ended_at_us   BIGINT NOT NULL,
    out_text      TEXT NOT NULL,         -- masked, cut
    err_text      TEXT NOT NULL
);
CREATE INDEX agent_executions_by_sandbox ON agent_executions (sandbox_id, ended_at_us, id);
CREATE INDEX agent_executions_by_team ON agent_executions (team_id, ended_at_us, id);
CREATE INDEX agent_executions_by_end ON agent_executions (ended_at_us);
