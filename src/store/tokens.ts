/**
 * Which tokens hold. A token carries the mark of its member from when it was made and holds while the member has the same
 * one, so that all of them can be revoked without knowing any; a single one is revoked by its id. Both are read at each
 * request, and hold on every instance from the next one on.
 */
import { bytes, type Db } from './config-change.js';

export interface TokenHolder {
  readonly community: number;
  readonly pubkey: string;
}

/** 0 for somebody who has never revoked any. */
export async function readTokenMark(db: Db, { community, pubkey }: TokenHolder): Promise<number> {
  const { rows } = await db.query<{ mark: number }>(
    'SELECT tokens_from AS mark FROM members WHERE community = $1 AND pubkey = $2',
    [community, bytes(pubkey)],
  );
  return rows[0]?.mark ?? 0;
}

export interface TokenFacts {
  readonly tokenId: string;
  /** What its holder's tokens had to have when it was made; to sign out everywhere raises it. */
  readonly mark: number;
  /** Seconds. */
  readonly issuedAt: number;
  /** The keyed hash of its holder: an erasure forgets what was revoked, and so revokes all that came before it. */
  readonly subject: Buffer | undefined;
}

export async function isRevoked(
  db: Db,
  { community, pubkey, tokenId, mark, issuedAt, subject }: TokenHolder & TokenFacts,
): Promise<boolean> {
  const { rows } = await db.query<{ revoked: boolean }>({
    name: 'token-revoked',
    text: `SELECT EXISTS (SELECT FROM revoked_tokens WHERE community = $1 AND token_id = $3)
             OR $4 <> coalesce((SELECT tokens_from FROM members WHERE community = $1 AND pubkey = $2), 0)
             OR EXISTS (SELECT FROM erasure_marks WHERE community = $1 AND subject = $5 AND erased_at >= $6::bigint * 1000) AS revoked`,
    values: [community, bytes(pubkey), tokenId, mark, subject ?? Buffer.alloc(0), issuedAt],
  });
  return rows[0]!.revoked;
}

export async function revokeToken(
  db: Db,
  { community, pubkey, tokenId, expiresAt }: TokenHolder & { tokenId: string; expiresAt: number },
): Promise<void> {
  await db.query(
    `INSERT INTO revoked_tokens (community, token_id, pubkey, expires_at) VALUES ($1, $2, $3, $4)
     ON CONFLICT (community, token_id) DO NOTHING`,
    [community, tokenId, bytes(pubkey), expiresAt],
  );
}

/** All that were made so far. The mark always grows, whatever the clocks of the instances say. */
export async function revokeTokensOf(db: Db, { community, pubkey }: TokenHolder, now: number): Promise<void> {
  await db.query(
    `INSERT INTO members AS m (community, pubkey, created_at, updated_at, tokens_from) VALUES ($1, $2, $3, $3, $3)
     ON CONFLICT (community, pubkey) DO UPDATE SET tokens_from = greatest(m.tokens_from + 1, excluded.tokens_from)`,
    [community, bytes(pubkey), now],
  );
}
