-- A sandbox of the engine is a sandbox of the runtime, whoever made it.
ALTER TABLE agent_sandboxes ADD COLUMN adopted BIGINT NOT NULL DEFAULT 0;     -- made by E2B's API, whose time limit it keeps
ALTER TABLE agent_sandboxes ADD COLUMN state_at_us BIGINT NOT NULL DEFAULT 0; -- what happened until here is in the row
CREATE INDEX agent_sandboxes_by_machine ON agent_sandboxes (external_id);
