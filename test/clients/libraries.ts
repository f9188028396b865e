/**
 * Client libraries behind one face: what a person's client does with each of them, in the way that its readme
 * shows.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { bytesToHex } from '@noble/hashes/utils.js';
import NDK, { NDKEvent, NDKPrivateKeySigner, NDKRelayAuthPolicies } from '@nostr-dev-kit/ndk';
import { NRelay1, NSecSigner } from '@nostrify/nostrify';
import {
  Client,
  Duration,
  Keys,
  loadWasmAsync,
  NostrSigner,
  Event as RustEvent,
  Filter as RustFilter,
} from '@rust-nostr/nostr-sdk';
import {
  defaultSocketPolicies,
  makeSocketPolicyAuth,
  Pool,
  PublishStatus,
  publishOne,
  request,
  Socket,
} from '@welshman/net';
import { RelayPool as ApplesaucePool } from 'applesauce-relay';
import { SimplePool, useWebSocketImplementation } from 'nostr-tools/pool';
import { type Event, type EventTemplate, finalizeEvent } from 'nostr-tools/pure';
import { createRxBackwardReq, createRxForwardReq, createRxNostr, noopSigner, noopVerifier } from 'rx-nostr';
import WebSocket from 'ws';
import type { Author } from '../support/events.js';

/** One message a turn, as in a browser: snort takes an EOSE for the end of what it has not looked at yet. */
export class BrowserSocket extends WebSocket {
  constructor(url: string, protocols?: string | string[]) {
    super(url, protocols, { allowSynchronousEvents: false });
  }
}

// Node has a WebSocket of its own from version 22 on; most libraries know no other way to be given one.
globalThis.WebSocket ??= BrowserSocket as unknown as typeof globalThis.WebSocket;
useWebSocketImplementation(WebSocket);

export type Filter = {
  kinds?: number[];
  authors?: string[];
  ids?: string[];
  limit?: number;
  [tag: `#${string}`]: string[];
};

export interface LibraryClient {
  /** Resolves when the relay took it; rejects when it did not. Missing where a library only reads. */
  publish?(event: Event): Promise<unknown>;
  /** What is stored. */
  fetch(filter: Filter): Promise<string[]>;
  /** The ids of stored and live events; missing where a library has none. */
  subscribe?(filter: Filter, onEvent: (id: string) => void): void;
  close(): unknown;
}

export interface Library {
  readonly name: string;
  /** It answers challenges by itself. */
  readonly authenticates: boolean;
  open(url: string, author: Author): Promise<LibraryClient>;
}

/** What libraries give up after a few seconds is waited for: a busy machine is slow, not broken. */
const PATIENCE_MS = 60_000;

const ids = (events: Iterable<{ id: string }>): string[] => Array.from(events, ({ id }) => id);
const signerOf = (author: Author) => async (template: EventTemplate) =>
  finalizeEvent(template, author.secret);

const nostrTools: Library = {
  name: 'nostr-tools',
  authenticates: true,
  open: async (url, author) => {
    const pool = new SimplePool({ enableReconnect: true });
    pool.automaticallyAuth = () => signerOf(author);
    const relay = await pool.ensureRelay(url, { connectionTimeout: PATIENCE_MS });
    relay.publishTimeout = PATIENCE_MS;
    return {
      publish: (event) => Promise.all(pool.publish([url], event)),
      fetch: async (filter) => ids(await pool.querySync([url], filter, { maxWait: PATIENCE_MS })),
      subscribe: (filter, onEvent) => {
        pool.subscribe([url], filter, { onevent: ({ id }) => onEvent(id) });
      },
      close: () => pool.destroy(),
    };
  },
};

const ndkWith = (policy: 'signs in' | 'none'): Library => ({
  name: policy === 'none' ? 'NDK without an auth policy' : 'NDK',
  authenticates: policy !== 'none',
  open: async (url, author) => {
    const signer = new NDKPrivateKeySigner(bytesToHex(author.secret));
    const client = new NDK({ explicitRelayUrls: [url], enableOutboxModel: false, signer });
    if (policy !== 'none')
      client.relayAuthDefaultPolicy = NDKRelayAuthPolicies.signIn({ ndk: client, signer });
    await client.connect(5_000);
    return {
      publish: async (event) => new NDKEvent(client, event).publish(undefined, PATIENCE_MS),
      fetch: async (filter) => ids(await client.fetchEvents(filter)),
      subscribe: (filter, onEvent) => {
        const subscription = client.subscribe(filter, { closeOnEose: false });
        subscription.on('event', ({ id }: NDKEvent) => onEvent(id));
      },
      close: () => {
        for (const relay of client.pool.relays.values()) relay.disconnect();
      },
    };
  },
});
const ndk = ndkWith('signs in');
/** An application for reading only. After a challenge it would not come back when it is cut off. */
export const NDK_WITHOUT_POLICY = ndkWith('none');

const welshman: Library = {
  name: 'welshman',
  authenticates: true,
  open: async (url, author) => {
    const auth = makeSocketPolicyAuth({ sign: signerOf(author), shouldAuth: () => true });
    const pool = new Pool({ makeSocket: (at) => new Socket(at, [...defaultSocketPolicies, auth]) });
    const context = { pool };
    const stop = new AbortController();
    return {
      publish: async (event) => {
        const { status, detail } = await publishOne({ relay: url, event, context, timeout: PATIENCE_MS });
        if (status !== PublishStatus.Success) throw new Error(detail);
      },
      fetch: async (filter) => {
        const found = await request({ relays: [url], filters: [filter], context, autoClose: true });
        return ids(found);
      },
      subscribe: (filter, onEvent) => {
        const onEach = ({ id }: { id: string }) => onEvent(id);
        const { signal } = stop;
        void request({ relays: [url], filters: [filter], context, onEvent: onEach, signal });
      },
      close: () => {
        stop.abort();
        pool.clear();
      },
    };
  },
};

const applesauce: Library = {
  name: 'applesauce',
  authenticates: false,
  open: async (url) => {
    const pool = new ApplesaucePool();
    const relay = pool.relay(url);
    const open: { unsubscribe(): void }[] = [];
    return {
      publish: async (event) => {
        const { ok, message } = await relay.publish(event);
        if (!ok) throw new Error(message);
      },
      fetch: (filter) =>
        new Promise((resolve, reject) => {
          const found: string[] = [];
          relay.request(filter).subscribe({
            next: ({ id }) => found.push(id),
            error: reject,
            complete: () => resolve(found),
          });
        }),
      subscribe: (filter, onEvent) => {
        const live = relay.subscription(filter, { reconnect: Number.POSITIVE_INFINITY });
        open.push(live.subscribe((message) => typeof message !== 'string' && onEvent(message.id)));
      },
      close: () => {
        for (const subscription of open) subscription.unsubscribe();
        relay.close();
      },
    };
  },
};

const rxNostr: Library = {
  name: 'rx-nostr',
  authenticates: true,
  open: async (url, author) => {
    const client = createRxNostr({
      verifier: noopVerifier,
      signer: {
        signEvent: async (template) => ({
          ...finalizeEvent(
            { created_at: Math.floor(Date.now() / 1_000), tags: [], ...template },
            author.secret,
          ),
          kind: template.kind,
        }),
        getPublicKey: async () => author.pubkey,
      },
      authenticator: 'auto',
      websocketCtor: WebSocket,
      retry: { strategy: 'linear', interval: 500, maxCount: 60 },
    });
    client.setDefaultRelays([url]);
    return {
      publish: (event) =>
        new Promise((resolve, reject) => {
          client.send(event, { signer: noopSigner() }).subscribe({
            next: ({ ok, notice }) => (ok ? resolve(notice) : reject(new Error(notice))),
            error: reject,
          });
        }),
      fetch: (filter) =>
        new Promise((resolve, reject) => {
          const asked = createRxBackwardReq();
          const found: string[] = [];
          client.use(asked).subscribe({
            next: ({ event }) => found.push(event.id),
            error: reject,
            complete: () => resolve(found),
          });
          asked.emit(filter);
          asked.over();
        }),
      subscribe: (filter, onEvent) => {
        const asked = createRxForwardReq();
        client.use(asked).subscribe(({ event }) => onEvent(event.id));
        asked.emit(filter);
      },
      close: () => client.dispose(),
    };
  },
};

/** Its types do not resolve under Node's rules, so what is used of it is named here. */
interface Fetching {
  NostrFetcher: {
    init(options: { webSocketConstructor: unknown }): {
      fetchLatestEvents(
        relays: string[],
        filter: object,
        limit: number,
        options: { abortSubBeforeEoseTimeoutMs: number },
      ): Promise<{ id: string }[]>;
      shutdown(): void;
    };
  };
}

const nostrFetch: Library = {
  name: 'nostr-fetch',
  authenticates: false,
  open: async (url) => {
    const name = 'nostr-fetch';
    const { NostrFetcher } = (await import(name)) as Fetching;
    const fetcher = NostrFetcher.init({ webSocketConstructor: WebSocket });
    // It names a subscription by the millisecond and two random letters: two of one millisecond can have one
    // name.
    let started: Promise<unknown> = Promise.resolve();
    return {
      fetch: async ({ limit = 100, ...filter }) => {
        started = started.then(() => delay(2));
        await started;
        const patient = { abortSubBeforeEoseTimeoutMs: PATIENCE_MS };
        return ids(await fetcher.fetchLatestEvents([url], filter, limit, patient));
      },
      close: () => fetcher.shutdown(),
    };
  },
};

/** As above. */
interface Snort {
  NostrSystem: new (
    options: object,
  ) => {
    Init(): Promise<void>;
    ConnectToRelay(url: string, options: { read: boolean; write: boolean }): Promise<void>;
    DisconnectRelay(url: string): void;
    BroadcastEvent(event: Event): Promise<{ ok: boolean; message: string }[]>;
    Fetch(asked: SnortRequest): Promise<{ id: string }[]>;
    Query(asked: SnortRequest): {
      on(what: 'event', listener: (events: { id: string }[]) => void): void;
      start(): void;
    };
  };
  RequestBuilder: new (id: string) => SnortRequest;
}
interface SnortRequest {
  withBareFilter(filter: object): unknown;
  withOptions(options: { leaveOpen?: boolean; skipDiff?: boolean; skipCache?: boolean }): SnortRequest;
}

const snort: Library = {
  name: 'snort',
  authenticates: false,
  open: async (url) => {
    const name = '@snort/system';
    const { NostrSystem, RequestBuilder } = (await import(name)) as Snort;
    const system = new NostrSystem({
      automaticOutboxModel: false,
      buildFollowGraph: false,
      checkSigs: false,
    });
    await system.Init();
    await system.ConnectToRelay(url, { read: true, write: true });
    let asked = 0;
    const about = (filter: Filter) => {
      asked += 1;
      const builder = new RequestBuilder(`asked-${asked}`);
      builder.withBareFilter(filter);
      return builder;
    };
    return {
      publish: async (event) => {
        const [answer] = await system.BroadcastEvent(event);
        if (!answer?.ok) throw new Error(answer?.message);
      },
      fetch: async (filter) => ids(await system.Fetch(about(filter))),
      subscribe: (filter, onEvent) => {
        const query = system.Query(about(filter).withOptions({ leaveOpen: true }));
        query.on('event', (events) => {
          for (const { id } of events) onEvent(id);
        });
        query.start();
      },
      close: () => system.DisconnectRelay(url),
    };
  },
};

const rustNostr: Library = {
  name: 'rust-nostr',
  authenticates: true,
  open: async (url, author) => {
    await loadWasmAsync();
    const client = new Client(NostrSigner.keys(Keys.parse(bytesToHex(author.secret))));
    await client.addRelay(url);
    await client.connect();
    let handle: { abort(): void } | undefined;
    return {
      publish: async (event) => {
        const { success, failed } = await client.sendEvent(RustEvent.fromJson(JSON.stringify(event)));
        if (success.length === 0) throw new Error(failed[0]?.error);
      },
      fetch: async (filter) => {
        const asked = RustFilter.fromJson(JSON.stringify(filter));
        const events = await client.fetchEvents(asked, Duration.fromSecs(PATIENCE_MS / 1_000));
        return events.toVec().map((event) => event.id.toHex());
      },
      subscribe: (filter, onEvent) => {
        handle = client.handleNotifications({
          handleEvent: async (_relay, _subscription, event) => {
            onEvent(event.id.toHex());
            return false;
          },
          handleMsg: async () => false,
        });
        void client.subscribe(RustFilter.fromJson(JSON.stringify(filter)));
      },
      close: async () => {
        handle?.abort();
        await client.shutdown();
      },
    };
  },
};

const nostrify: Library = {
  name: 'nostrify',
  authenticates: true,
  open: async (url, author) => {
    const signer = new NSecSigner(author.secret);
    const auth = (challenge: string) =>
      signer.signEvent({
        kind: 22_242,
        created_at: Math.floor(Date.now() / 1_000),
        tags: [
          ['relay', url],
          ['challenge', challenge],
        ],
        content: '',
      });
    const relay = new NRelay1(url, { auth });
    const stop = new AbortController();
    return {
      publish: (event) => relay.event(event),
      fetch: async (filter) => ids(await relay.query([filter])),
      subscribe: (filter, onEvent) => {
        const read = async () => {
          for await (const message of relay.req([filter], { signal: stop.signal }))
            if (message[0] === 'EVENT') onEvent(message[2].id);
        };
        void read().catch(() => undefined);
      },
      close: async () => {
        stop.abort();
        await relay.close();
      },
    };
  },
};

/** It has no types. */
interface SmallPools {
  RelayPool: new (
    relays: string[],
    options: { autoReconnect: boolean },
  ) => {
    subscribe(
      filters: Filter[],
      relays: string[],
      onEvent: (event: { id: string }) => void,
      delayMs?: number,
      onEose?: () => void,
      options?: { unsubscribeOnEose: boolean },
    ): void;
    publish(event: Event, relays: string[]): void;
    close(): void;
  };
}

const relaypool: Library = {
  name: 'relaypool',
  authenticates: false,
  open: async (url) => {
    const name = 'nostr-relaypool';
    const { RelayPool } = (await import(name)) as SmallPools;
    const pool = new RelayPool([url], { autoReconnect: true });
    return {
      publish: async (event) => pool.publish(event, [url]),
      fetch: (filter) =>
        new Promise((resolve) => {
          const found: string[] = [];
          const done = () => resolve(found);
          pool.subscribe([filter], [url], ({ id }) => found.push(id), undefined, done, {
            unsubscribeOnEose: true,
          });
        }),
      subscribe: (filter, onEvent) => {
        pool.subscribe([filter], [url], ({ id }) => onEvent(id), 0);
      },
      close: () => pool.close(),
    };
  },
};

export const LIBRARIES: readonly Library[] = [
  nostrTools,
  ndk,
  welshman,
  applesauce,
  rxNostr,
  nostrFetch,
  snort,
  rustNostr,
  nostrify,
  relaypool,
];
