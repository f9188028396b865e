/** The library has no types of its own. */
declare module 'nostr-relaypool' {
  import type { Event, Filter } from 'nostr-tools';

  export class RelayPool {
    constructor(relays?: string[], options?: { autoReconnect?: boolean; logErrorsAndNotices?: boolean });
    subscribe(
      filters: Filter[],
      relays: string[],
      onEvent: (event: Event) => void,
      maxDelayms?: number,
      onEose?: (relayUrl: string) => void,
      options?: { unsubscribeOnEose?: boolean; allowDuplicateEvents?: boolean; allowOlderEvents?: boolean },
    ): () => void;
    publish(event: Event, relays: string[]): void;
    close(): void;
  }
}
