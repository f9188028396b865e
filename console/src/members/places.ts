/**
 * Which page this document was loaded as. The policy of a document depends on that (src/pages/members.ts):
 * readers may load pictures after a click, and `/remote` may connect to the relays of remote signers.
 */
import { prefix } from '../shared/place.js';
import { rememberedRelays } from '../shared/signers.js';

const READERS = /^\/(topics|latest|search)(\/|$)/;
const below = (path: string) => path.slice(prefix.length) || '/';
const loadedAt = below(location.pathname);

export const mayLoadPictures = READERS.test(loadedAt);
export const mayReachSigners = loadedAt === '/remote';

/** A reader is loaded as a whole if this document may not load pictures. With a remote signer this one stays. */
export const isLoadedWhole = (path: string): boolean =>
  READERS.test(path) && !mayLoadPictures && !mayReachSigners;

export const topicPath = (topic: string): string => `/topics/${encodeURIComponent(topic)}`;

/** The conversation that a post belongs to. */
export const threadPath = (topic: string | undefined, post: string): string =>
  `${topic === undefined ? '/latest' : topicPath(topic)}/${post}`;

/** The remote signer of this tab uses other relays, which this document may not reach. */
export function mustReconnect(): boolean {
  const relays = rememberedRelays();
  if (relays === undefined || mayReachSigners) return false;
  return relays.length === 0 || relays.some((relay) => !isOwn(relay));
}

const isOwn = (relay: string): boolean => URL.canParse(relay) && new URL(relay).host === location.host;

/** Loads the page that may reach the signer, which then shows this path. */
export function reconnectHere(): void {
  const next = encodeURIComponent(below(location.pathname) + location.search);
  location.replace(`${prefix}/remote?next=${next}`);
}
