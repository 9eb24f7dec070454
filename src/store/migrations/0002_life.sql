-- Pausing, resuming and what happens at the end of a sandbox's time. A sandbox that is being paused or
-- resumed has state 'paused' and says in `step` what was under way, so that it is listed as paused.
ALTER TABLE sandboxes ADD COLUMN step TEXT NOT NULL DEFAULT '';           -- '', 'pausing', 'resuming'
ALTER TABLE sandboxes ADD COLUMN memory BIGINT NOT NULL DEFAULT 1;        -- the pause keeps the processes
ALTER TABLE sandboxes ADD COLUMN resumed_from TEXT NOT NULL DEFAULT '';   -- '', 'memory', 'disk'
ALTER TABLE sandboxes ADD COLUMN running_since_us BIGINT NOT NULL DEFAULT 0;
ALTER TABLE sandboxes ADD COLUMN timeout_s BIGINT NOT NULL DEFAULT 0;     -- as asked for at create
ALTER TABLE sandboxes ADD COLUMN auto_pause BIGINT NOT NULL DEFAULT 0;
ALTER TABLE sandboxes ADD COLUMN auto_pause_memory BIGINT NOT NULL DEFAULT 1;
ALTER TABLE sandboxes ADD COLUMN auto_resume BIGINT NOT NULL DEFAULT 0;
ALTER TABLE sandboxes ADD COLUMN layers TEXT NOT NULL DEFAULT '';         -- lowest first: 'a,b'

UPDATE sandboxes SET running_since_us = started_at_us,
    layers = coalesce((SELECT layers FROM templates WHERE templates.id = sandboxes.template_id), '');
