-- Volumes: files that outlive sandboxes and can be shared by several.
CREATE TABLE volumes (
    id            TEXT PRIMARY KEY,
    team_id       TEXT NOT NULL REFERENCES teams (id),
    name          TEXT NOT NULL,
    token         TEXT NOT NULL,
    deleting      BIGINT NOT NULL,        -- its files are being removed
    created_at_us BIGINT NOT NULL
);
CREATE UNIQUE INDEX volumes_by_name ON volumes (team_id, name) WHERE deleting = 0;

CREATE TABLE volume_uses (
    volume_id  TEXT NOT NULL REFERENCES volumes (id),
    sandbox_id TEXT NOT NULL,
    PRIMARY KEY (volume_id, sandbox_id)
);
CREATE INDEX volume_uses_by_sandbox ON volume_uses (sandbox_id);

-- '<volume id> <name> <path>', one on a line.
ALTER TABLE sandboxes ADD COLUMN volumes TEXT NOT NULL DEFAULT '';
