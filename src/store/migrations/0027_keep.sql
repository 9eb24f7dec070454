-- When the event 'sandbox.expiring' announced the deletion of a sandbox that nobody uses; 0 = not announced.
ALTER TABLE runtime_sandboxes ADD COLUMN announced_at_us BIGINT NOT NULL DEFAULT 0;
-- The lifetime of seven days that the built-in profiles had was not asked for: what has a key stays.
UPDATE runtime_sandboxes SET max_lifetime_s = 0 WHERE max_lifetime_s = 604800 AND sandbox_key <> ''
    AND profile IN ('default', 'desktop');
-- The sandboxes that had a key before, to report what became of their files.
CREATE INDEX runtime_sandboxes_of_key ON runtime_sandboxes (team_id, sandbox_key, created_at_us) WHERE sandbox_key <> '';
