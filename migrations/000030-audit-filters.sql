-- Filters of the audit log, and the last change of each setting: newest first by actor, action or target.
CREATE INDEX audit_log_by_actor ON audit_log (community, actor, at DESC, position DESC) WHERE actor IS NOT NULL;
CREATE INDEX audit_log_by_action ON audit_log (community, action, at DESC, position DESC);
CREATE INDEX audit_log_by_target ON audit_log (community, target, at DESC, position DESC);
-- The new indexes begin with the same columns.
DROP INDEX audit_log_actor;
DROP INDEX audit_log_target;
