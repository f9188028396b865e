/**
 * Which tokens are valid. A token carries the revocation mark that its member had when it was made, and is
 * valid while the member has the same mark. So all tokens of a member can be revoked without a list of them.
 * A single token is revoked by its id. Both are read at each request, so a revocation is effective on every
 * instance at once.
 */
import { bytes, type Db } from '../postgres/values.js';

export interface TokenHolder {
  readonly community: number;
  readonly pubkey: string;
}

/** 0 for a member who has never revoked tokens. */
export async function readTokenMark(db: Db, { community, pubkey }: TokenHolder): Promise<number> {
  const { rows } = await db.query<{ mark: number }>(
    'SELECT tokens_from AS mark FROM members WHERE community = $1 AND pubkey = $2',
    [community, bytes(pubkey)],
  );
  return rows[0]?.mark ?? 0;
}

export interface TokenFacts {
  readonly tokenId: string;
  /**
   * The member's revocation mark when the token was made. Signing out everywhere raises the member's mark.
   */
  readonly mark: number;
  /** Seconds. */
  readonly issuedAt: number;
  /**
   * The keyed hash of the holder. An erasure deletes the list of revoked tokens, so every token made before
   * it counts as revoked.
   */
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
             OR EXISTS (SELECT FROM erasure_marks
                        WHERE community = $1 AND subject = $5 AND erased_at >= $6::bigint * 1000) AS revoked`,
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

/** Revokes all tokens made so far. The mark always grows, even when the clocks of instances differ. */
export async function revokeTokensOf(db: Db, { community, pubkey }: TokenHolder, now: number): Promise<void> {
  await db.query(
    `INSERT INTO members AS m (community, pubkey, created_at, updated_at, tokens_from)
     VALUES ($1, $2, $3, $3, $3)
     ON CONFLICT (community, pubkey)
     DO UPDATE SET tokens_from = greatest(m.tokens_from + 1, excluded.tokens_from)`,
    [community, bytes(pubkey), now],
  );
}
