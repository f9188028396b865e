/**
 * Migrations from 000035 on do not lock a large table for long: CONTRIBUTING.md says how they are written
 * instead. Earlier ones are as they were released.
 */
import { readdirSync, readFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import { longLocks } from '../support/models/long-locks.js';

const FIRST = '000035';
const files = readdirSync('migrations')
  .filter((name) => name.endsWith('.sql'))
  .sort();

it('no new migration locks a large table for long', () => {
  const found = files
    .filter((name) => name >= FIRST)
    .flatMap((name) => longLocks(readFileSync(`migrations/${name}`, 'utf8')).map((why) => `${name}: ${why}`));
  expect(found).toEqual([]);
});

it('what was done before the rule is found by it', () => {
  const found = files.filter((name) => longLocks(readFileSync(`migrations/${name}`, 'utf8')).length > 0);
  expect(found).toEqual(expect.arrayContaining(['000011-erasure.sql', '000014-retention-that-holds.sql']));
});

it.each([
  'CREATE INDEX x ON events_outbox (author);',
  'CREATE UNIQUE INDEX x\n  ON ONLY event_dedupe (author);',
  'CREATE INDEX CONCURRENTLY x ON events (author);',
  '-- online\nCREATE INDEX CONCURRENTLY IF NOT EXISTS x ON audit_log (at);',
  '-- online\nUPDATE events SET kind = 1;',
  'UPDATE audit_log a SET actor = NULL;',
  'DELETE FROM event_tags WHERE true;',
  'INSERT INTO notes SELECT id FROM events;',
  'ALTER TABLE audit_log ALTER COLUMN at TYPE numeric;',
  'ALTER TABLE audit_log ALTER at SET NOT NULL;',
  'ALTER TABLE audit_log ADD CONSTRAINT x CHECK (at > 0);',
  'ALTER TABLE audit_log ADD COLUMN x int PRIMARY KEY;',
  'ALTER TABLE audit_log ADD COLUMN x uuid DEFAULT gen_random_uuid();',
  'ALTER TABLE event_dedupe ADD COLUMN x int GENERATED ALWAYS AS (1) STORED;',
  'LOCK TABLE events;',
  'REINDEX TABLE audit_log;',
  'VACUUM FULL audit_log;',
  'CLUSTER audit_log USING x;',
])('%s is found', (sql) => {
  expect(longLocks(sql)).not.toEqual([]);
});

it.each([
  'CREATE TABLE new_ones (id int);\nCREATE INDEX x ON new_ones (id);',
  'CREATE INDEX x ON communities (slug);',
  '-- online\nDROP INDEX CONCURRENTLY IF EXISTS x;\nCREATE INDEX CONCURRENTLY x ON audit_log (at);',
  'ALTER TABLE events ADD COLUMN x int NOT NULL DEFAULT 0;',
  'ALTER TABLE audit_log ADD CONSTRAINT x CHECK (at > 0) NOT VALID;',
  '-- online\nALTER TABLE audit_log VALIDATE CONSTRAINT x;',
  '-- UPDATE events would take long\nSELECT 1;',
  'ALTER TABLE audit_log DROP COLUMN x;',
])('%s is allowed', (sql) => {
  expect(longLocks(sql)).toEqual([]);
});
