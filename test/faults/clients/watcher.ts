/**
 * A live subscription without a cursor. It checks, for each connection, that no event comes twice (I10), that
 * none is of another community (I13), held (I16), forged (I2) or expired (I7).
 */
import { setTimeout as delay } from 'node:timers/promises';
import type { VerifiedEvent } from 'nostr-tools/pure';
import { HELD_WORD, SLUGS } from '../plan.js';
import type { Violations } from '../violations.js';
import { type Frame, pathOf, Socket } from './socket.js';

const AGAIN_MS = 200;
/** A message is on its way for a moment, longer on a busy machine. */
const LATE_MS_MAX = 2_000;

export interface WatcherOptions {
  readonly port: () => number;
  readonly community: number;
  /** Where the community is served, if not where the node serves it. */
  readonly path?: string;
  readonly kinds: readonly number[];
  readonly violations: Violations;
  /** An event that may come again. */
  readonly mayRepeat: (event: VerifiedEvent) => boolean;
  readonly isForged: (id: string) => boolean;
  /** The clock of the node is right, and nothing delays what it sends. */
  readonly isInTime: () => boolean;
}

export class Watcher {
  /** What has come on this connection, since its EOSE. */
  private seen = new Set<string>();
  /** When the subscription of this connection became live; undefined while there is none. */
  liveSince: number | undefined;
  received = 0;
  private socket: Socket | undefined;
  private isRunning = true;
  private readonly loop: Promise<void>;

  constructor(private readonly options: WatcherOptions) {
    this.loop = this.run();
  }

  get community(): number {
    return this.options.community;
  }

  has(id: string): boolean {
    return this.seen.has(id);
  }

  async stop(): Promise<void> {
    this.isRunning = false;
    this.socket?.cut();
    await this.loop;
  }

  private async run(): Promise<void> {
    const { port, community, kinds, path = pathOf(community) } = this.options;
    while (this.isRunning) {
      this.seen = new Set();
      this.liveSince = undefined;
      let isOpen = true;
      this.socket = await Socket.open(port(), path, {
        onFrame: (frame) => {
          // After CLOSED (the database was away) it subscribes again, on a new connection.
          if (frame[0] === 'CLOSED') this.socket?.cut();
          this.onFrame(frame);
        },
        onClose: () => {
          isOpen = false;
          this.liveSince = undefined;
        },
      }).catch(() => undefined);
      this.socket?.send(['REQ', 'live', { kinds, limit: 0 }]);
      while (isOpen && this.socket !== undefined && this.isRunning) await delay(AGAIN_MS);
      await delay(AGAIN_MS);
    }
  }

  private onFrame(frame: Frame): void {
    if (frame[0] === 'EOSE') this.liveSince = Date.now();
    if (frame[0] !== 'EVENT') return;
    const event = frame[2] as VerifiedEvent;
    const { violations, community, mayRepeat, isForged, isInTime } = this.options;
    const about = `${event.id} "${event.content}"`;
    this.received += 1;
    if (this.seen.has(event.id) && !mayRepeat(event))
      violations.add('I10', `a subscription got ${about} twice`);
    this.seen.add(event.id);
    if (event.content.includes(HELD_WORD)) violations.add('I16', `a held event was delivered: ${about}`);
    if (isForged(event.id)) violations.add('I2', `a forged event was delivered: ${about}`);
    const other = SLUGS.find((slug, at) => at !== community && event.content.startsWith(`${slug} `));
    if (other !== undefined) violations.add('I13', `${SLUGS[community]} got an event of ${other}: ${about}`);
    const expiration = event.tags.find(([name]) => name === 'expiration')?.[1];
    if (expiration !== undefined && isInTime() && Number(expiration) * 1_000 + LATE_MS_MAX < Date.now())
      violations.add('I7', `an expired event was delivered: ${about}`);
  }
}
