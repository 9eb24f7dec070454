-- Secrets of teams, put into requests that their sandboxes send (network.rules).
CREATE TABLE secrets (
    id            TEXT PRIMARY KEY,
    team_id       TEXT NOT NULL,
    name          TEXT NOT NULL,
    value         TEXT NOT NULL,          -- encrypted with the server's key file, hex
    hosts         TEXT NOT NULL,          -- the only ones it is sent to, a line each; '' = those of any rule that names it
    metadata      TEXT NOT NULL,          -- JSON, an object of strings
    version       BIGINT NOT NULL,
    created_at_us BIGINT NOT NULL,
    updated_at_us BIGINT NOT NULL
);
CREATE UNIQUE INDEX secrets_by_name ON secrets (team_id, name);
