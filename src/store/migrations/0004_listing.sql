-- Lists by template and by metadata in the time of their own rows. A tag stands for one pair of a live
-- sandbox's metadata (a hash: what is found is compared). Rows with tagged = 0 are from before.
CREATE INDEX sandboxes_by_template ON sandboxes (team_id, template_id, state, started_at_us, id);

ALTER TABLE sandboxes ADD COLUMN tagged BIGINT NOT NULL DEFAULT 0;
CREATE TABLE sandbox_tags (
    tag_team    TEXT NOT NULL,
    tag         TEXT NOT NULL,
    tag_start   BIGINT NOT NULL,          -- when the sandbox started
    tag_sandbox TEXT NOT NULL,
    PRIMARY KEY (tag_team, tag, tag_start, tag_sandbox)
);
CREATE INDEX sandbox_tags_by_sandbox ON sandbox_tags (tag_sandbox, tag);
