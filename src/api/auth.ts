/**
 * Authenticates a request: NIP-98 on each request, or a token from signing in. Cheap checks come first, then
 * the signature, then the one-time use. It is spent only if all other checks pass, so that a wrong request
 * does not use up a credential, and no credential works twice.
 */
import { createHash } from 'node:crypto';
import type { Community } from '../communities/communities.js';
import { type NostrEvent, parseEvent, serializeEvent } from '../events/rules/event.js';
import { isRefusal } from '../events/rules/reply.js';
import type { Verifier } from '../events/verify/pool.js';
import { type LineClient, verifyLineOf } from '../limits/rules-lines.js';
import { refuseMember } from '../members/members.sql.js';
import { readRole } from '../members/operators.sql.js';
import { type Role, refuseRole } from '../members/rules-roles.js';
import { readRequired } from '../policies/consents.sql.js';
import { isInForce } from '../relay/rules-auth.js';
import { checkToken, type Token, type TokenOptions } from '../sessions/tokens.js';
import type { Who } from './contract.js';
import { readJson } from './read-json.js';
import { type Denial, denial, isDenial } from './rules-errors.js';
import { findAuthProblem } from './rules-http-auth.js';

/** A signed request has about 700 bytes. */
const HEADER_LENGTH_MAX = 8_192;
/** Longer than any credential is valid, even on an instance with an inexact clock. */
const CREDENTIAL_KEPT_MS = 300_000;
const VERIFYING_MAX = 10_000;

export interface AuthOptions extends TokenOptions {
  readonly verifier: Verifier;
  /** Spends a credential, over all instances; false if it was spent before. */
  readonly useOnce: (key: string, ttlMs: number, nowMs: number) => Promise<boolean>;
  /** Operators of every community. */
  readonly adminPubkeys: readonly string[];
}

export interface SignedRequest {
  readonly community: number;
  /** The client: signatures of one client are checked in order. */
  readonly client: LineClient;
  readonly method: string;
  readonly urls: readonly string[];
  readonly header: string | undefined;
  /** The raw bytes; empty without a body. */
  readonly body: Uint8Array;
}

export interface Identified {
  readonly pubkey: string;
  readonly token?: Token;
}

/** The key that signed this request, or that the token was made for. */
export async function authenticate(
  options: AuthOptions,
  request: SignedRequest,
  nowMs: number,
): Promise<Identified | Denial> {
  const input = readHeader(request.header);
  if (isDenial(input)) return input;
  if (!('token' in input)) return checkSigned(options, input.event, request, nowMs);
  const token = await checkToken(options, request.community, input.token, nowMs);
  return isDenial(token) ? token : { pubkey: token.pubkey, token };
}

async function checkSigned(
  options: AuthOptions,
  input: unknown,
  request: SignedRequest,
  nowMs: number,
): Promise<Identified | Denial> {
  const event = parseEvent(input);
  if (isRefusal(event)) return invalid('event', event.why);
  const problem = findAuthProblem(event, {
    method: request.method,
    urls: request.urls,
    bodyHash: request.body.length === 0 ? undefined : sha256(request.body),
    nowSeconds: Math.floor(nowMs / 1_000),
  });
  if (problem !== undefined) return invalid(problem, EXPLAINED[problem]);
  const refused = await refuseSignature(options, event, request);
  if (refused !== undefined) return refused;
  // Keyed by the signature: two equal requests in one second have the same id, and only the holder of the key
  // can make another signature.
  const spent = await refuseSpent(options, `nip98:${event.sig}`, CREDENTIAL_KEPT_MS, nowMs);
  return spent ?? { pubkey: event.pubkey };
}

/** Spends a credential. If it is unknown whether it was used before, the request is refused. */
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
  { community, client }: Pick<SignedRequest, 'community' | 'client'>,
): Promise<Denial | undefined> {
  if (verifier.pending >= VERIFYING_MAX) return denial('RATE_LIMITED', { retry_after_seconds: 1 });
  const from = verifyLineOf(community, client, event.pubkey);
  const verdict = await verifier.verify({ payload: serializeEvent(event), from });
  return verdict === 'valid' ? undefined : invalid(verdict === 'wrong-id' ? 'id' : 'signature');
}

/** Checks the account. Reads the database, so that a decision of the operator applies to the next request. */
export async function refuseAccount(
  { pool, adminPubkeys }: Pick<AuthOptions, 'pool' | 'adminPubkeys'>,
  community: Community,
  pubkey: string,
  {
    who,
    allowsDisabled = false,
    allowsErased = false,
  }: { readonly who: Who; readonly allowsDisabled?: boolean; readonly allowsErased?: boolean },
): Promise<Denial | undefined> {
  const isFixed = adminPubkeys.includes(pubkey);
  // An operator of the node cannot be locked out by operators whom they have added.
  if (who === 'operator' && isFixed) return undefined;
  const refused = await refuseMember(pool, community.id, pubkey);
  const isAllowed = refused?.denied === 'BEING_ERASED' ? allowsErased : allowsDisabled;
  return isAllowed ? undefined : refused;
}

/**
 * The role of this key here, or the refusal that names the role it lacks. Reads the database, so that a
 * changed role applies to the next request on any instance.
 */
export async function checkRole(
  { pool, adminPubkeys }: Pick<AuthOptions, 'pool' | 'adminPubkeys'>,
  community: Community,
  pubkey: string,
  least: Role,
): Promise<Role | Denial> {
  const role = adminPubkeys.includes(pubkey) ? 'operator' : await readRole(pool, community.id, pubkey);
  return refuseRole(role, least) ?? role!;
}

/**
 * Refuses with the current policies that the member has not agreed to. Reads the database, so that a consent
 * applies to the next request on any instance.
 */
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
  created_at: 'created_at must be the current time, within 60 seconds',
  method: 'the method tag must be the method of this request',
  url: 'the u tag must be the public URL of this request, with its query',
  payload: 'the payload tag must be the SHA-256 of the body, in hex',
} as const;

export function invalid(reason: string, explanation?: string): Denial {
  return denial('INVALID_AUTH', explanation === undefined ? { reason } : { reason, explanation });
}

type Credential = { readonly event: unknown } | { readonly token: string };

/** Does not check whether the token is valid. */
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
  // Its length is limited, and the request was charged as a signed one.
  const read = readJson(Buffer.from(encoded, 'base64'), () => undefined);
  return 'value' in read
    ? { event: read.value }
    : invalid('header', 'after "Nostr" the header must have the event as JSON in base64');
}

function sha256(bytes: Uint8Array): string {
  return createHash('sha256').update(bytes).digest('hex');
}
