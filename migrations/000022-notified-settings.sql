-- Instances are notified of changed settings and rights, and of requests for keys, instead of looking twice a second. Triggers, so that no
-- statement that changes one of them can forget it: of this program, of an older one beside it, or of an operator.
CREATE FUNCTION notify_config() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_notify('minato_config', '');
  RETURN NULL;
END
$$;
CREATE TRIGGER config_version_notify AFTER UPDATE ON config_version
  FOR EACH STATEMENT EXECUTE FUNCTION notify_config();
CREATE TRIGGER subject_key_requests_notify AFTER INSERT OR UPDATE ON subject_key_requests
  FOR EACH STATEMENT EXECUTE FUNCTION notify_config();
CREATE TRIGGER node_state_notify AFTER INSERT OR UPDATE ON node_state
  FOR EACH ROW WHEN (NEW.key = 'subject_key_print') EXECUTE FUNCTION notify_config();
