/**
 * Labels of the node. Rules and moderators put and withdraw them. The worker that holds the lease publishes
 * them. Readers see them while they are in force.
 */
import { randomUUID } from 'node:crypto';
import type { Client, ClientBase } from 'pg';
import { type Denial, denial } from '../api/rules-errors.js';
import type { EventRef } from '../events/store.js';
import { NEWEST_FIRST, type Page, type PageOf, readPage } from '../postgres/page.js';
import { bytes, bytesOrNull, type Db } from '../postgres/values.js';
import { type Label, type LabelSpec, lapsesAt, type PutLabel } from './rules.js';

export interface LabelTarget {
  readonly community: number;
  readonly event: string | undefined;
  readonly pubkey: string;
  /** Topics of the event. */
  readonly topics: readonly string[];
}

export interface LabelSource {
  readonly caseId?: string | undefined;
  readonly ruleId?: string | undefined;
  readonly batchId?: string | undefined;
}

const SAME_TARGET = 'community = $1 AND target_event IS NOT DISTINCT FROM $2 AND target_pubkey = $3';

/**
 * Signed in a second of its own: the same label signed in the second of its withdrawal would be the deleted
 * event. Returns nothing when the same label is in force already.
 */
export async function putLabel(
  tx: ClientBase,
  { community, event, pubkey, topics }: LabelTarget,
  spec: LabelSpec,
  { caseId, ruleId, batchId }: LabelSource,
  now: number,
): Promise<string | undefined> {
  const target = [community, bytesOrNull(event), bytes(pubkey)];
  const { rows } = await tx.query<{ holds: boolean | null; last: number | null }>(
    `SELECT bool_or(withdrawn_at IS NULL AND lapses_at > $5) AS holds,
       max(greatest(signed_at, coalesce(withdrawn_at, 0) / 1000)) AS last
     FROM labels WHERE ${SAME_TARGET} AND label = $4`,
    [...target, spec.label, Math.floor(now / 1_000)],
  );
  const { holds, last } = rows[0]!;
  if (holds) return undefined;
  const signedAt = Math.max(Math.floor(now / 1_000), (last ?? 0) + 1);
  const labelId = randomUUID();
  await tx.query(
    `INSERT INTO labels
       (community, target_event, target_pubkey, label_id, created_at, signed_at, lapses_at, confidence, label,
        policy, case_id, rule_id, topics, batch_id)
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)`,
    [
      ...target,
      labelId,
      now,
      signedAt,
      lapsesAt(signedAt, spec),
      spec.confidence,
      spec.label,
      spec.policy,
      caseId ?? null,
      ruleId ?? null,
      topics,
      batchId ?? null,
    ],
  );
  return labelId;
}

/** Withdraws the labels with this word that are in force. Returns how many. */
export async function withdrawLabel(
  tx: ClientBase,
  { community, event, pubkey }: LabelTarget,
  label: LabelSpec['label'],
  now: number,
): Promise<number> {
  const { rowCount } = await tx.query(
    `UPDATE labels SET withdrawn_at = $4
     WHERE ${SAME_TARGET} AND label = $5 AND withdrawn_at IS NULL AND lapses_at > $6`,
    [community, bytesOrNull(event), bytes(pubkey), now, label, Math.floor(now / 1_000)],
  );
  return rowCount ?? 0;
}

export interface KeptLabel extends PutLabel {
  readonly labelId: string;
  readonly community: number;
  readonly createdAt: number;
  readonly withdrawnAt: number | null;
  readonly labelEvent: string | null;
  readonly claimEvent: string | null;
  readonly caseId: string | null;
  readonly ruleId: string | null;
}

const COLUMNS = `label_id AS "labelId", community, created_at AS "createdAt", signed_at AS "signedAt",
  lapses_at AS "lapsesAt", withdrawn_at AS "withdrawnAt", confidence, label, policy, topics,
  case_id AS "caseId", rule_id AS "ruleId",
  encode(target_event, 'hex') AS "targetEvent", encode(target_pubkey, 'hex') AS "targetPubkey",
  encode(label_event, 'hex') AS "labelEvent", encode(label_address_event, 'hex') AS "claimEvent"`;

interface Row extends Omit<KeptLabel, 'targetEvent'> {
  readonly targetEvent: string | null;
}

/** `real` has six digits: 0.9 must not be shown as 0.8999999762. */
const labelOf = ({ targetEvent, confidence, ...row }: Row): KeptLabel => ({
  ...row,
  targetEvent: targetEvent ?? undefined,
  confidence: Number(confidence.toPrecision(6)),
});

const LABELS_MAX = 100;

/** Labels on an event or on a person: those in force at this moment, or all of them. */
export async function labelsAbout(
  db: Db,
  {
    community,
    event,
    pubkey,
  }: { community: number; event?: string | undefined; pubkey?: string | undefined },
  heldAt?: number,
): Promise<KeptLabel[]> {
  const about = event === undefined ? 'target_pubkey = $2 AND target_event IS NULL' : 'target_event = $2';
  const { rows } = await db.query<Row>(
    `SELECT ${COLUMNS} FROM labels WHERE community = $1 AND ${about}
       AND ($3::bigint IS NULL OR (withdrawn_at IS NULL AND lapses_at > $3))
     ORDER BY created_at DESC, label LIMIT ${LABELS_MAX}`,
    [community, bytes(event ?? pubkey ?? ''), heldAt === undefined ? null : Math.floor(heldAt / 1_000)],
  );
  return rows.map(labelOf);
}

export interface LabelFilter {
  readonly community: number;
  readonly label?: Label | undefined;
  readonly event?: string | undefined;
  /** The person, or the author of the event. */
  readonly pubkey?: string | undefined;
}

/** The labels in force, the last to lapse first: so that an index ends where the lapsed ones begin. */
export function listInForce(
  db: Db,
  { community, label, event, pubkey }: LabelFilter,
  page: PageOf,
  now: number,
): Promise<Page<KeptLabel> | Denial> {
  const conditions: [string, unknown][] = [
    ['label', label ?? null],
    ['target_event', bytesOrNull(event)],
    ['target_pubkey', bytesOrNull(pubkey)],
  ];
  const given = conditions.filter(([, value]) => value !== null);
  const narrowed = given.map(([column], at) => `AND ${column} = $${at + 6}`).join(' ');
  return readPage(
    page,
    NEWEST_FIRST,
    ({ lapsesAt: lapses, labelId }: KeptLabel) => [lapses, labelId],
    async ([before, beforeId], limit) => {
      const { rows } = await db.query<Row>(
        `SELECT ${COLUMNS} FROM labels
         WHERE community = $1 AND withdrawn_at IS NULL AND lapses_at > $2
           AND (lapses_at, label_id) < ($3, $4) ${narrowed}
         ORDER BY lapses_at DESC, label_id DESC LIMIT $5`,
        [community, Math.floor(now / 1_000), before, beforeId, limit, ...given.map(([, value]) => value)],
      );
      return rows.map(labelOf);
    },
  );
}

/** A label in force. */
export async function findInForce(
  db: Db,
  community: number,
  labelId: string,
  now: number,
): Promise<KeptLabel | Denial> {
  const { rows } = await db.query<Row>(
    `SELECT ${COLUMNS} FROM labels
     WHERE label_id = $2 AND community = $1 AND withdrawn_at IS NULL AND lapses_at > $3`,
    [community, labelId, Math.floor(now / 1_000)],
  );
  return rows[0] === undefined ? denial('NOT_FOUND') : labelOf(rows[0]);
}

// ── Publishing ─────────────────────────────────────────────────────────────────────────────────────────────

const UNPUBLISHED = 'published_at IS NULL OR (withdrawn_at IS NOT NULL AND withdrawal_published_at IS NULL)';

/** A position in the order of labels. */
export type LabelPlace = Pick<KeptLabel, 'createdAt' | 'labelId'>;
export const FIRST_LABEL: LabelPlace = { createdAt: 0, labelId: '00000000-0000-0000-0000-000000000000' };

/** Oldest first. */
export async function unpublishedLabels(
  db: Db,
  { createdAt, labelId }: LabelPlace,
  limit: number,
): Promise<KeptLabel[]> {
  const { rows } = await db.query<Row>(
    `SELECT ${COLUMNS} FROM labels WHERE (${UNPUBLISHED}) AND (created_at, label_id) > ($1, $2)
     ORDER BY created_at, label_id LIMIT $3`,
    [createdAt, labelId, limit],
  );
  return rows.map(labelOf);
}

/** Without events when there is nothing left to publish. */
export async function notePublished(
  db: Db,
  labelId: string,
  events: { readonly label: string; readonly claim: string } | undefined,
  now: number,
): Promise<void> {
  await db.query(
    `UPDATE labels SET published_at = $2, label_event = $3, label_address_event = $4 WHERE label_id = $1`,
    [labelId, now, bytesOrNull(events?.label), bytesOrNull(events?.claim)],
  );
}

export async function noteWithdrawn(db: Db, labelId: string, now: number): Promise<void> {
  await db.query(
    `UPDATE labels SET withdrawal_published_at = $2, published_at = coalesce(published_at, $2)
     WHERE label_id = $1`,
    [labelId, now],
  );
}

// ── Erasure ────────────────────────────────────────────────────────────────────────────────────────────────

/** The events that publish labels about a person. They are deleted before the labels. */
export async function labelEventsOf(client: Client, labelIds: readonly string[]): Promise<EventRef[]> {
  const { rows } = await client.query<EventRef>(
    `SELECT l.community, encode(e.id, 'hex') AS id FROM labels l
     CROSS JOIN LATERAL (VALUES (l.label_event), (l.label_address_event)) AS e (id)
     WHERE l.label_id = ANY ($1::uuid[]) AND e.id IS NOT NULL`,
    [labelIds],
  );
  return rows;
}

export async function eraseLabels(client: Client, ids: readonly string[]): Promise<number> {
  const { rowCount } = await client.query('DELETE FROM labels WHERE label_id = ANY ($1::uuid[])', [ids]);
  return rowCount ?? 0;
}
