/**
 * Who asks: NIP-98 on each request, or a token that was got by signing in. Cheap checks come first, then the signature, then the one-time use, which is spent only
 * when all else holds; so nobody wears out a credential that is not right, and no credential works twice.
 */
import { createHash } from 'node:crypto';
import type { Community } from '../communities.js';
import { isInForce } from '../core/auth.js';
import { type Denial, denial, isDenial } from '../core/errors.js';
import { type NostrEvent, parseEvent, serializeEvent } from '../core/event.js';
import { findAuthProblem } from '../core/http-auth.js';
import { isRefusal } from '../core/reply.js';
import { readRequired } from '../store/consents.js';
import { refuseMember } from '../store/members.js';
import type { Verifier } from '../verify/pool.js';
import type { Who } from './contract.js';
import { checkToken, type Token, type TokenOptions } from './tokens.js';

/** A signed request has about 700 bytes. */
const HEADER_LENGTH_MAX = 8_192;
/** Longer than any credential is fresh on an instance whose clock is somewhat off. */
const CREDENTIAL_KEPT_MS = 300_000;
const VERIFYING_MAX = 10_000;

export interface AuthOptions extends TokenOptions {
  readonly verifier: Verifier;
  /** Spends a credential, over all instances; false when it was spent before. */
  readonly useOnce: (key: string, ttlMs: number, nowMs: number) => Promise<boolean>;
  /** Operators of every community. */
  readonly adminPubkeys: readonly string[];
}

export interface Asked {
  readonly community: number;
  readonly method: string;
  readonly urls: readonly string[];
  readonly header: string | undefined;
  /** As it came; empty without one. */
  readonly body: Uint8Array;
}

export interface Identified {
  readonly pubkey: string;
  readonly token?: Token;
}

/** The key that signed this request, or that the token was made for. */
export async function authenticate(
  options: AuthOptions,
  asked: Asked,
  nowMs: number,
): Promise<Identified | Denial> {
  const input = readHeader(asked.header);
  if (isDenial(input)) return input;
  if (!('token' in input)) return checkSigned(options, input.event, asked, nowMs);
  const token = await checkToken(options, asked.community, input.token, nowMs);
  return isDenial(token) ? token : { pubkey: token.pubkey, token };
}

async function checkSigned(
  options: AuthOptions,
  input: unknown,
  asked: Asked,
  nowMs: number,
): Promise<Identified | Denial> {
  const event = parseEvent(input);
  if (isRefusal(event)) return invalid('event', event.why);
  const problem = findAuthProblem(event, {
    method: asked.method,
    urls: asked.urls,
    bodyHash: asked.body.length === 0 ? undefined : sha256(asked.body),
    nowSeconds: Math.floor(nowMs / 1_000),
  });
  if (problem !== undefined) return invalid(problem, EXPLAINED[problem]);
  const refused = await refuseSignature(options, event);
  if (refused !== undefined) return refused;
  // By its signature: two of the same request in one second have the same id, and nobody else can make another signature.
  const spent = await refuseSpent(options, `nip98:${event.sig}`, CREDENTIAL_KEPT_MS, nowMs);
  return spent ?? { pubkey: event.pubkey };
}

/** Spends it. When nobody can tell whether it was used before, it is not taken. */
export async function refuseSpent(
  { useOnce }: Pick<AuthOptions, 'useOnce'>,
  key: string,
  keptMs: number,
  nowMs: number,
): Promise<Denial | undefined> {
  const isFirst = await useOnce(key, keptMs, nowMs).catch(() => undefined);
  if (isFirst === undefined) return denial('UNAVAILABLE');
  return isFirst ? undefined : denial('REPLAYED_AUTH');
}

export async function refuseSignature(
  { verifier }: Pick<AuthOptions, 'verifier'>,
  event: NostrEvent,
): Promise<Denial | undefined> {
  if (verifier.pending >= VERIFYING_MAX) return denial('RATE_LIMITED', { retry_after_seconds: 1 });
  const verdict = await verifier.verify({ payload: serializeEvent(event) });
  return verdict === 'valid' ? undefined : invalid(verdict === 'wrong-id' ? 'id' : 'signature');
}

/** May this key do it? Read from the database, so that a decision of the operator holds from the next request. */
export async function refuseAccount(
  { pool, adminPubkeys }: AuthOptions,
  community: Community,
  pubkey: string,
  {
    who,
    allowsDisabled = false,
    allowsErased = false,
  }: { readonly who: Who; readonly allowsDisabled?: boolean; readonly allowsErased?: boolean },
): Promise<Denial | undefined> {
  const isFixed = adminPubkeys.includes(pubkey);
  // Who runs the node cannot be locked out by those whom they have let in.
  if (who === 'operator' && isFixed) return undefined;
  const refused = await refuseMember(pool, community.id, pubkey);
  const isAllowed = refused?.denied === 'BEING_ERASED' ? allowsErased : allowsDisabled;
  if (refused !== undefined && !isAllowed) return refused;
  return who === 'operator' && !community.operators.has(pubkey) ? denial('OPERATORS_ONLY') : undefined;
}

/** What is current and not agreed to, read from the database, so that a consent holds from the next request on any instance. */
export async function refuseWithoutConsent(
  { pool }: Pick<AuthOptions, 'pool'>,
  community: Community,
  pubkey: string,
  now: number,
): Promise<Denial | undefined> {
  if (!isInForce(community, now)) return undefined;
  const missing = (await readRequired(pool, community.id, pubkey)).filter(
    ({ consentId }) => consentId === null,
  );
  if (missing.length === 0) return undefined;
  const required = missing.map(({ type, version, locales }) => ({ type, version, locales }));
  return denial('CONSENT_REQUIRED', { required });
}

const EXPLAINED = {
  kind: 'the event must have kind 27235',
  created_at: 'created_at must be now, within 60 seconds',
  method: 'the method tag must be the method of this request',
  url: 'the u tag must be the public URL of this request, with its query',
  payload: 'the payload tag must be the SHA-256 of the body, in hex',
} as const;

export function invalid(reason: string, explanation?: string): Denial {
  return denial('INVALID_AUTH', explanation === undefined ? { reason } : { reason, explanation });
}

type Credential = { readonly event: unknown } | { readonly token: string };

/** Told without looking whether it holds. */
export function isToken(header: string | undefined): boolean {
  const input = readHeader(header);
  return !isDenial(input) && 'token' in input;
}

export function readHeader(header: string | undefined): Credential | Denial {
  if (header === undefined || header === '') return denial('AUTH_REQUIRED');
  const [, token] = /^Bearer +(\S+) *$/i.exec(header.slice(0, HEADER_LENGTH_MAX)) ?? [];
  if (token !== undefined) return { token };
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
