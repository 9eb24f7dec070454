-- When the event 'sandbox.expiring' announced the deletion of a sandbox that nobody uses; 0 = not announced.
ALTER TABLE runtime_sandboxes ADD COLUMN announced_at_us BIGINT NOT NULL DEFAULT 0;
-- The sandboxes that had a key before, to report what became of their files.
CREATE INDEX runtime_sandboxes_of_key ON runtime_sandboxes (team_id, sandbox_key, created_at_us) WHERE sandbox_key <> '';
