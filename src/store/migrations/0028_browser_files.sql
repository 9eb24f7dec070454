-- Files of browsers that a team keeps on the host's disk: notes of sessions and extensions. They count for its disk.
CREATE TABLE browser_files (
    id         TEXT NOT NULL,             -- of the session or the extension
    kind       TEXT NOT NULL,             -- log, record, zip
    team_id    TEXT NOT NULL,
    bytes      BIGINT NOT NULL,
    made_at_us BIGINT NOT NULL,
    PRIMARY KEY (id, kind)
);
CREATE INDEX browser_files_by_team ON browser_files (team_id);
-- Whether a session's notes were asked for. Of sessions that run already this is not known: theirs are kept.
ALTER TABLE browser_sessions ADD COLUMN wants_log BIGINT NOT NULL DEFAULT 1;
ALTER TABLE browser_sessions ADD COLUMN wants_record BIGINT NOT NULL DEFAULT 1;
