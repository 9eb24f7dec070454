-- The way in: the token that ports need ('' when they are public), and what the proxy does on the way there,
-- as lines ('' when nothing).
ALTER TABLE sandboxes ADD COLUMN traffic_token TEXT NOT NULL DEFAULT '';
ALTER TABLE sandboxes ADD COLUMN ingress TEXT NOT NULL DEFAULT '';
