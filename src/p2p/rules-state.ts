/** What the holder of the endpoint reports about it, for commands, the API and the console. Pure. */

export interface P2pState {
  /** Why the endpoint is not open; null while it is. */
  readonly problem: string | null;
  readonly since: number;
  /** The UDP port that was asked for is taken: iroh has bound another one. */
  readonly isPortTaken: boolean;
  /** The public relay server that iroh has chosen. This binding cannot switch it off. */
  readonly relay: string | null;
  readonly topics: number;
  /** Topics that would be joined without p2p.topicsMax. */
  readonly topicsWanted: number;
  readonly neighbours: readonly Neighbour[];
  /** Peers that are ignored for a while. */
  readonly dropped: readonly string[];
  readonly counts: P2pCounts;
  readonly offset: number;
  readonly catchUp: CatchUpState;
}

export interface Neighbour {
  readonly machine: string;
  readonly topics: number;
}

/** Since the endpoint was opened. */
export interface P2pCounts {
  /** Events, and the messages that carried them. */
  readonly sentEvents: number;
  readonly sentMessages: number;
  readonly receivedMessages: number;
  readonly accepted: number;
  readonly duplicates: number;
  readonly refused: number;
  /** Malformed or forged. */
  readonly invalid: number;
  /** Over the rate of a peer, or from a peer that is ignored. */
  readonly discarded: number;
  readonly lagged: number;
}

export interface CatchUpState {
  /** False where this build has no engine for it. */
  readonly available: boolean;
  readonly waiting: number;
  readonly done: number;
  readonly failed: number;
  readonly lastError: string | null;
}
