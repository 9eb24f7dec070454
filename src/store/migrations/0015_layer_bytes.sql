-- Whose layers they are and how much they hold, for the teams' limits of disk. Layers from before count nothing.
ALTER TABLE layers ADD COLUMN team_id TEXT NOT NULL DEFAULT '';
ALTER TABLE layers ADD COLUMN bytes BIGINT NOT NULL DEFAULT 0;
CREATE INDEX layers_by_team ON layers (team_id);
CREATE INDEX volumes_by_team ON volumes (team_id);
