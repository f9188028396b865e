/**
 * A member that posts one event after another, and connects again whenever it is cut off. It knows which of
 * its events were acknowledged: those must never be lost (I1).
 */
import { setTimeout as delay } from 'node:timers/promises';
import { newAuthor, sign } from '../events.js';
import { RawClient } from './client.js';

const PAUSE_MS = 20;
const ANSWER_MS_MAX = 30_000;

export class Poster {
  readonly author = newAuthor();
  /** Ids with `OK true`, in this order. */
  readonly acknowledged: string[] = [];
  /** Why it could not connect, each time. */
  readonly refusals: string[] = [];
  /** Times that it was cut off while it was connected. */
  cuts = 0;
  private isStopping = false;
  private readonly running: Promise<void>;

  constructor(private readonly url: string) {
    this.running = this.run();
  }

  async stop(): Promise<void> {
    this.isStopping = true;
    await this.running;
  }

  private async run(): Promise<void> {
    let client: RawClient | undefined;
    for (let place = 0; !this.isStopping; place++) {
      const event = sign(this.author, { content: `${place}` });
      // Until somebody has answered: an event whose fate is unknown is sent again.
      for (let isAnswered = false; !isAnswered && !this.isStopping; ) {
        if (client === undefined || client.closed !== undefined) client = await this.connect();
        if (client === undefined) continue;
        isAnswered = await this.post(client, event);
      }
      await delay(PAUSE_MS);
    }
    await client?.close().catch(() => undefined);
  }

  private async connect(): Promise<RawClient | undefined> {
    try {
      return await RawClient.connect(this.url);
    } catch (error) {
      this.refusals.push(String(error));
      await delay(PAUSE_MS);
      return undefined;
    }
  }

  /** False: cut off, or the node has failed for a moment. */
  private async post(client: RawClient, event: { id: string }): Promise<boolean> {
    const from = client.frames.length;
    client.send(['EVENT', event]);
    const isOk = () => client.frames.slice(from).find((frame) => frame[0] === 'OK' && frame[1] === event.id);
    await client.until(() => client.closed !== undefined || isOk() !== undefined, ANSWER_MS_MAX);
    const ok = isOk();
    if (ok === undefined) {
      this.cuts += 1;
      return false;
    }
    if (ok[2] !== true && !String(ok[3]).startsWith('error:')) throw new Error(`refused: ${ok[3]}`);
    if (ok[2] === true) this.acknowledged.push(event.id);
    return ok[2] === true;
  }
}
