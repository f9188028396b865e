/**
 * Who asks: NIP-98 on each request. Cheap checks come first, then the signature, then the one-time use, which is spent only
 * when all else holds; so nobody wears out a credential that is not right, and no credential works twice.
 */
import { createHash } from 'node:crypto';
import type { Pool } from 'pg';
import type { Community } from '../communities.js';
import { type Denial, denial, isDenial } from '../core/errors.js';
import { parseEvent, serializeEvent } from '../core/event.js';
import { findAuthProblem } from '../core/http-auth.js';
import { isRefusal } from '../core/reply.js';
import { refuseMember } from '../store/members.js';
import type { Verifier } from '../verify/pool.js';
import type { Who } from './contract.js';

/** A signed request has about 700 bytes. */
const HEADER_LENGTH_MAX = 8_192;
/** Longer than any credential is fresh on an instance whose clock is somewhat off. */
const CREDENTIAL_KEPT_MS = 300_000;
const VERIFYING_MAX = 10_000;

export interface AuthOptions {
  readonly verifier: Verifier;
  readonly pool: Pool;
  /** Spends a credential, over all instances; false when it was spent before. */
  readonly useOnce: (key: string, ttlMs: number, nowMs: number) => Promise<boolean>;
  /** Operators of every community. */
  readonly adminPubkeys: readonly string[];
}

export interface Asked {
  readonly method: string;
  readonly urls: readonly string[];
  readonly header: string | undefined;
  /** As it came; empty without one. */
  readonly body: Uint8Array;
}

/** The key that signed this request. */
export async function authenticate(
  { verifier, useOnce }: AuthOptions,
  asked: Asked,
  nowMs: number,
): Promise<string | Denial> {
  const input = readHeader(asked.header);
  if (isDenial(input)) return input;
  const event = parseEvent(input.event);
  if (isRefusal(event)) return invalid('event', event.why);
  const problem = findAuthProblem(event, {
    method: asked.method,
    urls: asked.urls,
    bodyHash: asked.body.length === 0 ? undefined : sha256(asked.body),
    nowSeconds: Math.floor(nowMs / 1_000),
  });
  if (problem !== undefined) return invalid(problem, EXPLAINED[problem]);
  if (verifier.pending >= VERIFYING_MAX) return denial('RATE_LIMITED', { retry_after_seconds: 1 });
  const verdict = await verifier.verify({ payload: serializeEvent(event) });
  if (verdict !== 'valid') return invalid(verdict === 'wrong-id' ? 'id' : 'signature');
  // By its signature: two of the same request in one second have the same id, and nobody else can make another signature.
  const isFirst = await useOnce(`nip98:${event.sig}`, CREDENTIAL_KEPT_MS, nowMs);
  return isFirst ? event.pubkey : denial('REPLAYED_AUTH');
}

/** May this key do it? Read from the database, so that a decision of the operator holds from the next request. */
export async function refuseAccount(
  { pool, adminPubkeys }: AuthOptions,
  community: Community,
  pubkey: string,
  { who, allowsDisabled = false }: { readonly who: Who; readonly allowsDisabled?: boolean },
): Promise<Denial | undefined> {
  const isFixed = adminPubkeys.includes(pubkey);
  // Who runs the node cannot be locked out by those whom they have let in.
  if (who === 'operator' && isFixed) return undefined;
  const refused = await refuseMember(pool, community.id, pubkey);
  if (refused !== undefined && !(allowsDisabled && refused.denied === 'ACCOUNT_DISABLED')) return refused;
  return who === 'operator' && !community.operators.has(pubkey) ? denial('OPERATORS_ONLY') : undefined;
}

const EXPLAINED = {
  kind: 'the event must have kind 27235',
  created_at: 'created_at must be now, within 60 seconds',
  method: 'the method tag must be the method of this request',
  url: 'the u tag must be the public URL of this request, with its query',
  payload: 'the payload tag must be the SHA-256 of the body, in hex',
} as const;

function invalid(reason: string, explanation?: string): Denial {
  return denial('INVALID_AUTH', explanation === undefined ? { reason } : { reason, explanation });
}

export function readHeader(header: string | undefined): { readonly event: unknown } | Denial {
  if (header === undefined || header === '') return denial('AUTH_REQUIRED');
  const [, encoded] = /^Nostr +([A-Za-z0-9+/_=-]+) *$/i.exec(header) ?? [];
  if (header.length > HEADER_LENGTH_MAX || encoded === undefined) return invalid('header');
  try {
    const bytes = Buffer.from(encoded, 'base64');
    return { event: JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(bytes)) };
  } catch {
    return invalid('header', 'after "Nostr" comes the event as JSON in base64');
  }
}

function sha256(bytes: Uint8Array): string {
  return createHash('sha256').update(bytes).digest('hex');
}
