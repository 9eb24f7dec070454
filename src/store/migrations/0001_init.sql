-- Only what SQLite and PostgreSQL share: text ids, bigint times (microseconds since the epoch),
-- bigint flags (0 or 1).

CREATE TABLE teams (
    id            TEXT PRIMARY KEY,
    name          TEXT NOT NULL,
    created_at_us BIGINT NOT NULL
);

CREATE TABLE api_keys (
    id              TEXT PRIMARY KEY,
    team_id         TEXT NOT NULL REFERENCES teams (id) ON DELETE CASCADE,
    name            TEXT NOT NULL,
    key_hash        TEXT NOT NULL UNIQUE, -- SHA-256 of the key, hex
    mask            TEXT NOT NULL,        -- first and last characters, for people
    created_at_us   BIGINT NOT NULL,
    last_used_at_us BIGINT NOT NULL       -- 0 = never
);
CREATE INDEX api_keys_by_team ON api_keys (team_id, created_at_us);

CREATE TABLE templates (
    id            TEXT PRIMARY KEY,
    team_id       TEXT NOT NULL,          -- '' = belongs to the platform
    alias         TEXT UNIQUE,
    layers        TEXT NOT NULL,          -- lowest first: 'a,b'
    cpu_count     BIGINT NOT NULL,
    mem_mb        BIGINT NOT NULL,
    disk_mb       BIGINT NOT NULL,
    public        BIGINT NOT NULL,
    created_at_us BIGINT NOT NULL,
    updated_at_us BIGINT NOT NULL
);

CREATE TABLE sandboxes (
    id             TEXT PRIMARY KEY,
    team_id        TEXT NOT NULL REFERENCES teams (id),
    template_id    TEXT NOT NULL,         -- no reference: templates may go, history stays
    alias          TEXT NOT NULL,         -- of the template when the sandbox was made; '' = none
    state          TEXT NOT NULL,         -- 'running', 'killing', 'ended'
    revision       BIGINT NOT NULL,       -- grows with every change of end_at_us
    started_at_us  BIGINT NOT NULL,
    end_at_us      BIGINT NOT NULL,
    cpu_count      BIGINT NOT NULL,
    mem_mb         BIGINT NOT NULL,
    disk_mb        BIGINT NOT NULL,
    metadata       TEXT NOT NULL,         -- JSON object
    env            TEXT NOT NULL,         -- JSON object
    access_token   TEXT NOT NULL,         -- '' = not secured
    internet       BIGINT NOT NULL,
    internet_given BIGINT NOT NULL,
    secure         BIGINT NOT NULL,
    ended_at_us    BIGINT NOT NULL,       -- 0 = not ended
    end_reason     TEXT NOT NULL
);
CREATE INDEX sandboxes_by_start ON sandboxes (team_id, state, started_at_us, id);
CREATE INDEX sandboxes_live ON sandboxes (id) WHERE state <> 'ended';
CREATE INDEX sandboxes_ended ON sandboxes (ended_at_us) WHERE state = 'ended';
