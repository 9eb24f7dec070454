-- One column has the whole lifecycle of a sandbox (sandbox_state.h), another how lists show it, by which they find it.
ALTER TABLE sandboxes RENAME COLUMN state TO listed;                      -- 'running', 'paused', 'killing', 'ended'
ALTER TABLE sandboxes RENAME COLUMN step TO state;
UPDATE sandboxes SET state = listed WHERE state = '' OR listed IN ('killing', 'ended');
UPDATE runtime_sandboxes SET state = CASE state WHEN 'killed' THEN 'ended' ELSE 'lost' END WHERE state IN ('killed', 'error');
