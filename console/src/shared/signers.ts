/**
 * Signs events for the person in front of the page: with a browser extension (NIP-07) or with a remote signer
 * (NIP-46). The page never sees a secret key of the person.
 */
import type { EventTemplate, VerifiedEvent } from 'nostr-tools/pure';

export interface Signer {
  readonly kind: 'extension' | 'remote';
  pubkey(): Promise<string>;
  sign(draft: EventTemplate): Promise<VerifiedEvent>;
  close(): Promise<void>;
}

declare global {
  interface Window {
    nostr?: {
      getPublicKey(): Promise<string>;
      signEvent(draft: EventTemplate): Promise<VerifiedEvent>;
    };
  }
}

export const hasExtension = (): boolean => window.nostr !== undefined;

export function extensionSigner(): Signer {
  const { nostr } = window;
  if (nostr === undefined) throw new Error('no extension');
  return {
    kind: 'extension',
    pubkey: () => nostr.getPublicKey(),
    sign: (draft) => nostr.signEvent(draft),
    close: async () => undefined,
  };
}

const REMOTE_KEPT = 'minato.remote';

interface KeptRemote {
  readonly address: string;
  /** Identifies this browser to the signer; it is no key of the person. */
  readonly client: string;
}

/** `address` is `bunker://…`. `onAuth` shows a page of the signer that asks for consent. */
export async function remoteSigner(
  address: string,
  onAuth: (url: string) => void,
  kept?: KeptRemote,
): Promise<Signer> {
  const [
    { BunkerSigner, parseBunkerInput },
    { finalizeEvent, generateSecretKey },
    { bytesToHex, hexToBytes },
    pools,
  ] = await Promise.all([
    import('nostr-tools/nip46'),
    import('nostr-tools/pure'),
    import('nostr-tools/utils'),
    import('nostr-tools/pool'),
  ]);
  const pointer = await parseBunkerInput(address);
  if (pointer === null) throw new Error('not a remote signer');
  const client = kept === undefined ? generateSecretKey() : hexToBytes(kept.client);
  // A relay that clients must authenticate to gets the key of this browser. The library would give up.
  const pool = new pools.SimplePool();
  const onauth = async (draft: EventTemplate) => finalizeEvent(draft, client);
  const [subscribe, publish] = [pool.subscribe.bind(pool), pool.publish.bind(pool)];
  pool.subscribe = (relays, filter, params) => subscribe(relays, filter, { ...params, onauth });
  pool.publish = (relays, event, params) => publish(relays, event, { ...params, onauth });
  const bunker = BunkerSigner.fromBunker(client, pointer, { onauth: onAuth, pool });
  if (kept === undefined) await bunker.connect();
  const keep: KeptRemote = { address, client: bytesToHex(client) };
  sessionStorage.setItem(REMOTE_KEPT, JSON.stringify(keep));
  return {
    kind: 'remote',
    pubkey: () => bunker.getPublicKey(),
    sign: (draft) => bunker.signEvent(draft),
    close: () => bunker.close(),
  };
}

/** The relays of the remote signer of this tab; undefined if none was used before. */
export function rememberedRelays(): readonly string[] | undefined {
  const text = sessionStorage.getItem(REMOTE_KEPT);
  if (text === null) return undefined;
  const { address } = JSON.parse(text) as KeptRemote;
  return URL.canParse(address) ? new URL(address).searchParams.getAll('relay') : [];
}

/** The remote signer of this tab, if it was used before. */
export async function rememberedSigner(onAuth: (url: string) => void): Promise<Signer | undefined> {
  const text = sessionStorage.getItem(REMOTE_KEPT);
  if (text === null) return undefined;
  const kept = JSON.parse(text) as KeptRemote;
  return remoteSigner(kept.address, onAuth, kept);
}

export const forgetRemote = (): void => sessionStorage.removeItem(REMOTE_KEPT);
