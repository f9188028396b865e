/**
 * Challenges and tokens, both signed with a secret of the node that every instance has. A challenge is not
 * stored until it is used. A token is valid in its community only, until it expires or is revoked.
 */
import { createHmac, randomBytes, randomUUID, timingSafeEqual } from 'node:crypto';
import { errors, jwtVerify, SignJWT } from 'jose';
import type { Pool } from 'pg';
import { z } from 'zod';
import { type Denial, denial } from '../api/rules-errors.js';
import { isRevoked, readTokenMark, type TokenFacts } from './tokens.sql.js';

/** Fixed, so that a token cannot choose how it is checked. */
const ALGORITHM = 'HS256';
const ISSUER = 'minato';
export const CHALLENGE_MS = 300_000;
const NONCE_BYTES = 16;

export interface TokenOptions {
  readonly pool: Pool;
  /** The same on every instance; otherwise secret. */
  readonly tokenSecret: string;
  /** The keyed hash of a public key; undefined while nobody was erased. */
  readonly subjectOf?: (community: number, pubkey: string) => Buffer | undefined;
}

export interface Token extends TokenFacts {
  readonly pubkey: string;
  readonly expiresAt: number;
}

/** Derives a separate key for each use from the one secret. */
function keyFor(use: 'challenge' | 'token', secret: string): Uint8Array {
  return new Uint8Array(createHmac('sha256', secret).update(use).digest());
}

const audienceOf = (community: number) => `community:${community}`;

// ─── Challenges ────────────────────────────────────────────────────────────────────────────────────────────

export function makeChallenge(
  secret: string,
  community: number,
  now: number,
): { readonly challenge: string; readonly expiresAt: number } {
  const expiresAt = now + CHALLENGE_MS;
  const open = `${expiresAt}.${randomBytes(NONCE_BYTES).toString('hex')}`;
  return { challenge: `${open}.${sealOf(secret, community, open)}`, expiresAt };
}

/** Whether this node made it, for this community, and it has not expired. */
export function isChallenge(secret: string, community: number, challenge: string, now: number): boolean {
  const [, open, expiresAt, seal] = /^((\d{1,16})\.[0-9a-f]{32})\.([0-9a-f]{64})$/.exec(challenge) ?? [];
  if (open === undefined || seal === undefined || Number(expiresAt) <= now) return false;
  return timingSafeEqual(Buffer.from(seal, 'hex'), Buffer.from(sealOf(secret, community, open), 'hex'));
}

function sealOf(secret: string, community: number, open: string): string {
  return createHmac('sha256', keyFor('challenge', secret)).update(`${community}.${open}`).digest('hex');
}

// ─── Tokens ────────────────────────────────────────────────────────────────────────────────────────────────

export async function makeToken(
  { pool, tokenSecret }: TokenOptions,
  { community, pubkey }: { readonly community: number; readonly pubkey: string },
  lifeSeconds: number,
  now: number,
): Promise<{ readonly token: string; readonly expiresAt: number }> {
  const mark = await readTokenMark(pool, { community, pubkey });
  const issuedAt = Math.floor(now / 1_000);
  const token = await new SignJWT({ mark })
    .setProtectedHeader({ alg: ALGORITHM, typ: 'JWT' })
    .setIssuer(ISSUER)
    .setAudience(audienceOf(community))
    .setSubject(pubkey)
    .setJti(randomUUID())
    .setIssuedAt(issuedAt)
    .setExpirationTime(issuedAt + lifeSeconds)
    .sign(keyFor('token', tokenSecret));
  return { token, expiresAt: (issuedAt + lifeSeconds) * 1_000 };
}

const claims = z.object({
  sub: z.string().regex(/^[0-9a-f]{64}$/),
  jti: z.uuid(),
  iat: z.number(),
  exp: z.number(),
  mark: z.number().int(),
});

export async function checkToken(
  { pool, tokenSecret, subjectOf }: TokenOptions,
  community: number,
  token: string,
  now: number,
): Promise<Token | Denial> {
  const read = await readToken(tokenSecret, community, token, now);
  if ('reason' in read) return denial('INVALID_TOKEN', read);
  const { sub: pubkey, jti: tokenId, iat: issuedAt, exp, mark } = read;
  const subject = subjectOf?.(community, pubkey);
  if (await isRevoked(pool, { community, pubkey, tokenId, mark, issuedAt, subject })) {
    return denial('INVALID_TOKEN', { reason: 'revoked' });
  }
  return { pubkey, tokenId, expiresAt: exp * 1_000, mark, issuedAt, subject };
}

async function readToken(
  secret: string,
  community: number,
  token: string,
  now: number,
): Promise<z.output<typeof claims> | { readonly reason: 'expired' | 'invalid' }> {
  try {
    const { payload } = await jwtVerify(token, keyFor('token', secret), {
      algorithms: [ALGORITHM],
      typ: 'JWT',
      issuer: ISSUER,
      audience: audienceOf(community),
      currentDate: new Date(now),
    });
    return claims.safeParse(payload).data ?? { reason: 'invalid' };
  } catch (error) {
    if (error instanceof errors.JWTExpired) return { reason: 'expired' };
    if (error instanceof errors.JOSEError) return { reason: 'invalid' };
    throw error;
  }
}
