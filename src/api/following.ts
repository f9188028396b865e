/**
 * What streams of the API share: a reader that is told nothing for long hears a sign of life, and whether it may read is asked again
 * all the while, because an operator may be removed while a stream of theirs is open.
 */
import { setTimeout as delay } from 'node:timers/promises';
import type { Pool } from 'pg';
import type { ClientAddress } from '../client-address.js';
import type { Communities } from '../communities.js';
import { isKeptOut } from '../core/blocks.js';
import type { ErrorCode } from '../core/errors.js';
import { refuseAccount } from '../core/membership.js';
import { isRevoked } from '../store/tokens.js';
import type { Call } from './contract.js';
import type { SessionOptions } from './session-cookie.js';
import type { Token } from './tokens.js';

const SIGN_OF_LIFE_MS = 10_000;
const PROOF_CHECK_MS = 2_000;

export interface FollowOptions extends Pick<SessionOptions, 'sessions'> {
  readonly pool: Pool;
  /** Operators of every community. */
  readonly adminPubkeys: readonly string[];
  readonly communities: Communities;
  readonly now: () => number;
  /** The node takes no new clients and is about to end. */
  readonly isClosing: () => boolean;
}

/** When a reader hears nothing for long, it cannot know whether anybody is there. */
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

// ── May it still read? ────────────────────────────────────────────────────────────────────────────────────────────

/** Its reader has left, or the node is about to: nobody needs to hear why. */
export type Ending = ErrorCode | 'gone';
/** Why it has to end; nothing while it may go on. Waits before it looks. */
export type Refusal = (waitMs?: number) => Promise<Ending | undefined>;

interface Reader {
  readonly pubkey: string;
  readonly client: ClientAddress;
  readonly token?: Token | undefined;
}

export function watcher(options: FollowOptions, call: Call<'operator'>): Refusal {
  const { community, pubkey, client, token, session, left } = call;
  let checkedAt = performance.now();
  return async (waitMs = 0) => {
    if (waitMs > 0) await delay(waitMs, undefined, { signal: left }).catch(() => undefined);
    if (left?.aborted || options.isClosing()) return 'gone';
    const refused = refuseReader(options, community.id, { pubkey, client, token });
    if (refused !== undefined || (token === undefined && session === undefined)) return refused;
    if (performance.now() - checkedAt < PROOF_CHECK_MS) return undefined;
    checkedAt = performance.now();
    return refuseProof(options, community.id, call);
  };
}

/** What it was asked with may have been taken back meanwhile. */
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
  { pubkey, client, token }: Reader,
): ErrorCode | undefined {
  const community = communities.get(id) ?? communities.getClosing(id);
  if (community === undefined) return 'COMMUNITY_NOT_FOUND';
  if (isKeptOut(community.blocks, client)) return 'ADDRESS_BLOCKED';
  if (token !== undefined && token.expiresAt <= now()) return 'INVALID_TOKEN';
  if (adminPubkeys.includes(pubkey)) return undefined;
  const account = refuseAccount(community.refused.get(pubkey));
  if (account !== undefined) return account.denied;
  return community.operators.has(pubkey) ? undefined : 'OPERATORS_ONLY';
}
