-- Sessions of the agent runtime, and the messages that wait for their agent.
CREATE TABLE agent_sessions (
    id            TEXT PRIMARY KEY,
    team_id       TEXT NOT NULL REFERENCES teams (id),
    state         TEXT NOT NULL,          -- created, running, paused, completed, failed, canceled
    reason        TEXT NOT NULL,
    sandbox_id    TEXT NOT NULL,          -- of the runtime; '' before it is there
    owns_sandbox  BIGINT NOT NULL,
    agent         TEXT NOT NULL,
    repo          TEXT NOT NULL,
    branch        TEXT NOT NULL,
    profile       TEXT NOT NULL,
    provider      TEXT NOT NULL,
    permission    TEXT NOT NULL,
    mode          TEXT NOT NULL,
    snapshot_id   TEXT NOT NULL,
    checkpoint    TEXT NOT NULL,
    agent_id      TEXT NOT NULL,
    task_id       TEXT NOT NULL,
    acp_server    TEXT NOT NULL,
    acp_session   TEXT NOT NULL,
    agent_token   TEXT NOT NULL,          -- of the server in the sandbox
    workdir       TEXT NOT NULL,
    port          BIGINT NOT NULL,
    last_acp_id   BIGINT NOT NULL,        -- events of the agent up to here were seen
    created_at_us BIGINT NOT NULL,
    updated_at_us BIGINT NOT NULL
);
CREATE INDEX agent_sessions_by_team ON agent_sessions (team_id, created_at_us);
CREATE INDEX agent_sessions_by_sandbox ON agent_sessions (sandbox_id, created_at_us);
CREATE INDEX agent_sessions_by_state ON agent_sessions (state);

CREATE TABLE agent_messages (
    session_id TEXT NOT NULL REFERENCES agent_sessions (id),
    seq        BIGINT NOT NULL,
    text       TEXT NOT NULL,
    PRIMARY KEY (session_id, seq)
);
