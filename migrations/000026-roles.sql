-- Roles beside operators: moderators act on reports, cases and labels, viewers read. Until now everybody here was an operator.
ALTER TABLE operators ADD COLUMN role text NOT NULL DEFAULT 'operator' CHECK (role IN ('viewer', 'moderator', 'operator'));

-- One-time links of `minato operators link`. The code itself is in the link only; a used link has no row any more.
CREATE TABLE sign_in_links (
  community integer NOT NULL REFERENCES communities (id),
  created_at bigint NOT NULL,
  expires_at bigint NOT NULL,
  pubkey bytea NOT NULL,
  code_hash bytea NOT NULL UNIQUE,
  PRIMARY KEY (community, pubkey)
);
CREATE INDEX sign_in_links_expiry ON sign_in_links (expires_at);
CREATE TRIGGER refuse_erased BEFORE INSERT ON sign_in_links FOR EACH ROW EXECUTE FUNCTION refuse_erased();
