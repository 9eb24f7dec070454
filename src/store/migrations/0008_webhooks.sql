-- Webhooks. A delivery is written in the same transaction as its event and stays until it was taken (or
-- its event is too old).
CREATE TABLE webhooks (
    id            TEXT PRIMARY KEY,
    team_id       TEXT NOT NULL REFERENCES teams (id),
    name          TEXT NOT NULL,
    url           TEXT NOT NULL,
    secret        TEXT NOT NULL,
    events        TEXT NOT NULL,          -- types: ',created,killed,'
    enabled       BIGINT NOT NULL,
    created_at_us BIGINT NOT NULL
);
CREATE INDEX webhooks_by_team ON webhooks (team_id, created_at_us);

CREATE TABLE deliveries (
    webhook_id TEXT NOT NULL,
    event_seq  BIGINT NOT NULL,
    attempts   BIGINT NOT NULL,
    next_at_us BIGINT NOT NULL,
    PRIMARY KEY (webhook_id, event_seq)
);
CREATE INDEX deliveries_by_time ON deliveries (next_at_us);
