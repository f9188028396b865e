/**
 * The messages between the node and the process of its endpoint. iroh runs in a process of its own: a flood
 * of messages costs the node nothing, a call that hangs ends with that process (I15), and a UDP port is only
 * free again when its process has ended.
 */

export interface OpenEndpoint {
  readonly secret: string;
  readonly bind: string;
  readonly port: number;
  readonly discovery: boolean;
  readonly limits: EndpointLimits;
}

export interface EndpointLimits {
  readonly messagesPerSecond: number;
}

export interface PeerAddress {
  readonly id: string;
  readonly addresses: readonly string[];
}

/** Each call is answered by `done`. */
export type Call =
  | { readonly type: 'open'; readonly options: OpenEndpoint }
  | { readonly type: 'join'; readonly topic: string; readonly peers: readonly PeerAddress[] }
  | { readonly type: 'leave'; readonly topic: string }
  /** Says goodbye to its neighbours. */
  | { readonly type: 'close' }
  | { readonly type: 'send'; readonly topic: string; readonly contents: readonly Uint8Array[] };

export type ToEndpoint =
  | { readonly type: 'call'; readonly call: number; readonly what: Call }
  /** So many messages have been processed. */
  | { readonly type: 'took'; readonly peer: string; readonly count: number }
  | { readonly type: 'limits'; readonly limits: EndpointLimits }
  | { readonly type: 'ignore'; readonly peer: string; readonly ms: number };

export interface Opened {
  readonly id: string;
  readonly addresses: readonly string[];
  readonly relay: string | null;
}

export type FromEndpoint =
  | { readonly type: 'done'; readonly call: number; readonly error?: string; readonly opened?: Opened }
  | {
      readonly type: 'message';
      readonly topic: string;
      readonly peer: string;
      readonly content: Uint8Array;
    }
  | { readonly type: 'up' | 'down'; readonly topic: string; readonly peer: string }
  /** Messages of this topic were lost: iroh could not deliver them in time, or the stream broke. */
  | { readonly type: 'lost'; readonly topic: string; readonly why: 'lagged' | 'broken' }
  /** Messages that were discarded since the last report, over the rate of a peer or of an ignored one. */
  | { readonly type: 'discarded'; readonly messages: number; readonly topics: readonly string[] };

/** The package that the endpoint needs; it is an optional dependency. */
export const IROH = '@number0/iroh';
/** The exit code of an endpoint without that package. */
export const NO_IROH = 78;
