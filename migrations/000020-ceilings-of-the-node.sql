-- Settings of the whole node, which stand above those of its communities (communities/rules-node-settings.ts).

CREATE TABLE node_settings (
  key text PRIMARY KEY,
  value jsonb NOT NULL,
  version bigint NOT NULL,
  updated_at bigint NOT NULL
);
