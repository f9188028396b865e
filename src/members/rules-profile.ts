/** Profiles (kind 0) and searches for people, pure: what is shown of a profile, and what a search means. */
import { toNfkc } from '../events/rules/text.js';

/** Shown as text only: nothing of it is loaded. */
export interface Profile {
  readonly name: string | null;
  readonly displayName: string | null;
  readonly nip05: string | null;
  readonly picture: string | null;
  readonly about: string | null;
}

const NAME_LENGTH_MAX = 100;
const URL_LENGTH_MAX = 1_000;
const ABOUT_LENGTH_MAX = 2_000;
/** Control characters, and those that change the direction of the text around them. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is removed
const UNSEEN = /[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;

/** The profile in an event of kind 0, as it is stored; null if its content is not a JSON object. */
export function profileIn(payload: string | null): Profile | null {
  if (payload === null) return null;
  const { content } = JSON.parse(payload) as { content: string };
  const fields = objectIn(content);
  if (fields === undefined) return null;
  const text = (key: string, lengthMax: number) => {
    const value = fields[key];
    const cut = typeof value === 'string' ? value.trim().slice(0, lengthMax).toWellFormed().trim() : '';
    return cut === '' ? null : cut;
  };
  const line = (key: string, lengthMax: number) => text(key, lengthMax)?.replace(UNSEEN, '').trim() || null;
  return {
    name: line('name', NAME_LENGTH_MAX),
    displayName: line('display_name', NAME_LENGTH_MAX) ?? line('displayName', NAME_LENGTH_MAX),
    nip05: line('nip05', NAME_LENGTH_MAX),
    picture: line('picture', URL_LENGTH_MAX),
    about: text('about', ABOUT_LENGTH_MAX),
  };
}

function objectIn(text: string): Readonly<Record<string, unknown>> | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === 'object' && value !== null ? { ...value } : undefined;
  } catch {
    return undefined;
  }
}

// ── Searches ───────────────────────────────────────────────────────────────────────────────────────────────

export interface MemberSearch {
  /** A part of a name or a note. One character is the beginning of one: a line break stands before each. */
  readonly text: string;
  /** The name before the @ of an address (NIP-05), which may be a name of this community. */
  readonly localName: string | null;
  /** The least and the greatest key that begins with the text, if the text is the beginning of a key. */
  readonly keys: { readonly from: string; readonly to: string } | null;
}

/** Shorter ones would match by chance. */
const KEY_DIGITS_MIN = 4;
const KEY_DIGITS = 64;

/** `keyOf` reads an npub. Undefined for a text without content: everybody matches it. */
export function searchFor(
  asked: string,
  keyOf: (text: string) => string | undefined,
): MemberSearch | undefined {
  const text = toNfkc(asked.trim().replace(/^nostr:/i, ''), 200);
  if (text === '') return undefined;
  const whole = keyOf(text.toLowerCase());
  const digits = whole ?? text.toLowerCase();
  const isKey = new RegExp(`^[0-9a-f]{${KEY_DIGITS_MIN},${KEY_DIGITS}}$`).test(digits);
  return {
    text: [...text].length === 1 ? `\n${text}` : text,
    localName: /^([a-z0-9._-]{1,64})@/.exec(text.toLowerCase())?.[1] ?? null,
    keys: isKey ? { from: digits.padEnd(KEY_DIGITS, '0'), to: digits.padEnd(KEY_DIGITS, 'f') } : null,
  };
}
