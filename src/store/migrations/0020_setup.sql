-- What a sandbox has of the build that it started from, or a snapshot of its sandbox: a template that is built anew or deleted
-- changes neither. JSON, with the members "env", "user", "workdir", "start" and "ready"; '' = nothing.
ALTER TABLE sandboxes ADD COLUMN setup TEXT NOT NULL DEFAULT '';
ALTER TABLE snapshots ADD COLUMN setup TEXT NOT NULL DEFAULT '';
