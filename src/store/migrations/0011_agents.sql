-- What the agent runtime remembers of its sandboxes, snapshots and jobs. Strings are '' where there is
-- nothing; times are 0.
CREATE TABLE agent_instance (
    id   TEXT PRIMARY KEY,               -- 'id'
    name TEXT NOT NULL                   -- random: on the labels of everything this store has made
);

CREATE TABLE agent_sandboxes (
    id               TEXT PRIMARY KEY,
    team_id          TEXT NOT NULL,
    sandbox_key      TEXT NOT NULL,      -- '' = found by its id only
    spec_hash        TEXT NOT NULL,
    provider         TEXT NOT NULL,
    external_id      TEXT NOT NULL,      -- '' while it is being made
    token            TEXT NOT NULL,      -- of the agent in it: a secret
    address          TEXT NOT NULL,
    cdp_url          TEXT NOT NULL,      -- has a secret in its query
    image            TEXT NOT NULL,
    profile          TEXT NOT NULL,
    settings         TEXT NOT NULL,      -- JSON: what later operations need of the profile
    metadata         TEXT NOT NULL,      -- JSON
    state            TEXT NOT NULL,      -- creating, running, paused, killed, error
    error            TEXT NOT NULL,
    agent_id         TEXT NOT NULL,
    task_id          TEXT NOT NULL,
    snapshot_id      TEXT NOT NULL,
    idle_s           BIGINT NOT NULL,
    max_lifetime_s   BIGINT NOT NULL,
    persistent       BIGINT NOT NULL,
    cpu              BIGINT NOT NULL,
    created_at_us    BIGINT NOT NULL,
    last_used_at_us  BIGINT NOT NULL,
    running_since_us BIGINT NOT NULL,    -- 0 = it does not run
    destroyed_at_us  BIGINT NOT NULL,    -- 0 = alive
    ran_us           BIGINT NOT NULL,    -- until running_since
    commands         BIGINT NOT NULL,
    jobs             BIGINT NOT NULL,
    create_ms        BIGINT NOT NULL
);
-- The claim: of those that race for a key, one gets its row in.
CREATE UNIQUE INDEX agent_sandboxes_by_key ON agent_sandboxes (team_id, sandbox_key, spec_hash)
    WHERE destroyed_at_us = 0 AND sandbox_key <> '';
CREATE INDEX agent_sandboxes_by_team ON agent_sandboxes (team_id, created_at_us);
CREATE INDEX agent_sandboxes_live ON agent_sandboxes (provider, last_used_at_us)
    WHERE destroyed_at_us = 0;

CREATE TABLE agent_snapshots (
    id            TEXT PRIMARY KEY,
    team_id       TEXT NOT NULL,
    alias         TEXT NOT NULL,         -- '' = none
    kind          TEXT NOT NULL,
    provider      TEXT NOT NULL,
    external_id   TEXT NOT NULL,
    sandbox_id    TEXT NOT NULL,
    image         TEXT NOT NULL,
    state         TEXT NOT NULL,         -- creating, ready, error, expired
    created_at_us BIGINT NOT NULL,
    expires_at_us BIGINT NOT NULL        -- 0 = never
);
CREATE UNIQUE INDEX agent_snapshots_by_alias ON agent_snapshots (team_id, alias) WHERE alias <> '';
CREATE INDEX agent_snapshots_by_sandbox ON agent_snapshots (sandbox_id, created_at_us);
CREATE INDEX agent_snapshots_by_end ON agent_snapshots (expires_at_us) WHERE expires_at_us > 0;

CREATE TABLE agent_jobs (
    id            TEXT PRIMARY KEY,
    team_id       TEXT NOT NULL,
    sandbox_id    TEXT NOT NULL,
    agent_id      TEXT NOT NULL,
    actor         TEXT NOT NULL,
    command       TEXT NOT NULL,         -- masked, cut
    run_as        TEXT NOT NULL,         -- '' = the default user
    has_input     BIGINT NOT NULL,
    state         TEXT NOT NULL,         -- running, completed, failed, cancelled
    stopping      BIGINT NOT NULL,
    has_exit_code BIGINT NOT NULL,
    exit_code     BIGINT NOT NULL,
    error         TEXT NOT NULL,
    started_at_us BIGINT NOT NULL,
    ended_at_us   BIGINT NOT NULL
);
CREATE INDEX agent_jobs_by_sandbox ON agent_jobs (sandbox_id, started_at_us);
CREATE INDEX agent_jobs_running ON agent_jobs (sandbox_id) WHERE state = 'running';

-- Whom to tell about the end of a job. body is '' until the job has ended.
CREATE TABLE agent_job_callbacks (
    job_id     TEXT PRIMARY KEY REFERENCES agent_jobs (id),
    url        TEXT NOT NULL,
    token      TEXT NOT NULL,
    body       TEXT NOT NULL,
    state      TEXT NOT NULL,            -- waiting, pending, delivered, failed
    attempts   BIGINT NOT NULL,
    next_at_us BIGINT NOT NULL
);
CREATE INDEX agent_job_callbacks_due ON agent_job_callbacks (next_at_us) WHERE state = 'pending';
