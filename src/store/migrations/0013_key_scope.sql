-- Keys that act as one agent or are for one sandbox ('' = the whole team's), and who did what in words
-- that outlive the key.
ALTER TABLE api_keys ADD COLUMN agent_id TEXT NOT NULL DEFAULT '';
ALTER TABLE api_keys ADD COLUMN sandbox_id TEXT NOT NULL DEFAULT ''; -- 'sbx_…', or the engine's own id
ALTER TABLE audit ADD COLUMN key_name TEXT NOT NULL DEFAULT '';
ALTER TABLE audit ADD COLUMN agent_id TEXT NOT NULL DEFAULT '';
