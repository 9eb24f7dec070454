-- Snapshots: templates made of a sandbox's files. A layer made by a snapshot is deleted when nothing
-- uses it any more; layers that are not in this table (the platform's) are never deleted.
CREATE TABLE layers (
    name          TEXT PRIMARY KEY,
    created_at_us BIGINT NOT NULL
);

CREATE TABLE layer_uses (
    layer     TEXT NOT NULL REFERENCES layers (name),
    user_kind TEXT NOT NULL,              -- 'sandbox', 'snapshot'
    user_id   TEXT NOT NULL,              -- the sandbox; '<template>:<tag>'
    PRIMARY KEY (layer, user_kind, user_id)
);
CREATE INDEX layer_uses_by_user ON layer_uses (user_kind, user_id);

ALTER TABLE templates ADD COLUMN kind TEXT NOT NULL DEFAULT 'template'; -- 'template', 'snapshot'
ALTER TABLE templates ADD COLUMN name TEXT NOT NULL DEFAULT '';         -- of a snapshot, in its team
CREATE UNIQUE INDEX templates_by_name ON templates (team_id, name) WHERE name <> '';

CREATE TABLE snapshots (
    template_id   TEXT NOT NULL REFERENCES templates (id),
    tag           TEXT NOT NULL,
    team_id       TEXT NOT NULL,
    name          TEXT NOT NULL,          -- of the template
    source_id     TEXT NOT NULL,          -- the sandbox
    layers        TEXT NOT NULL,
    cpu_count     BIGINT NOT NULL,
    mem_mb        BIGINT NOT NULL,
    disk_mb       BIGINT NOT NULL,
    created_at_us BIGINT NOT NULL,
    PRIMARY KEY (template_id, tag)
);
CREATE INDEX snapshots_by_time ON snapshots (team_id, created_at_us, template_id, tag);
CREATE INDEX snapshots_by_source ON snapshots (team_id, source_id, created_at_us, template_id, tag);
