/**
 * Requests for topics: a member makes or cancels one, an operator approves or rejects it. Each decision is
 * one transaction that holds the row of `config_version`, so that limits are exact under concurrent requests.
 */
import { randomUUID } from 'node:crypto';
import type { Pool } from 'pg';
import { type Denial, denial, isDenial } from '../api/rules-errors.js';
import { type Change, changeConfig } from '../communities/config-change.sql.js';
import { findInvite, spendInvite, topicOfInvite } from '../members/invites.sql.js';
import { ensureMember, isMember } from '../members/members.sql.js';
import { refuseTopicQuota } from '../plans/usage.sql.js';
import {
  type Bounded,
  countUpTo,
  NEWEST_FIRST,
  OLDEST_FIRST,
  type Page,
  type PageOf,
  readPage,
} from '../postgres/page.js';
import { bytes, bytesOrNull, type Db, isUuid } from '../postgres/values.js';
import { type Cap, hasRoom } from './node-topics.sql.js';
import {
  needsNoReview,
  REQUEST_STEPS,
  type RequestAction,
  type RequestRules,
  type RequestStatus,
} from './rules-requests.js';
import {
  readOpenSubscription,
  readSubscriptionOfRequest,
  refuseUse,
  type Subscription,
  startSubscription,
} from './subscriptions.sql.js';

export interface TopicRequest {
  readonly requestId: string;
  readonly pubkey: string;
  readonly topic: string;
  readonly name: string | null;
  readonly services: readonly string[];
  readonly status: RequestStatus;
  readonly reviewNote: string | null;
  readonly reviewedBy: string | null;
  readonly createdAt: number;
  readonly reviewedAt: number | null;
}

/** A request and, once it is approved, its subscription. */
export interface Requested {
  readonly request: TopicRequest;
  readonly subscription?: Subscription;
}

const COLUMNS = `request_id AS "requestId", encode(pubkey, 'hex') AS pubkey, topic, name,
  requested_services AS services, status, review_note AS "reviewNote",
  encode(reviewed_by, 'hex') AS "reviewedBy", created_at AS "createdAt", reviewed_at AS "reviewedAt"`;

export interface Ask {
  readonly community: number;
  readonly pubkey: string;
  readonly topic: string;
  readonly name?: string | undefined;
  readonly services: readonly string[];
  readonly invite?: string | undefined;
}

export function requestTopic(
  pool: Pool,
  ask: Ask,
  rules: RequestRules,
  now: number,
): Promise<Requested | Denial> {
  const { community, pubkey, topic } = ask;
  return changeConfig(pool, { community, now }, async (change) => {
    const { db } = change;
    const refused =
      (await refuseUse(db, ask)) ?? (await refuseAgain(db, ask)) ?? (await refuseInVain(db, ask, now));
    if (refused !== undefined) return refused;
    const invite = ask.invite === undefined ? undefined : await findInvite(change, ask.invite, topic);
    if (ask.invite !== undefined && invite === undefined) return denial('INVALID_INVITE');
    const room = await hasRoom(db, community, topic, rules.enabledMax);
    const approved = needsNoReview(rules, { pubkey, invited: invite !== undefined, room });
    const tooMany = approved ? undefined : await refusePending(db, ask, rules);
    if (tooMany !== undefined) return tooMany;
    await ensureMember(change, pubkey);
    const request = await insertRequest(change, ask);
    if (!approved) return { request };
    if (invite !== undefined && rules.autoApproval === 'invite') await spendInvite(change, invite, pubkey);
    return activate(change, request, rules, `approved by the setting ${rules.autoApproval}`);
  });
}

export interface Claim {
  readonly community: number;
  readonly pubkey: string;
  readonly claim: string;
  /** The topic to join when the invite names none. */
  readonly otherwise: string;
}

/**
 * An invite that is claimed over the relay is valid whatever `subscription.autoApproval` says: it was made
 * for this.
 */
export async function joinWithInvite(
  pool: Pool,
  { community, pubkey, claim, otherwise }: Claim,
  rules: RequestRules,
  now: number,
): Promise<Requested | Denial> {
  const topic = await topicOfInvite(pool, community, claim);
  if (topic === undefined) return denial('INVALID_INVITE');
  const ask = { community, pubkey, topic: topic ?? otherwise, services: [], invite: claim };
  return requestTopic(pool, ask, { ...rules, autoApproval: 'invite' }, now);
}

/** Only the member's own request; any other id is answered as not found. */
export function cancelRequest(
  pool: Pool,
  { community, pubkey, requestId }: { community: number; pubkey: string; requestId: string },
  now: number,
): Promise<TopicRequest | Denial> {
  return changeConfig(pool, { community, now }, async (change) => {
    const found = await findFor('cancel', change, requestId, pubkey);
    if (isDenial(found)) return found;
    if (found.step === 'done') return found.request;
    return settle(change, requestId, { status: 'cancelled', note: null, reviewedAt: null });
  });
}

export interface Review {
  readonly community: number;
  readonly requestId: string;
  readonly note?: string | undefined;
  readonly actor?: string | undefined;
}

/** Approving twice gives the same result and changes nothing. */
export function approveRequest(
  pool: Pool,
  { community, requestId, note, actor }: Review,
  cap: Cap,
  now: number,
): Promise<Requested | Denial> {
  return changeConfig(pool, { community, actor, now }, async (change) => {
    const found = await findFor('approve', change, requestId);
    if (isDenial(found)) return found;
    const { request } = found;
    if (found.step === 'done') return withSubscription(change.db, request);
    const refused = await refuseUse(change.db, { community, pubkey: request.pubkey, topic: request.topic });
    if (refused !== undefined) return refused;
    const result = await activate(change, request, cap, note);
    if (!isDenial(result)) await change.audit('request.approve', requestId, auditOf(result.request));
    return result;
  });
}

export function rejectRequest(
  pool: Pool,
  { community, requestId, note, actor }: Review,
  now: number,
): Promise<TopicRequest | Denial> {
  return changeConfig(pool, { community, actor, now }, async (change) => {
    const found = await findFor('reject', change, requestId);
    if (isDenial(found)) return found;
    if (found.step === 'done') return found.request;
    const request = await settle(change, requestId, { status: 'rejected', note, reviewedAt: now });
    await change.audit('request.reject', requestId, auditOf(request));
    return request;
  });
}

// ─── Lists ─────────────────────────────────────────────────────────────────────────────────────────────────

/** Requests that wait for review, counted up to `max`. */
export function countPending(db: Db, community: number, max: number): Promise<Bounded> {
  const from = `topic_subscription_requests WHERE community = $1 AND status = 'pending'`;
  return countUpTo(db, from, [community], max);
}

export async function readRequest(
  db: Db,
  community: number,
  requestId: string,
): Promise<TopicRequest | undefined> {
  if (!isUuid(requestId)) return undefined;
  const { rows } = await db.query<TopicRequest>(
    `SELECT ${COLUMNS} FROM topic_subscription_requests WHERE community = $1 AND request_id = $2`,
    [community, requestId],
  );
  return rows[0];
}

const keyOf = ({ createdAt, requestId }: TopicRequest): [number, string] => [createdAt, requestId];

/** Requests of one member, newest first. */
export function listRequestsOf(
  db: Db,
  { community, pubkey, status }: { community: number; pubkey: string; status?: RequestStatus | undefined },
  page: PageOf,
): Promise<Page<TopicRequest> | Denial> {
  return readPage(page, NEWEST_FIRST, keyOf, async ([at, id], limit) => {
    const { rows } = await db.query<TopicRequest>(
      `SELECT ${COLUMNS} FROM topic_subscription_requests
       WHERE community = $1 AND pubkey = $2 AND (created_at, request_id) < ($3, $4::uuid)
         AND ($5::text IS NULL OR status = $5)
       ORDER BY created_at DESC, request_id DESC LIMIT $6`,
      [community, bytes(pubkey), at, id, status ?? null, limit],
    );
    return rows;
  });
}

/** For review: pending requests oldest first, decided ones newest first. */
export function listRequests(
  db: Db,
  { community, status }: { community: number; status: RequestStatus },
  page: PageOf,
): Promise<Page<TopicRequest> | Denial> {
  const waiting = status === 'pending';
  const [beyond, direction] = waiting ? ['>', 'ASC'] : ['<', 'DESC'];
  return readPage(page, waiting ? OLDEST_FIRST : NEWEST_FIRST, keyOf, async ([at, id], limit) => {
    const { rows } = await db.query<TopicRequest>(
      `SELECT ${COLUMNS} FROM topic_subscription_requests
       WHERE community = $1 AND status = $2 AND (created_at, request_id) ${beyond} ($3, $4::uuid)
       ORDER BY created_at ${direction}, request_id ${direction} LIMIT $5`,
      [community, status, at, id, limit],
    );
    return rows;
  });
}

// ─── Steps of a transaction ────────────────────────────────────────────────────────────────────────────────

async function refuseAgain(db: Db, { community, pubkey, topic }: Ask): Promise<Denial | undefined> {
  const open = await readOpenSubscription(db, { community, pubkey, topic });
  if (!isDenial(open)) return denial('ALREADY_SUBSCRIBED', { status: open.status });
  const { rows } = await db.query<{ requestId: string }>(
    `SELECT request_id AS "requestId" FROM topic_subscription_requests
     WHERE community = $1 AND pubkey = $2 AND topic = $3 AND status = 'pending'`,
    [community, bytes(pubkey), topic],
  );
  return rows[0] && denial('REQUEST_PENDING', { request_id: rows[0].requestId });
}

/** Pending requests count as well, so that nobody waits for a topic that the plan does not allow. */
function refuseInVain(db: Db, ask: Ask, now: number): Promise<Denial | undefined> {
  return refuseTopicQuota(db, ask, ({ active, pending }) => active + pending, now);
}

/**
 * Anybody can make keys, so the pending requests of all together are limited too. Those who are no members
 * yet fill half of the places at most: the others are for members.
 */
async function refusePending(
  db: Db,
  { community, pubkey }: Ask,
  { pendingMax, pendingTotalMax }: RequestRules,
): Promise<Denial | undefined> {
  const { rows } = await db.query<{ own: number; total: number }>(
    `SELECT (SELECT count(*) FROM topic_subscription_requests
         WHERE community = $1 AND pubkey = $2 AND status = 'pending') AS own,
       (SELECT count(*) FROM (SELECT 1 FROM topic_subscription_requests
         WHERE community = $1 AND status = 'pending' LIMIT $3) waiting) AS total`,
    [community, bytes(pubkey), pendingTotalMax],
  );
  const { own, total } = rows[0]!;
  if (own >= pendingMax) return denial('PENDING_SUBSCRIPTION_REQUEST_LIMIT_REACHED', { limit: pendingMax });
  const newcomersMax = Math.ceil(pendingTotalMax / 2);
  if (total < newcomersMax) return undefined;
  const hasPlace = await isMember(db, community, pubkey);
  if (hasPlace && total < pendingTotalMax) return undefined;
  return denial('PENDING_SUBSCRIPTION_REQUEST_LIMIT_REACHED', {
    limit: hasPlace ? pendingTotalMax : newcomersMax,
    of: hasPlace ? 'all members' : 'those who are not members yet',
  });
}

async function insertRequest({ db, community, now }: Change, ask: Ask): Promise<TopicRequest> {
  const { rows } = await db.query<TopicRequest>(
    `INSERT INTO topic_subscription_requests
       (request_id, community, pubkey, topic, name, requested_services, status, created_at)
     VALUES ($1, $2, $3, $4, $5, $6, 'pending', $7) RETURNING ${COLUMNS}`,
    [randomUUID(), community, bytes(ask.pubkey), ask.topic, ask.name ?? null, ask.services, now],
  );
  return rows[0]!;
}

/**
 * Finds the request and what the action can do with it. If `owner` is given, another member's request is not
 * found.
 */
async function findFor(
  action: RequestAction,
  { db, community }: Change,
  requestId: string,
  owner?: string,
): Promise<{ readonly request: TopicRequest; readonly step: 'do' | 'done' } | Denial> {
  const request = await readRequest(db, community, requestId);
  if (request === undefined || (owner !== undefined && request.pubkey !== owner)) return denial('NOT_FOUND');
  const step = REQUEST_STEPS[action][request.status];
  return step === 'conflict' ? denial('STATUS_CONFLICT', { status: request.status }) : { request, step };
}

async function activate(
  change: Change,
  request: TopicRequest,
  cap: Cap,
  note: string | undefined,
): Promise<Requested | Denial> {
  const granted = { ...request, community: change.community };
  const subscription = await startSubscription(change, granted, cap);
  if (isDenial(subscription)) return subscription;
  const active = await settle(change, request.requestId, { status: 'active', note, reviewedAt: change.now });
  return { request: active, subscription };
}

async function settle(
  { db, actor }: Change,
  requestId: string,
  to: { status: RequestStatus; note: string | null | undefined; reviewedAt: number | null },
): Promise<TopicRequest> {
  const { rows } = await db.query<TopicRequest>(
    `UPDATE topic_subscription_requests SET status = $2, review_note = $3, reviewed_at = $4, reviewed_by = $5
     WHERE request_id = $1 RETURNING ${COLUMNS}`,
    [requestId, to.status, to.note ?? null, to.reviewedAt, bytesOrNull(actor)],
  );
  return rows[0]!;
}

async function withSubscription(db: Db, request: TopicRequest): Promise<Requested> {
  const subscription = await readSubscriptionOfRequest(db, request.requestId);
  return subscription === undefined ? { request } : { request, subscription };
}

function auditOf({ pubkey, topic, reviewNote }: TopicRequest): Record<string, unknown> {
  return { pubkey, topic, ...(reviewNote === null ? {} : { note: reviewNote }) };
}
