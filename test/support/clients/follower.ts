/** A client that comes back with a cursor (docs/cursors.md), and keeps its view by what it receives. */
import type { NostrEvent } from '../../../src/events/rules/event.js';
import { type Frame, RawClient } from './client.js';

export const SUB = 'followed';

export class Follower {
  readonly held = new Map<string, NostrEvent>();
  cursor = '';
  /** EVENT frames of one connection for an event that it already held. */
  doubles = 0;
  /** How often it had to begin again. */
  restarts = 0;
  client: RawClient | undefined;
  private applied = 0;
  private received = new Set<string>();

  constructor(readonly filters: readonly object[]) {}

  /** Connects, sends its cursor, and waits for EOSE; begins again where the relay asks for it. */
  async connect(url: string, prepare?: (client: RawClient) => Promise<unknown>): Promise<Frame> {
    const client = await RawClient.connect(url);
    this.client = client;
    this.applied = 0;
    await prepare?.(client);
    this.applied = client.frames.length;
    return this.open();
  }

  async open(): Promise<Frame> {
    const client = this.client!;
    const from = client.frames.length;
    this.received = new Set();
    client.send(['REQ', SUB, ...this.filters.map((filter) => ({ ...filter, cursor: this.cursor }))]);
    const end = await client.waitFor(isEnd, from);
    this.apply();
    return end;
  }

  /** Forgets everything, as the reason of a CLOSED asks. */
  async beginAgain(): Promise<Frame> {
    this.restarts += 1;
    this.held.clear();
    this.cursor = '';
    return this.open();
  }

  /** Applies the frames that have come since. Returns them. */
  apply(): Frame[] {
    const client = this.client!;
    const fresh = client.frames.slice(this.applied).filter((frame) => frame[1] === SUB);
    this.applied = client.frames.length;
    for (const frame of fresh) this.applyOne(frame);
    return fresh;
  }

  get isClosed(): boolean {
    return this.client!.frames.some((frame) => frame[0] === 'CLOSED' && frame[1] === SUB);
  }

  private applyOne([verb, , about, cursor]: Frame): void {
    if (verb === 'EVENT') {
      const event = about as NostrEvent;
      if (this.received.has(event.id)) this.doubles += 1;
      this.received.add(event.id);
      this.held.set(event.id, event);
    }
    if (verb === 'GONE') {
      this.received.delete(String(about));
      this.held.delete(String(about));
    }
    if (typeof cursor === 'string') this.cursor = cursor;
  }

  async leave(): Promise<void> {
    if (this.client === undefined) return;
    this.apply();
    await this.client.close();
    this.client = undefined;
  }
}

const isEnd = (frame: Frame) => (frame[0] === 'EOSE' || frame[0] === 'CLOSED') && frame[1] === SUB;
