/**
 * Subscriptions of members: the right to a topic, from its start to its end. A member has at most one open
 * subscription per topic. A change raises the version of rights. Instances reload everything only when a
 * topic starts or stops being carried.
 */
import { randomUUID } from 'node:crypto';
import type { Pool } from 'pg';
import { type Denial, denial, isDenial } from '../api/rules-errors.js';
import { type Change, changeConfig } from '../communities/config-change.sql.js';
import { refuseMember } from '../members/members.sql.js';
import { readMemberPlan } from '../plans/plans.sql.js';
import { refuseTopicQuota } from '../plans/usage.sql.js';
import { NEWEST_FIRST, type Page, type PageOf, readPage } from '../postgres/page.js';
import { bytes, type Db } from '../postgres/values.js';
import { type Cap, ensureNodeTopic, mindingCarriage, readCarriage } from './node-topics.sql.js';
import { SUBSCRIPTION_STEPS, type SubscriptionAction, type SubscriptionStatus } from './rules-requests.js';

export interface Subscription {
  readonly subscriptionId: string;
  readonly requestId: string | null;
  readonly pubkey: string;
  readonly topic: string;
  /** The name of the topic, if it has one. */
  readonly name: string | null;
  readonly services: readonly string[];
  readonly plan: string;
  readonly status: SubscriptionStatus;
  readonly startedAt: number;
  readonly updatedAt: number;
  readonly endedAt: number | null;
}

const COLUMNS = `subscription_id AS "subscriptionId", request_id AS "requestId",
  encode(pubkey, 'hex') AS pubkey, topic, (
    SELECT n.name FROM node_subscriptions n
    WHERE n.community = topic_subscriptions.community AND n.topic = topic_subscriptions.topic) AS name,
  services, plan, status, started_at AS "startedAt",
  updated_at AS "updatedAt", ended_at AS "endedAt"`;

export interface SubscriptionRef {
  readonly community: number;
  readonly pubkey: string;
  readonly topic: string;
}

async function findOpen(db: Db, { community, pubkey, topic }: SubscriptionRef) {
  const { rows } = await db.query<Subscription>(
    `SELECT ${COLUMNS} FROM topic_subscriptions
     WHERE community = $1 AND pubkey = $2 AND topic = $3 AND status <> 'ended'`,
    [community, bytes(pubkey), topic],
  );
  return rows[0];
}

/** The open subscription, or a denial. */
export async function readOpenSubscription(db: Db, ref: SubscriptionRef): Promise<Subscription | Denial> {
  return (await findOpen(db, ref)) ?? denial('NOT_FOUND');
}

export async function readSubscriptionOfRequest(
  db: Db,
  requestId: string,
): Promise<Subscription | undefined> {
  const { rows } = await db.query<Subscription>(
    `SELECT ${COLUMNS} FROM topic_subscriptions WHERE request_id = $1`,
    [requestId],
  );
  return rows[0];
}

/** Subscriptions of one member, newest first. */
export function listSubscriptions(
  db: Db,
  {
    community,
    pubkey,
    status,
  }: { community: number; pubkey: string; status?: SubscriptionStatus | undefined },
  page: PageOf,
): Promise<Page<Subscription> | Denial> {
  return readPage(
    page,
    NEWEST_FIRST,
    ({ startedAt, subscriptionId }: Subscription) => [startedAt, subscriptionId],
    async ([at, id], limit) => {
      const { rows } = await db.query<Subscription>(
        `SELECT ${COLUMNS} FROM topic_subscriptions
         WHERE community = $1 AND pubkey = $2 AND (started_at, subscription_id) < ($3, $4::uuid)
           AND ($5::text IS NULL OR status = $5)
         ORDER BY started_at DESC, subscription_id DESC LIMIT $6`,
        [community, bytes(pubkey), at, id, status ?? null, limit],
      );
      return rows;
    },
  );
}

interface Granted extends SubscriptionRef {
  readonly requestId: string;
  readonly services: readonly string[];
  readonly name: string | null;
}

/**
 * Creates the subscription of an approved request, within the limits of the member's plan. Also creates the
 * row of the topic, if this is its first subscription.
 */
export async function startSubscription(
  change: Change,
  { requestId, pubkey, topic, services, name }: Granted,
  { enabledMax }: Cap,
): Promise<Subscription | Denial> {
  const { db, community, now } = change;
  if ((await findOpen(db, { community, pubkey, topic })) !== undefined) return denial('ALREADY_SUBSCRIBED');
  const holder = { community, pubkey };
  const refused = await refuseTopicQuota(db, holder, ({ active }) => active, now);
  if (refused !== undefined) return refused;
  const { planId } = await readMemberPlan(db, holder, now);
  return mindingCarriage(change, topic, enabledMax, async () => {
    await ensureNodeTopic(change, topic, name);
    const { rows } = await db.query<Subscription>(
      `INSERT INTO topic_subscriptions
         (subscription_id, request_id, community, pubkey, topic, services, plan, status, started_at,
          updated_at)
       VALUES ($1, $2, $3, $4, $5, $6, $7, 'active', $8, $8) RETURNING ${COLUMNS}`,
      [randomUUID(), requestId, community, bytes(pubkey), topic, services, planId, now],
    );
    change.raiseRights();
    return rows[0]!;
  });
}

export function pauseSubscription(pool: Pool, ref: SubscriptionRef, now: number) {
  return step(pool, ref, 'pause', undefined, now);
}

/** The topic must fit under the cap if it is not carried yet, and into the member's plan. */
export function resumeSubscription(pool: Pool, ref: SubscriptionRef, { enabledMax }: Cap, now: number) {
  return step(pool, ref, 'resume', enabledMax, now);
}

export function endSubscription(pool: Pool, ref: SubscriptionRef, now: number) {
  return step(pool, ref, 'end', undefined, now);
}

const STATUS_AFTER: Record<SubscriptionAction, SubscriptionStatus> = {
  pause: 'paused',
  resume: 'active',
  end: 'ended',
};

function step(
  pool: Pool,
  ref: SubscriptionRef,
  action: SubscriptionAction,
  enabledMax: number | undefined,
  now: number,
): Promise<Subscription | Denial> {
  return changeConfig(pool, { community: ref.community, now }, async (change) => {
    const open = await readOpenSubscription(change.db, ref);
    if (isDenial(open) || SUBSCRIPTION_STEPS[action][open.status] === 'done') return open;
    const refused = action === 'resume' ? await refuseResume(change, ref) : undefined;
    if (refused !== undefined) return refused;
    return mindingCarriage(change, ref.topic, enabledMax, async () => {
      const { rows } = await change.db.query<Subscription>(
        `UPDATE topic_subscriptions
         SET status = $2, updated_at = $3, ended_at = CASE WHEN $2 = 'ended' THEN $3::bigint END
         WHERE subscription_id = $1 RETURNING ${COLUMNS}`,
        [open.subscriptionId, STATUS_AFTER[action], now],
      );
      change.raiseRights();
      return rows[0]!;
    });
  });
}

async function refuseResume({ db, now }: Change, ref: SubscriptionRef): Promise<Denial | undefined> {
  return (await refuseUse(db, ref)) ?? (await refuseTopicQuota(db, ref, ({ active }) => active, now));
}

/** Why a member may not use this topic now: because of the account or of the topic. */
export async function refuseUse(
  db: Db,
  { community, pubkey, topic }: SubscriptionRef,
): Promise<Denial | undefined> {
  const refused = await refuseMember(db, community, pubkey);
  if (refused !== undefined) return refused;
  return (await readCarriage(db, community, topic)).blocked ? denial('TOPIC_BLOCKED') : undefined;
}

export interface RightsHolder {
  readonly community: number;
  readonly pubkey: string;
}

export const rightsKey = ({ community, pubkey }: RightsHolder): string => `${community}:${pubkey}`;

export interface MemberRights {
  /** Without public topics. */
  readonly topics: ReadonlySet<string>;
  /** The consents in force, also to versions that are not current, as `policyKey` writes them. */
  readonly agreed: ReadonlySet<string>;
}

/** The rights and consents of each of these members, by `rightsKey`. */
export async function readRights(
  db: Db,
  holders: readonly RightsHolder[],
): Promise<Map<string, MemberRights>> {
  const { rows } = await db.query<RightsHolder & { topics: string[]; agreed: string[] }>({
    name: 'member-rights',
    text: `SELECT asked.community, encode(asked.pubkey, 'hex') AS pubkey, ARRAY(
             SELECT r.topic FROM topic_rights r
             WHERE r.community = asked.community AND r.pubkey = asked.pubkey) AS topics, ARRAY(
             SELECT c.type || '/' || c.version FROM consents c
             WHERE c.community = asked.community AND c.pubkey = asked.pubkey
               AND c.withdrawn_at IS NULL) AS agreed
           FROM unnest($1::integer[], $2::bytea[]) AS asked (community, pubkey)`,
    values: [holders.map(({ community }) => community), holders.map(({ pubkey }) => bytes(pubkey))],
  });
  return new Map(
    rows.map((row) => [rightsKey(row), { topics: new Set(row.topics), agreed: new Set(row.agreed) }]),
  );
}
