-- Rules that hold, hide or refuse are judged before an event is stored (I16).

-- One row. `version` grows with every change of the rules in force and of the node's own keys: the lane reads it under its lock, and judges
-- again what was judged by another version. Up to the position `judged_after` the outbox was written without that: the consumer judges it.
CREATE TABLE moderation_version (
  version bigint NOT NULL,
  judged_after bigint NOT NULL
);
INSERT INTO moderation_version (version, judged_after) SELECT 1, last_seq FROM lane_state;

CREATE FUNCTION raise_moderation_version() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  UPDATE moderation_version SET version = version + 1;
  RETURN NULL;
END $$;
CREATE TRIGGER rule_changed AFTER UPDATE OF name, priority, enabled, enabled_at, conditions, action, label, version ON moderation_rules
  FOR EACH ROW WHEN (OLD.enabled OR NEW.enabled) EXECUTE FUNCTION raise_moderation_version();
CREATE TRIGGER rule_added AFTER INSERT ON moderation_rules
  FOR EACH ROW WHEN (NEW.enabled) EXECUTE FUNCTION raise_moderation_version();
CREATE TRIGGER rule_deleted AFTER DELETE ON moderation_rules
  FOR EACH ROW WHEN (OLD.enabled) EXECUTE FUNCTION raise_moderation_version();
CREATE TRIGGER own_key_changed AFTER INSERT OR DELETE ON node_keys
  FOR EACH ROW EXECUTE FUNCTION raise_moderation_version();

-- Places of rows that are held from the start. They are never announced, so they take no number of the outbox; theirs lie above all of those.
CREATE SEQUENCE held_events AS bigint START 4503599627370496 MINVALUE 4503599627370496 MAXVALUE 9007199254740991;
