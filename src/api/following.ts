/**
 * Shared by the streams of the API. A stream without news sends a keep-alive line. The rights of its reader
 * are checked again all the time, because a role may change while a stream is open.
 */
import { setTimeout as delay } from 'node:timers/promises';
import type { Pool } from 'pg';
import { isKeptOut } from '../blocks/rules.js';
import type { Communities } from '../communities/communities.js';
import { refuseAccount } from '../members/rules.js';
import { type Role, refuseRole } from '../members/rules-roles.js';
import type { ClientAddress } from '../port/client-address.js';
import type { SessionOptions } from '../sessions/cookie.js';
import type { Token } from '../sessions/tokens.js';
import { isRevoked } from '../sessions/tokens.sql.js';
import type { Call } from './contract.js';
import type { ErrorCode } from './rules-errors.js';

const SIGN_OF_LIFE_MS = 10_000;
const PROOF_CHECK_MS = 2_000;

export interface FollowOptions extends Pick<SessionOptions, 'sessions'> {
  readonly pool: Pool;
  /** Operators of every community. */
  readonly adminPubkeys: readonly string[];
  readonly communities: Communities;
  readonly now: () => number;
  /** The node is stopping and accepts no new clients. */
  readonly isClosing: () => boolean;
}

/** Without a line for a long time, a reader cannot know whether the stream is alive. */
export class SignOfLife {
  private at = performance.now();

  constructor(private readonly afterMs = SIGN_OF_LIFE_MS) {}

  given(): void {
    this.at = performance.now();
  }
  isDue(): boolean {
    return performance.now() - this.at >= this.afterMs;
  }
}

// ── Rights of a reader ─────────────────────────────────────────────────────────────────────────────────────

/** 'gone': the reader has disconnected or the node is stopping, so no last line is sent. */
export type Ending = ErrorCode | 'gone';
/** Waits, then returns why the stream must end; undefined if it may continue. */
export type EndingReader = (waitMs?: number) => Promise<Ending | undefined>;

interface Reader {
  readonly pubkey: string;
  readonly client: ClientAddress;
  readonly leastRole: Role;
  readonly token?: Token | undefined;
}

export function watcher(options: FollowOptions, call: Call<'operator'>): EndingReader {
  const { community, pubkey, client, leastRole, token, session, left } = call;
  let checkedAt = performance.now();
  return async (waitMs = 0) => {
    if (waitMs > 0) await delay(waitMs, undefined, { signal: left }).catch(() => undefined);
    if (left?.aborted || options.isClosing()) return 'gone';
    const refused = refuseReader(options, community.id, { pubkey, client, leastRole, token });
    if (refused !== undefined || (token === undefined && session === undefined)) return refused;
    if (performance.now() - checkedAt < PROOF_CHECK_MS) return undefined;
    checkedAt = performance.now();
    return refuseProof(options, community.id, call);
  };
}

/** The token or session may have been revoked meanwhile. */
async function refuseProof(
  { pool, sessions, now }: FollowOptions,
  community: number,
  { token, session }: Pick<Call<'operator'>, 'token' | 'session'>,
): Promise<ErrorCode | undefined> {
  if (token !== undefined)
    return (await isRevoked(pool, { community, ...token })) ? 'INVALID_TOKEN' : undefined;
  if (session === undefined) return undefined;
  const found = await sessions.find(session, now()).catch(() => 'unknown' as const);
  if (found === 'unknown') return 'UNAVAILABLE';
  return found === undefined ? 'INVALID_SESSION' : undefined;
}

function refuseReader(
  { communities, adminPubkeys, now }: FollowOptions,
  id: number,
  { pubkey, client, leastRole, token }: Reader,
): ErrorCode | undefined {
  const community = communities.get(id) ?? communities.getClosing(id);
  if (community === undefined) return 'COMMUNITY_NOT_FOUND';
  if (isKeptOut(community.blocks, client)) return 'ADDRESS_BLOCKED';
  if (token !== undefined && token.expiresAt <= now()) return 'INVALID_TOKEN';
  if (adminPubkeys.includes(pubkey)) return undefined;
  const account = refuseAccount(community.refused.get(pubkey));
  if (account !== undefined) return account.denied;
  return refuseRole(community.operators.get(pubkey), leastRole)?.denied;
}
