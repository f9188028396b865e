/**
 * Deletion requests (NIP-09): which targets a kind 5 names, and whether it may delete them. Pure. I5: only
 * the author, or the recipient of a gift wrap, may delete. Kinds 5 and 62 are protected. An address deletes
 * the versions up to the time of the request. The `k` tag is a hint and never decides.
 */
import { addressOf, classify, KIND_DELETION, KIND_VANISH } from './classify.js';
import { isHex64, KIND_MAX, type NostrEvent } from './event.js';

export const KIND_GIFT_WRAP = 1_059;

export type DeletionTarget =
  | { readonly type: 'id'; readonly id: string }
  | { readonly type: 'address'; readonly address: string };

/** The key of a tombstone. */
export function targetName(target: DeletionTarget): string {
  return target.type === 'id' ? target.id : target.address;
}

/**
 * The targets of the `e` and `a` tags, each once. Malformed ones, and addresses of another author, are
 * dropped here.
 */
export function deletionTargets(request: NostrEvent): DeletionTarget[] {
  const targets = new Map<string, DeletionTarget>();
  for (const [name, value] of request.tags) {
    if (name === 'e' && isHex64(value)) targets.set(value, { type: 'id', id: value });
    const address = name === 'a' && value !== undefined ? ownAddress(value, request.pubkey) : undefined;
    if (address !== undefined) targets.set(address, { type: 'address', address });
  }
  return [...targets.values()];
}

/**
 * `kind:pubkey:d` as NIP-01 writes it, if it is well formed and the requester's own. `d` may be empty and may
 * hold colons.
 */
function ownAddress(value: string, pubkey: string): string | undefined {
  const match = /^(\d{1,5}):([0-9a-f]{64})(?::([\s\S]*))?$/.exec(value);
  if (match === null || match[2] !== pubkey) return undefined;
  const kind = Number(match[1]);
  const d = match[3] ?? '';
  const named = kind > KIND_MAX ? 'regular' : classify(kind);
  // The last colon is often left out for a replaceable kind, which has no `d`.
  if (named === 'replaceable') return d === '' ? `${kind}:${pubkey}:` : undefined;
  return named === 'addressable' && match[3] !== undefined ? `${kind}:${pubkey}:${d}` : undefined;
}

/** A request to delete or to vanish cannot be deleted, even when its deletion arrives first. */
export function isProtectedKind(kind: number): boolean {
  return kind === KIND_DELETION || kind === KIND_VANISH;
}

/**
 * Who may delete an event: its author; and each recipient of a gift wrap, because its author is a throw-away
 * key.
 */
export function ownersOf(event: NostrEvent): string[] {
  if (event.kind !== KIND_GIFT_WRAP) return [event.pubkey];
  const recipients = event.tags.flatMap(([name, value]) => (name === 'p' && isHex64(value) ? [value] : []));
  return [...new Set([event.pubkey, ...recipients])];
}

export function isOwner(event: NostrEvent, requester: string): boolean {
  return ownersOf(event).includes(requester);
}

/** Does a request to vanish hide this event? */
export function covers(
  mark: { readonly pubkey: string; readonly until: number },
  event: NostrEvent,
): boolean {
  return event.created_at <= mark.until && isOwner(event, mark.pubkey);
}

/** An address deletes the versions made up to the request, not later ones. */
export function isWithinWindow(createdAt: number, requestedAt: number): boolean {
  return createdAt <= requestedAt;
}

/** Does this request rightfully delete this event? */
export function deletes(request: NostrEvent, target: DeletionTarget, event: NostrEvent): boolean {
  if (isProtectedKind(event.kind) || !isOwner(event, request.pubkey)) return false;
  if (target.type === 'id') return target.id === event.id;
  return target.address === addressOf(event) && isWithinWindow(event.created_at, request.created_at);
}
