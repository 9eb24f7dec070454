-- Templates that are built. What a template starts sandboxes from is a build; its tags name builds. The row of a
-- template that has never been built, and of the platform's own base, has its content itself.
CREATE TABLE builds (
    id             TEXT PRIMARY KEY,      -- a UUID
    template_id    TEXT NOT NULL REFERENCES templates (id) ON DELETE CASCADE,
    team_id        TEXT NOT NULL,
    state          TEXT NOT NULL,         -- 'waiting', 'building', 'ready', 'error'
    recipe         TEXT NOT NULL,         -- JSON, as it was asked for; '' until it is started
    tags           TEXT NOT NULL,         -- 'a,b': given to it when it is ready
    layers         TEXT NOT NULL,         -- of the result, lowest first; '' until it is ready
    cpu_count      BIGINT NOT NULL,
    mem_mb         BIGINT NOT NULL,
    disk_mb        BIGINT NOT NULL,
    env            TEXT NOT NULL,         -- JSON object: what commands in a sandbox of it find in their environment
    default_user   TEXT NOT NULL,         -- '' = the platform's
    workdir        TEXT NOT NULL,         -- '' = the user's home
    start_cmd      TEXT NOT NULL,         -- '' = none
    ready_cmd      TEXT NOT NULL,         -- '' = none
    reason         TEXT NOT NULL,         -- of 'error'
    reason_step    TEXT NOT NULL,         -- 'base', 'finalize' or the number of the step; '' = none
    log_count      BIGINT NOT NULL,
    created_at_us  BIGINT NOT NULL,
    started_at_us  BIGINT NOT NULL,       -- 0 = not yet
    finished_at_us BIGINT NOT NULL        -- 0 = not yet
);
CREATE INDEX builds_by_template ON builds (template_id, created_at_us);
CREATE INDEX builds_open ON builds (state) WHERE state IN ('waiting', 'building');

CREATE TABLE build_logs (
    build_id TEXT NOT NULL REFERENCES builds (id) ON DELETE CASCADE,
    seq      BIGINT NOT NULL,             -- from 0
    at_us    BIGINT NOT NULL,
    level    BIGINT NOT NULL,             -- 0 debug, 1 info, 2 warn, 3 error
    step     TEXT NOT NULL,               -- as reason_step
    message  TEXT NOT NULL,
    PRIMARY KEY (build_id, seq)
);

CREATE TABLE template_tags (
    template_id   TEXT NOT NULL REFERENCES templates (id) ON DELETE CASCADE,
    tag           TEXT NOT NULL,
    build_id      TEXT NOT NULL REFERENCES builds (id),
    created_at_us BIGINT NOT NULL,
    PRIMARY KEY (template_id, tag)
);
CREATE INDEX template_tags_by_build ON template_tags (build_id);

ALTER TABLE templates ADD COLUMN spawn_count BIGINT NOT NULL DEFAULT 0;
ALTER TABLE templates ADD COLUMN last_spawned_at_us BIGINT NOT NULL DEFAULT 0;

-- What a step gave the last time: the layers to go on from. A row uses its layers (layer_uses, 'cache').
CREATE TABLE build_cache (
    key        TEXT PRIMARY KEY,          -- SHA-256 over team, parent, step and what it copies, hex
    team_id    TEXT NOT NULL,
    layers     TEXT NOT NULL,
    note       TEXT NOT NULL,             -- JSON: what else the step gave (an image's settings)
    bytes      BIGINT NOT NULL,
    made_at_us BIGINT NOT NULL,
    used_at_us BIGINT NOT NULL
);
CREATE INDEX build_cache_by_use ON build_cache (used_at_us);

-- Files for COPY, as clients uploaded them: one body in DATA/store/uploads, by the SHA-256 of the body.
CREATE TABLE build_files (
    team_id    TEXT NOT NULL,
    hash       TEXT NOT NULL,             -- the client's name of the content
    body       TEXT NOT NULL,             -- SHA-256 of the body, hex: its file
    bytes      BIGINT NOT NULL,
    made_at_us BIGINT NOT NULL,
    used_at_us BIGINT NOT NULL,
    PRIMARY KEY (team_id, hash)
);
CREATE INDEX build_files_by_body ON build_files (body);

CREATE TABLE registry_credentials (
    team_id    TEXT NOT NULL,
    host       TEXT NOT NULL,
    username   TEXT NOT NULL,
    secret     TEXT NOT NULL,             -- encrypted with the server's key file, hex
    made_at_us BIGINT NOT NULL,
    PRIMARY KEY (team_id, host)
);
