-- Lists of the labels in force, for moderators: all of them, by label, and by person; the last to lapse first.
CREATE INDEX labels_in_force ON labels (community, lapses_at, label_id) WHERE withdrawn_at IS NULL;
CREATE INDEX labels_in_force_label ON labels (community, label, lapses_at, label_id) WHERE withdrawn_at IS NULL;
CREATE INDEX labels_in_force_person ON labels (community, target_pubkey, lapses_at, label_id) WHERE withdrawn_at IS NULL;
