-- The agent runtime: profiles of teams, what happened, and runners that offered themselves.
CREATE TABLE runtime_profiles (
    team_id       TEXT NOT NULL,
    name          TEXT NOT NULL,
    record        TEXT NOT NULL,          -- JSON as it was given; may hold secrets
    created_at_us BIGINT NOT NULL,
    updated_at_us BIGINT NOT NULL,
    PRIMARY KEY (team_id, name)
);

-- The id is the time in microseconds, made unique. Secrets are masked before a row is written.
CREATE TABLE runtime_events (
    id         BIGINT PRIMARY KEY,
    team_id    TEXT NOT NULL,
    type       TEXT NOT NULL,             -- 'sandbox.created', ...
    sandbox_id TEXT NOT NULL,             -- '' = none; likewise below
    session_id TEXT NOT NULL,
    process_id TEXT NOT NULL,
    agent_id   TEXT NOT NULL,
    json       TEXT NOT NULL              -- the whole event, as it is told
);
CREATE INDEX runtime_events_by_team ON runtime_events (team_id, id);
CREATE INDEX runtime_events_by_sandbox ON runtime_events (sandbox_id, id) WHERE sandbox_id <> '';
CREATE INDEX runtime_events_by_session ON runtime_events (session_id, id) WHERE session_id <> '';
CREATE INDEX runtime_events_by_process ON runtime_events (process_id, id) WHERE process_id <> '';
CREATE INDEX runtime_events_by_agent ON runtime_events (agent_id, id) WHERE agent_id <> '';

CREATE TABLE runtime_runners (
    team_id         TEXT NOT NULL,
    name            TEXT NOT NULL,
    base_url        TEXT NOT NULL,
    token           TEXT NOT NULL,        -- a secret; '' = none
    max_sessions    BIGINT NOT NULL,
    active_sessions BIGINT NOT NULL,      -- as its last heartbeat said
    heartbeat_at_us BIGINT NOT NULL,
    created_at_us   BIGINT NOT NULL,
    PRIMARY KEY (team_id, name)
);
