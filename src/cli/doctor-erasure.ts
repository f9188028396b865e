/**
 * The part of `minato doctor` about erasures: those that wait for the operator, alarms, and the erasure key.
 */
import type { Client } from 'pg';
import { listWaiting } from '../erasure/erasures.sql.js';
import { openAlarms } from '../erasure/people.sql.js';
import { type Finding, fail, ok, warn } from '../health/finding.js';
import { SubjectKey, SubjectKeyMissing } from '../keys/subject-key.js';
import type { Config } from '../node/config.js';
import { readSubjectFingerprint } from '../node/state.sql.js';
import type { Database } from '../postgres/database.js';
import { checkForgotten } from './doctor-keys.js';
import { count } from './progress.js';

const WAITING_SHOWN_MAX = 20;

/** Without the erasure key a node does not start. */
export async function* checkErasures(
  client: Client,
  { pool }: Database,
  { dataDir, erasureKey }: Config,
): AsyncGenerator<Finding> {
  const waiting = await listWaiting(client, WAITING_SHOWN_MAX);
  for (const { erasureId, slug, holdReason, heldAt, failures } of waiting) {
    if (heldAt !== null)
      yield warn(
        `community ${slug}: erasure ${erasureId} is held (${holdReason})`,
        `When the legal duty ends: minato erase release ${erasureId}`,
      );
    else
      yield warn(
        `community ${slug}: erasure ${erasureId} failed in ${Object.keys(failures).join(', ')}`,
        `"minato erase show ${erasureId}" shows why. Fix it, then: minato erase retry ${erasureId}`,
      );
  }
  for (const { slug, store, found, at } of await openAlarms(client))
    yield fail(
      `${slug === null ? 'an erased community' : `community ${slug}`}: ${store} has ${count(found)} rows ` +
        `of an erased member, since ${new Date(at).toISOString().slice(0, 10)}`,
      'Something else than the node brought them back, such as a restored backup: minato erase replay',
    );
  yield* checkForgotten(pool, dataDir);
  const fingerprint = await readSubjectFingerprint(client);
  if (fingerprint === undefined) return;
  const key = new SubjectKey({ folder: dataDir, given: erasureKey });
  try {
    await key.load(fingerprint);
    key.check(fingerprint);
    yield ok('the erasure key is present');
  } catch (error) {
    if (!(error instanceof SubjectKeyMissing)) throw error;
    yield fail(error.message, 'Without it the node does not start, because it cannot know who was erased.');
  }
}
