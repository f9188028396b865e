/** The grammar of what a relay sends (NIP-01, 42, 45, 67, 77, and cursors), written from the NIPs alone. */
import { validateEvent, verifyEvent } from 'nostr-tools/pure';

type Check = (rest: readonly unknown[]) => boolean;

const PREFIX =
  /^(duplicate|pow|blocked|rate-limited|invalid|restricted|mute|error|unsupported|closed|auth-required): ./;
const isText = (value: unknown): value is string => typeof value === 'string';
const isReason = (value: unknown) => isText(value) && PREFIX.test(value);
const isHex = (value: unknown) => isText(value) && /^([0-9a-f]{2})+$/.test(value);
const isHints = (value: unknown) =>
  Array.isArray(value) && value.every((hint) => hint === 'finish' || hint === 'more');

const FRAMES: Readonly<Record<string, Check>> = {
  OK: ([id, accepted, message, ...more]) =>
    isText(id) &&
    isText(message) &&
    more.length === 0 &&
    (accepted === true || (accepted === false && isReason(message))),
  EVENT: ([id, event, cursor, ...more]) =>
    isText(id) && isEvent(event) && (cursor === undefined || isText(cursor)) && more.length === 0,
  EOSE: ([id, hints, cursor, ...more]) =>
    isText(id) &&
    (hints === undefined || isHints(hints)) &&
    (cursor === undefined || isText(cursor)) &&
    more.length === 0,
  CLOSED: ([id, why, ...more]) => isText(id) && isReason(why) && more.length === 0,
  NOTICE: ([text, ...more]) => isText(text) && text !== '' && more.length === 0,
  AUTH: ([challenge, ...more]) => isText(challenge) && challenge.length >= 16 && more.length === 0,
  COUNT: ([id, result, ...more]) => isText(id) && isCount(result) && more.length === 0,
  'NEG-MSG': ([id, message, ...more]) => isText(id) && isHex(message) && more.length === 0,
  'NEG-ERR': ([id, why, ...more]) => isText(id) && isReason(why) && more.length === 0,
  GONE: ([id, event, cursor, ...more]) => isText(id) && isHex(event) && isText(cursor) && more.length === 0,
};

function isEvent(value: unknown): boolean {
  if (typeof value !== 'object' || value === null || !validateEvent(value)) return false;
  const keys = ['content', 'created_at', 'id', 'kind', 'pubkey', 'sig', 'tags'];
  return JSON.stringify(Object.keys(value).sort()) === JSON.stringify(keys);
}

function isCount(value: unknown): boolean {
  const { count, approximate, ...more } = (value ?? {}) as Record<string, unknown>;
  const isKnown = approximate === undefined || approximate === true;
  return Number.isSafeInteger(count) && (count as number) >= 0 && isKnown && Object.keys(more).length === 0;
}

/** Undefined if the frame is well-formed. */
export function problemOfReply(text: string): string | undefined {
  let frame: unknown;
  try {
    frame = JSON.parse(text);
  } catch {
    return 'a reply that is not JSON';
  }
  if (!Array.isArray(frame) || !isText(frame[0])) return 'a reply that is not an array with a verb';
  const check = Object.hasOwn(FRAMES, frame[0]) ? FRAMES[frame[0]] : undefined;
  if (check === undefined) return `a reply with the unknown verb ${frame[0]}`;
  return check(frame.slice(1)) ? undefined : `a malformed ${frame[0]}: ${text.slice(0, 300)}`;
}

/** Whether an event that was served has its id and signature; dear, so only some are checked. */
export function isGenuine(event: Parameters<typeof verifyEvent>[0]): boolean {
  return verifyEvent(structuredClone(event));
}
