/**
 * Invites: a code that approves one request at once. The code is shown once, when it is made; only its hash
 * is stored.
 */
import { createHash, randomBytes, randomUUID } from 'node:crypto';
import type { Pool } from 'pg';
import { type Denial, denial } from '../api/rules-errors.js';
import { type Change, changeConfig } from '../communities/config-change.sql.js';
import { NEWEST_FIRST, type Page, type PageOf, readPage } from '../postgres/page.js';
import { bytes, bytesOrNull, type Db, isUuid } from '../postgres/values.js';

export interface Invite {
  readonly inviteId: string;
  /** The only topic that the invite is valid for; null means any topic. */
  readonly topic: string | null;
  readonly createdBy: string | null;
  readonly createdAt: number;
  readonly expiresAt: number;
  readonly revokedAt: number | null;
  readonly usedBy: string | null;
  readonly usedAt: number | null;
}

const COLUMNS = `invite_id AS "inviteId", topic, encode(created_by, 'hex') AS "createdBy",
  created_at AS "createdAt", expires_at AS "expiresAt", revoked_at AS "revokedAt",
  encode(used_by, 'hex') AS "usedBy", used_at AS "usedAt"`;

/** 128 random bits: guessing a code is not feasible. */
const CODE_BYTES = 16;

function hashOf(code: string): Buffer {
  return createHash('sha256').update(code).digest();
}

async function readInvite(db: Db, community: number, inviteId: string): Promise<Invite | undefined> {
  if (!isUuid(inviteId)) return undefined;
  const { rows } = await db.query<Invite>(
    `SELECT ${COLUMNS} FROM invites WHERE community = $1 AND invite_id = $2`,
    [community, inviteId],
  );
  return rows[0];
}

export function listInvites(db: Db, community: number, page: PageOf): Promise<Page<Invite> | Denial> {
  return readPage(
    page,
    NEWEST_FIRST,
    ({ createdAt, inviteId }: Invite) => [createdAt, inviteId],
    async ([at, id], limit) => {
      const { rows } = await db.query<Invite>(
        `SELECT ${COLUMNS} FROM invites WHERE community = $1 AND (created_at, invite_id) < ($2, $3::uuid)
         ORDER BY created_at DESC, invite_id DESC LIMIT $4`,
        [community, at, id, limit],
      );
      return rows;
    },
  );
}

export interface NewInvite {
  readonly community: number;
  readonly topic?: string | undefined;
  readonly expiresAt: number;
  readonly actor?: string | undefined;
}

export function createInvite(
  pool: Pool,
  { community, topic, expiresAt, actor }: NewInvite,
  now: number,
): Promise<{ readonly invite: Invite; readonly code: string } | Denial> {
  return changeConfig(pool, { community, actor, now }, async (change) => {
    if (expiresAt <= now) {
      return denial('INVALID_REQUEST', { problems: [{ path: 'expires_at', message: 'not in the future' }] });
    }
    const code = randomBytes(CODE_BYTES).toString('base64url');
    const { rows } = await change.db.query<Invite>(
      `INSERT INTO invites (invite_id, community, code_hash, topic, created_by, created_at, expires_at)
       VALUES ($1, $2, $3, $4, $5, $6, $7) RETURNING ${COLUMNS}`,
      [randomUUID(), community, hashOf(code), topic ?? null, bytesOrNull(actor), now, expiresAt],
    );
    const invite = rows[0]!;
    await change.audit('invite.create', invite.inviteId, { topic: invite.topic, expires_at: expiresAt });
    return { invite, code };
  });
}

/** Revoking twice changes nothing. A used invite cannot be revoked. */
export function revokeInvite(
  pool: Pool,
  { community, inviteId, actor }: { community: number; inviteId: string; actor?: string | undefined },
  now: number,
): Promise<Invite | Denial> {
  return changeConfig(pool, { community, actor, now }, async (change) => {
    const before = await readInvite(change.db, community, inviteId);
    if (before === undefined) return denial('NOT_FOUND');
    if (before.usedAt !== null) return denial('STATUS_CONFLICT', { used_at: before.usedAt });
    if (before.revokedAt !== null) return before;
    const { rows } = await change.db.query<Invite>(
      `UPDATE invites SET revoked_at = $2 WHERE invite_id = $1 RETURNING ${COLUMNS}`,
      [before.inviteId, now],
    );
    await change.audit('invite.revoke', before.inviteId);
    return rows[0]!;
  });
}

/** The id of an invite that is valid for this topic now. */
export async function findInvite(
  { db, community, now }: Change,
  code: string,
  topic: string,
): Promise<string | undefined> {
  const { rows } = await db.query<{ inviteId: string }>(
    `SELECT invite_id AS "inviteId" FROM invites
     WHERE code_hash = $1 AND community = $2 AND (topic IS NULL OR topic = $3)
       AND expires_at > $4 AND revoked_at IS NULL AND used_at IS NULL`,
    [hashOf(code), community, topic, now],
  );
  return rows[0]?.inviteId;
}

/** What the holder of a code may know about it. */
export interface Offer extends Pick<Invite, 'topic' | 'expiresAt' | 'revokedAt' | 'usedAt'> {
  /** The name of the topic, if it has one. */
  readonly name: string | null;
}

export async function readOffer(db: Db, community: number, code: string): Promise<Offer | undefined> {
  const { rows } = await db.query<Offer>(
    `SELECT i.topic, n.name, i.expires_at AS "expiresAt", i.revoked_at AS "revokedAt", i.used_at AS "usedAt"
     FROM invites i LEFT JOIN node_subscriptions n ON n.community = i.community AND n.topic = i.topic
     WHERE i.code_hash = $1 AND i.community = $2`,
    [hashOf(code), community],
  );
  return rows[0];
}

/**
 * The only topic that a code is valid for. Null means any topic; undefined means that the code is unknown.
 */
export async function topicOfInvite(
  db: Db,
  community: number,
  code: string,
): Promise<string | null | undefined> {
  const { rows } = await db.query<{ topic: string | null }>(
    'SELECT topic FROM invites WHERE code_hash = $1 AND community = $2',
    [hashOf(code), community],
  );
  return rows[0]?.topic;
}

export async function spendInvite({ db, now }: Change, inviteId: string, pubkey: string): Promise<void> {
  await db.query('UPDATE invites SET used_by = $2, used_at = $3 WHERE invite_id = $1', [
    inviteId,
    bytes(pubkey),
    now,
  ]);
}
