/**
 * What a world must serve, from what clients sent and what they were answered: pure. It knows nothing of how
 * the node stores events. What is in the view does not depend on the order of arrival (I4, I5).
 */
import type { VerifiedEvent } from 'nostr-tools/pure';

/** An event that was sent in a community and has its final answer. */
export interface Sent {
  readonly community: number;
  readonly event: VerifiedEvent;
  readonly isForged: boolean;
  readonly isHeld: boolean;
  readonly accepted: boolean;
  readonly message: string;
}

export interface Acts {
  /** Events that a moderator has removed and not restored. */
  readonly removed: ReadonlySet<string>;
  /** People whose erasure was requested: what is served of them is checked when it is complete. */
  readonly erased: ReadonlySet<string>;
}

const tagOf = ({ tags }: VerifiedEvent, name: string) => tags.find((tag) => tag[0] === name)?.[1];
export const isReplaceable = (kind: number) => kind === 0 || kind === 3 || (kind >= 10_000 && kind < 20_000);
export const isAddressable = (kind: number) => kind >= 30_000 && kind < 40_000;
export const isEphemeral = (kind: number) => kind >= 20_000 && kind < 30_000;
export const expirationOf = (event: VerifiedEvent) =>
  Number(tagOf(event, 'expiration') ?? Number.POSITIVE_INFINITY);

/** Of a replaceable or addressable event. */
export function addressOf(event: VerifiedEvent): string | undefined {
  if (isReplaceable(event.kind)) return `${event.kind}:${event.pubkey}:`;
  return isAddressable(event.kind) ? `${event.kind}:${event.pubkey}:${tagOf(event, 'd') ?? ''}` : undefined;
}

const isNewer = (a: VerifiedEvent, b: VerifiedEvent) =>
  a.created_at > b.created_at || (a.created_at === b.created_at && a.id < b.id);

function isDeletedBy(event: VerifiedEvent, request: VerifiedEvent): boolean {
  if (event.kind === 5 || request.pubkey !== event.pubkey) return false;
  const address = addressOf(event);
  return request.tags.some(
    ([name, value]) =>
      (name === 'e' && value === event.id) ||
      (name === 'a' && value === address && event.created_at <= request.created_at),
  );
}

/** Events whose presence follows from the model, and those about which it says nothing at this moment. */
export interface Expected {
  readonly served: ReadonlyMap<string, VerifiedEvent>;
  /** They may be served or not: an erasure is under way, or they expire about now. */
  readonly open: ReadonlySet<string>;
  /** No longer served, and perhaps not announced yet: copies may hold them for about a minute. */
  readonly expired: ReadonlySet<string>;
  /**
   * Versions of a key whose newest one is deleted or expired. A node of a network serves one of them if the
   * newest never reached it: the deletion of an id does not say which key the event had. Versions between
   * them need not reach it either: a node that knew the newest one keeps none of them.
   */
  readonly behindGone: ReadonlySet<string>;
  /**
   * Of members who are erased. Their requests are erased with them, so a peer that a request has not reached
   * by then keeps its target.
   */
  readonly ofErased: ReadonlySet<string>;
}

export function expectedView(
  all: readonly Sent[],
  community: number,
  { removed, erased }: Acts,
  { from, to }: { readonly from: number; readonly to: number },
): Expected {
  const here = all.filter(
    (one) => one.community === community && !one.isForged && !isEphemeral(one.event.kind),
  );
  const requests = here.filter(({ event, accepted }) => event.kind === 5 && accepted);
  const newest = new Map<string, VerifiedEvent>();
  for (const { event, isHeld } of here) {
    const address = addressOf(event);
    if (address === undefined || isHeld) continue;
    const best = newest.get(address);
    if (best === undefined || isNewer(event, best)) newest.set(address, event);
  }
  const isDeleted = (event: VerifiedEvent) => requests.some((request) => isDeletedBy(event, request.event));
  const isGone = (event: VerifiedEvent) => isDeleted(event) || expirationOf(event) <= to;
  const versions = here.filter(({ event, isHeld }) => addressOf(event) !== undefined && !isHeld);
  const behindGone = versions.filter(({ event }) => !isGone(event) && isGone(newest.get(addressOf(event)!)!));
  const served = new Map<string, VerifiedEvent>();
  const open = new Set<string>();
  const expired = new Set<string>();
  for (const { event, isHeld } of here) {
    const address = addressOf(event);
    const isHidden =
      isHeld ||
      removed.has(event.id) ||
      (address !== undefined && newest.get(address) !== event) ||
      isDeleted(event);
    if (isHidden) continue;
    if (expirationOf(event) <= from) expired.add(event.id);
    else if (erased.has(event.pubkey) || expirationOf(event) <= to) open.add(event.id);
    else served.set(event.id, event);
  }
  const ofErased = here.filter(({ event, isHeld }) => !isHeld && erased.has(event.pubkey));
  const ids = (of: readonly Sent[]) => new Set(of.map(({ event }) => event.id));
  return { served, open, expired, behindGone: ids(behindGone), ofErased: ids(ofErased) };
}
