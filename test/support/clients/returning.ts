/**
 * A client that follows some authors with a cursor (docs/cursors.md) and comes back with it whenever it is
 * cut off. It keeps every delivery of all its connections: each event must come once, in the order of the
 * commits.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { type Frame, RawClient } from './client.js';

const PAUSE_MS = 20;
const SUB = 'followed';
/** Refusals that pass: docs/cursors.md. */
const PASSING = /^(error: (?!what you may see|changes after the cursor)|rate-limited:)/;

export class Returning {
  /** Ids of events, in the order in which they came. */
  readonly deliveries: string[] = [];
  /** Times that it has connected. */
  visits = 0;
  /** A refusal after which it would have to begin again. */
  failure: string | undefined;
  private cursor = '';
  private isStopping = false;
  private client: RawClient | undefined;
  private readonly running: Promise<void>;
  private hasStarted: () => void = () => undefined;
  /** It has its first cursor. */
  readonly started = new Promise<void>((resolve) => {
    this.hasStarted = resolve;
  });

  constructor(
    private readonly url: string,
    private readonly filter: object,
  ) {
    this.running = this.run();
  }

  async stop(): Promise<void> {
    this.isStopping = true;
    this.client?.ws.terminate();
    await this.running;
  }

  private async run(): Promise<void> {
    while (!this.isStopping && this.failure === undefined) {
      const client = await RawClient.connect(this.url).catch(() => undefined);
      if (client !== undefined) await this.visit(client);
      await delay(PAUSE_MS);
    }
  }

  /** Until it is cut off. */
  private async visit(client: RawClient): Promise<void> {
    this.client = client;
    this.visits += 1;
    // The first time without stored events: a cursor for now.
    const filter = { ...this.filter, cursor: this.cursor, ...(this.cursor === '' ? { limit: 0 } : {}) };
    client.ws.on('message', (data) => this.apply(client, JSON.parse(String(data)) as Frame));
    client.send(['REQ', SUB, filter]);
    if (this.isStopping) client.ws.terminate();
    if (client.closed === undefined) await new Promise((resolve) => client.ws.once('close', resolve));
  }

  private apply(client: RawClient, [verb, sub, about, cursor]: Frame): void {
    if (sub !== SUB) return;
    if (verb === 'EVENT') this.deliveries.push((about as { id: string }).id);
    if (typeof cursor === 'string') this.cursor = cursor;
    if (verb === 'EOSE') this.hasStarted();
    if (verb !== 'CLOSED') return;
    if (!PASSING.test(String(about))) this.failure = String(about);
    client.ws.terminate();
  }
}
