-- Browsers that are signed in and links that sign one in, each in the name of an API key; what a key may do.
CREATE TABLE signins (
    token_hash    TEXT PRIMARY KEY,       -- SHA-256, hex
    kind          TEXT NOT NULL,          -- browser, link
    key_hash      TEXT NOT NULL,          -- of the API key; gone or changed = signed out
    expires_at_us BIGINT NOT NULL
);
CREATE INDEX signins_by_key ON signins (key_hash, expires_at_us);
ALTER TABLE api_keys ADD COLUMN role TEXT NOT NULL DEFAULT ''; -- '' = all that its team may
