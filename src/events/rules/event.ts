/**
 * A Nostr event (NIP-01): its shape, its two serializations, and values read from its tags. Exactly the seven
 * fields, with exactly their values, are stored and served; every other key is dropped.
 */
import { type Refusal, refusal } from './reply.js';

export interface NostrEvent {
  readonly id: string;
  readonly pubkey: string;
  readonly created_at: number;
  readonly kind: number;
  readonly tags: readonly (readonly string[])[];
  readonly content: string;
  readonly sig: string;
}

export const KIND_MAX = 65_535;
const ASCII = 128;
/** By character code. */
const IS_HEX_DIGIT = Uint8Array.from({ length: ASCII }, (_, code) =>
  '0123456789abcdef'.includes(String.fromCharCode(code)) ? 1 : 0,
);

export function isHex64(value: unknown): value is string {
  return isHex(value, 64);
}

/** A third of the time of a pattern: 0.1 µs for 64 characters. A COUNT may hold 9,000 keys. */
function isHex(value: unknown, length: number): value is string {
  if (typeof value !== 'string' || value.length !== length) return false;
  let isAll = 1;
  for (let at = 0; at < length; at += 1) {
    const code = value.charCodeAt(at);
    isAll &= code < ASCII ? IS_HEX_DIGIT[code]! : 0;
  }
  return isAll === 1;
}

/** Checks the shape of one event as it came out of `JSON.parse`. Limits and the signature come later. */
export function parseEvent(input: unknown): NostrEvent | Refusal {
  if (typeof input !== 'object' || input === null || Array.isArray(input)) {
    return refusal('invalid', 'event must be a JSON object');
  }
  const { id, pubkey, created_at, kind, tags, content, sig } = input as Record<string, unknown>;
  if (!isHex64(id)) return refusal('invalid', 'id must be 64 lowercase hex characters');
  if (!isHex64(pubkey)) return refusal('invalid', 'pubkey must be 64 lowercase hex characters');
  if (!isHex(sig, 128)) {
    return refusal('invalid', 'sig must be 128 lowercase hex characters');
  }
  if (!isCount(created_at)) {
    return refusal('invalid', 'created_at must be an integer number of seconds, not negative');
  }
  if (!isCount(kind) || kind > KIND_MAX) {
    return refusal('invalid', `kind must be an integer between 0 and ${KIND_MAX}`);
  }
  if (typeof content !== 'string') return refusal('invalid', 'content must be a string');
  if (!isTags(tags)) return refusal('invalid', 'tags must be an array of non-empty arrays of strings');
  // A lone surrogate has no UTF-8 form, so neither the id nor the bytes served would be well defined.
  if (!content.isWellFormed() || !tags.every((tag) => tag.every((value) => value.isWellFormed()))) {
    return refusal('invalid', 'a string holds a lone surrogate, which has no UTF-8 form');
  }
  // `+ 0` turns -0 into 0, the only integer that JSON can spell in two ways that survive a parse.
  return { id, pubkey, created_at: created_at + 0, kind: kind + 0, tags, content, sig };
}

function isCount(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0;
}

function isTags(value: unknown): value is string[][] {
  if (!Array.isArray(value)) return false;
  for (const tag of value) {
    if (!Array.isArray(tag) || tag.length === 0) return false;
    for (const item of tag) if (typeof item !== 'string') return false;
  }
  return true;
}

/**
 * The event as it is stored and served: its seven fields as JSON. It holds no raw control characters, so
 * newlines can separate events.
 */
export function serializeEvent({ id, pubkey, created_at, kind, tags, content, sig }: NostrEvent): string {
  const head = `${ID}${id}${PUBKEY}${pubkey}${TIME}${created_at}${KIND}${kind}`;
  return `${head}${TAGS}${JSON.stringify(tags)}${CONTENT}${JSON.stringify(content)}${SIG}${sig}${END}`;
}
const ID = '{"id":"';
const PUBKEY = '","pubkey":"';
const TIME = '","created_at":';
const KIND = ',"kind":';
const TAGS = ',"tags":';
const CONTENT = ',"content":';
const SIG = ',"sig":"';
const END = '"}';
const ID_AT = ID.length;
const PUBKEY_AT = ID_AT + 64 + PUBKEY.length;
const TIME_AT = PUBKEY_AT + 64 + TIME.length;
const SIG_FROM_END = 128 + END.length;

export interface Signed {
  readonly id: string;
  readonly pubkey: string;
  readonly sig: string;
  /** `[0,pubkey,created_at,kind,tags,content]` as `JSON.stringify` writes it, which is what clients hash. */
  readonly preimage: string;
}

/**
 * The signed part of an event, cut out of what `serializeEvent` wrote. The name of a field cannot be found
 * inside a value, because quotes are escaped there.
 */
export function signedPart(payload: string): Signed {
  const kindAt = payload.indexOf(KIND, TIME_AT);
  const tagsAt = payload.indexOf(TAGS, kindAt);
  const contentAt = payload.indexOf(CONTENT, tagsAt);
  const pubkey = payload.slice(PUBKEY_AT, PUBKEY_AT + 64);
  const time = payload.slice(TIME_AT, kindAt);
  const kind = payload.slice(kindAt + KIND.length, tagsAt);
  const tags = payload.slice(tagsAt + TAGS.length, contentAt);
  const content = payload.slice(contentAt + CONTENT.length, -SIG_FROM_END - SIG.length);
  return {
    id: payload.slice(ID_AT, ID_AT + 64),
    pubkey,
    sig: payload.slice(-SIG_FROM_END, -END.length),
    preimage: `[0,"${pubkey}",${time},${kind},${tags},${content}]`,
  };
}

/**
 * NIP-01 read to the letter writes control characters other than \b \t \n \f \r verbatim, where
 * `JSON.stringify` (and so nearly every client) escapes them. Both spellings are injective and differ only
 * when such a character is there, so an id made either way names exactly one event. Returns undefined when
 * the two spellings agree.
 */
export function verbatimPreimage(preimage: string): string | undefined {
  const verbatim = preimage.replace(ESCAPE, (written, hex: string | undefined) =>
    hex === undefined ? written : String.fromCharCode(Number.parseInt(hex, 16)),
  );
  return verbatim === preimage ? undefined : verbatim;
}
/**
 * One JSON escape. Only escapes of control characters are captured, so that `\\u0001` (a backslash, then
 * text) stays.
 */
const ESCAPE = /\\(?:u(00[01][0-9a-f])|.)/g;

/** The first value of the first tag with this name, or undefined. */
export function firstTagValue(event: NostrEvent, name: string): string | undefined {
  for (const tag of event.tags) if (tag[0] === name) return tag[1] ?? '';
  return undefined;
}

/** NIP-70: only its author may publish it. */
export function isProtected(event: NostrEvent): boolean {
  return event.tags.some((tag) => tag[0] === '-');
}

/** NIP-13: leading zero bits of the id. */
export function powBits(id: string): number {
  let bits = 0;
  for (const digit of id) {
    const nibble = Number.parseInt(digit, 16);
    if (nibble !== 0) return bits + Math.clz32(nibble) - 28;
    bits += 4;
  }
  return bits;
}
