-- What a sandbox may reach, beside all or nothing (the column internet): the lists of its policy as JSON, with the members
-- "allowOut" and "denyOut"; '' = none.
ALTER TABLE sandboxes ADD COLUMN network TEXT NOT NULL DEFAULT '';
