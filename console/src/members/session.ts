/**
 * Who uses these pages. Requests carry a token, which a signed challenge gives for some minutes; it is renewed
 * when it is needed. An account that gets no token (disabled, being erased) signs each request (NIP-98): it may
 * still see decisions about itself and its own data.
 */
import { sha256 } from '@noble/hashes/sha2.js';
import { bytesToHex } from '@noble/hashes/utils.js';
import i18next from 'i18next';
import type { EventTemplate, VerifiedEvent } from 'nostr-tools/pure';
import { useSyncExternalStore } from 'react';
import { ApiError, api, errorOf } from '../shared/api.js';
import { prefix } from '../shared/place.js';
import { extensionSigner, forgetRemote, rememberedSigner, type Signer } from '../shared/signers.js';

export interface Member {
  readonly pubkey: string;
  readonly kind: Signer['kind'];
}

interface Token {
  readonly token: string;
  readonly expiresAt: number;
}

const KEPT = `minato.member${prefix}`;
const TOKEN_KEPT = `minato.token${prefix}`;
const RENEWED_BEFORE_MS = 20_000;
/** Readable by everyone; a token would only cost a signature. */
const PUBLIC = new Set([
  '/v1/topics',
  '/v1/policies/current',
  '/v1/invites/{code}',
  '/v1/auth/challenge',
  '/v1/auth/verify',
]);
/** Accounts that get no token, but may sign requests about themselves. */
const CLOSED = new Set(['ACCOUNT_DISABLED', 'ACCOUNT_DELETED', 'BEING_ERASED']);

let member = restored();
let signer: Signer | undefined;
let token: Token | undefined = readKept<Token>(sessionStorage, TOKEN_KEPT);
/** The address under which the node knows itself. */
let ownAddress: string | undefined;
const listeners = new Set<() => void>();

function readKept<T>(storage: Storage, key: string): T | undefined {
  const text = storage.getItem(key);
  return text === null ? undefined : (JSON.parse(text) as T);
}

/** An extension is known in every tab, a remote signer only in its own. */
function restored(): Member | undefined {
  return readKept<Member>(sessionStorage, KEPT) ?? readKept<Member>(localStorage, KEPT);
}

function changed(): void {
  for (const listener of listeners) listener();
}

export function onMemberChange(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export const currentMember = (): Member | undefined => member;
export const useMember = (): Member | undefined => useSyncExternalStore(onMemberChange, currentMember);

/** Proves the key to the node before anything is shown as signed in. */
export async function signIn(by: Signer): Promise<void> {
  const pubkey = await by.pubkey();
  signer = by;
  const before = member;
  member = { pubkey, kind: by.kind };
  dropToken();
  try {
    await freshToken();
  } catch (error) {
    member = before;
    signer = undefined;
    throw error;
  }
  const storage = by.kind === 'remote' ? sessionStorage : localStorage;
  storage.setItem(KEPT, JSON.stringify(member));
  changed();
}

/** Uses the remote signer of this tab again; false if there is none. */
export async function resumeRemote(onAuth: (url: string) => void): Promise<boolean> {
  const remembered = await rememberedSigner(onAuth);
  if (remembered === undefined) return false;
  signer = remembered;
  if (member === undefined) await signIn(remembered);
  return true;
}

export function signOut(): void {
  if (token !== undefined)
    void fetch(`${prefix}/v1/auth/revoke`, {
      method: 'POST',
      headers: { authorization: `Bearer ${token.token}` },
    }).catch(() => undefined);
  void signer?.close().catch(() => undefined);
  signer = undefined;
  member = undefined;
  dropToken();
  forgetRemote();
  localStorage.removeItem(KEPT);
  sessionStorage.removeItem(KEPT);
  changed();
}

function dropToken(): void {
  token = undefined;
  sessionStorage.removeItem(TOKEN_KEPT);
}

async function currentSigner(): Promise<Signer> {
  if (member === undefined) throw new ApiError(401, 'AUTH_REQUIRED', i18next.t('home:signInFirst'));
  if (signer !== undefined) return signer;
  signer = member.kind === 'extension' ? extensionSigner() : await rememberedSigner(() => undefined);
  if (signer === undefined) throw new Error('the remote signer of this tab is not known any more');
  return signer;
}

/** Signed by the person; an `ApiError` if they decline. */
export async function sign(draft: Pick<EventTemplate, 'kind' | 'tags' | 'content'>): Promise<VerifiedEvent> {
  const template = { ...draft, created_at: Math.floor(Date.now() / 1_000) };
  let event: VerifiedEvent;
  try {
    event = await (await currentSigner()).sign(template);
  } catch (error) {
    if (error instanceof ApiError) throw error;
    throw new ApiError(401, 'NOT_SIGNED', i18next.t('home:notSigned'));
  }
  if (event.pubkey !== member?.pubkey) throw new ApiError(401, 'OTHER_KEY', i18next.t('home:otherKey'));
  return event;
}

// ── Requests ───────────────────────────────────────────────────────────────────────────────────────────────

async function send<T>(path: string, body?: unknown): Promise<T> {
  const response = await fetch(prefix + path, {
    method: 'POST',
    headers: body === undefined ? {} : { 'content-type': 'application/json' },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  });
  if (!response.ok) throw await errorOf(response);
  return (await response.json()) as T;
}

interface Challenge {
  readonly challenge: string;
  readonly relay: string;
}

async function newChallenge(): Promise<Challenge> {
  const made = await send<Challenge>('/v1/auth/challenge');
  ownAddress = made.relay;
  return made;
}

/** The address to name in an answer to a challenge of the relay. */
export async function addressOfNode(): Promise<string> {
  return ownAddress ?? (await newChallenge()).relay;
}

let renewing: Promise<string | undefined> | undefined;

/** A token that is valid for a while; undefined if the account gets none. One signature for all who wait. */
function freshToken(): Promise<string | undefined> {
  if (token !== undefined && token.expiresAt > Date.now() + RENEWED_BEFORE_MS)
    return Promise.resolve(token.token);
  renewing ??= renewToken().finally(() => {
    renewing = undefined;
  });
  return renewing;
}

async function renewToken(): Promise<string | undefined> {
  const { challenge, relay } = await newChallenge();
  const tags = [
    ['relay', relay],
    ['challenge', challenge],
  ];
  const event = await sign({ kind: 22_242, content: '', tags });
  try {
    const made = await send<{ token: string; expires_at: number }>('/v1/auth/verify', { event });
    token = { token: made.token, expiresAt: made.expires_at };
    sessionStorage.setItem(TOKEN_KEPT, JSON.stringify(token));
    return token.token;
  } catch (error) {
    if (error instanceof ApiError && CLOSED.has(error.code)) return undefined;
    throw error;
  }
}

/** NIP-98: a signature for this one request. */
async function signedHeader(request: Request): Promise<string> {
  const base = (await addressOfNode()).replace(/^ws/, 'http').replace(/\/$/, '');
  const { pathname, search } = new URL(request.url);
  const body = new Uint8Array(await request.clone().arrayBuffer());
  const payload = body.length === 0 ? [] : [['payload', bytesToHex(sha256(body))]];
  const tags = [['u', base + pathname.slice(prefix.length) + search], ['method', request.method], ...payload];
  const event = await sign({ kind: 27_235, content: '', tags });
  return `Nostr ${btoa(String.fromCharCode(...new TextEncoder().encode(JSON.stringify(event))))}`;
}

async function proved(request: Request): Promise<Response> {
  const bearer = await freshToken();
  const header = bearer === undefined ? await signedHeader(request) : `Bearer ${bearer}`;
  const own = request.clone();
  own.headers.set('authorization', header);
  return fetch(own);
}

api.use({
  onRequest: async ({ request, schemaPath }) => {
    if (member === undefined || PUBLIC.has(schemaPath)) return undefined;
    let response = await proved(request);
    if (response.status === 401 && (await errorOf(response)).code === 'INVALID_TOKEN') {
      // Revoked, or the clock of this machine is off: once with a new one.
      dropToken();
      response = await proved(request);
    }
    // With a response of our own, no other middleware looks at it.
    if (!response.ok) throw await errorOf(response);
    return response;
  },
});
