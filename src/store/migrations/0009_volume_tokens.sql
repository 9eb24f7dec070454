-- The content API finds a volume by its token.
CREATE UNIQUE INDEX volumes_by_token ON volumes (token);
