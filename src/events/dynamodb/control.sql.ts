/**
 * What the store in DynamoDB needs from the control plane in PostgreSQL: the marks of erased members, and the
 * live bus of ephemeral events.
 */
import type { Pool } from 'pg';
import { isDenial } from '../../api/rules-errors.js';
import { SUBJECT_FINGERPRINT } from '../../node/state.sql.js';
import { hexArray } from '../../postgres/binary.js';
import { inTransaction } from '../../postgres/transaction.js';
import { BUS_NOTICE, OUTBOX_CHANNEL } from '../postgres/batch.js';
import type { SubjectHashes } from '../postgres/facts.js';
import { factKey, type Submission } from '../rules/facts.js';
import { OUTBOX_REASONS } from '../rules/hidden.js';

export interface ControlFacts {
  /** Up to when these members, or the whole community, are erased, by `factKey`. */
  readonly erased: Map<string, number>;
  /** The version of the moderation rules in force. */
  readonly rulesVersion: number;
}

export async function readControl(
  pool: Pool,
  subjectKey: SubjectHashes | undefined,
  community: number,
  owners: readonly string[],
): Promise<ControlFacts> {
  const erased = new Map<string, number>();
  const subjects = new Map(
    subjectKey?.fingerprint === undefined
      ? []
      : [...owners, ''].map((owner) => [subjectKey.hash(community, owner).toString('hex'), owner] as const),
  );
  const { rows } = await pool.query<{ what: string; number: number; text: string }>({
    name: 'control-facts',
    text: `SELECT 'rules' AS what, version AS number, '' AS text FROM moderation_version
      UNION ALL
      SELECT 'erased', CASE WHEN m.banned THEN ${Number.MAX_SAFE_INTEGER} ELSE m.until END,
        encode(m.subject, 'hex')
      FROM erasure_marks m WHERE m.community = $1 AND m.subject = ANY ($2::bytea[])
      UNION ALL
      SELECT 'fingerprint', 0, n.value FROM node_state n
      WHERE n.key = '${SUBJECT_FINGERPRINT}' AND EXISTS (SELECT 1 FROM erasure_marks)`,
    values: [community, hexArray([...subjects.keys()])],
  });
  let rulesVersion = 0;
  for (const { what, number, text } of rows) {
    if (what === 'rules') rulesVersion = number;
    if (what === 'fingerprint') subjectKey?.check(text);
    if (what === 'erased') erased.set(factKey(community, subjects.get(text)!), number);
  }
  return { erased, rulesVersion };
}

/** The public keys that the node signs with in a community. */
export async function readNodeKeys(pool: Pool, community: number): Promise<string[]> {
  const { rows } = await pool.query<{ pubkey: string }>(
    `SELECT encode(pubkey, 'hex') AS pubkey FROM node_keys WHERE community = $1`,
    [community],
  );
  return rows.map(({ pubkey }) => pubkey);
}

/** Those of these events whose deletion by an erasure is in the log. */
export async function readErasedInLog(
  pool: Pool,
  community: number,
  events: readonly { readonly event_id: string; readonly pubkey: string }[],
): Promise<Set<string>> {
  const { rows } = await pool.query<{ id: string }>(
    `SELECT encode(event_id, 'hex') AS id FROM events_outbox
     WHERE community = $1 AND author = ANY ($2::bytea[]) AND ingested_at >= 0 AND op = 'delete'
       AND reason IN ('${OUTBOX_REASONS.erased}', '${OUTBOX_REASONS.vanished}')
       AND event_id = ANY ($3::bytea[])`,
    [
      community,
      hexArray([...new Set(events.map(({ pubkey }) => pubkey))]),
      hexArray(events.map(({ event_id }) => event_id)),
    ],
  );
  return new Set(rows.map(({ id }) => id));
}

/** Positions of the bus follow the order of commits, because one transaction at a time writes to it. */
const BUS_LOCK = 7_447_021;
const BEGIN_BUS = `BEGIN; SET LOCAL lock_timeout = '5s'; SET LOCAL idle_in_transaction_session_timeout = '5s';
  SELECT pg_advisory_xact_lock(${BUS_LOCK})`;

/** False when the bus has this event already: each is announced once (I3). */
export async function writeBroadcast(
  pool: Pool,
  { community, event, payload }: Submission,
  now: number,
): Promise<boolean> {
  const isNew = await inTransaction(pool, BEGIN_BUS, async (tx) => {
    const { rowCount } = await tx.query(
      `INSERT INTO live_bus (sent_at, community, event_id, payload) VALUES ($1, $2, $3, $4)
       ON CONFLICT (community, event_id) DO NOTHING`,
      [now, community, Buffer.from(event.id, 'hex'), payload],
    );
    if (rowCount === 1) await tx.query('SELECT pg_notify($1, $2)', [OUTBOX_CHANNEL, BUS_NOTICE]);
    return rowCount === 1;
  });
  return !isDenial(isNew) && isNew;
}
