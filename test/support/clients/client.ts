/**
 * A raw client: sends exactly what a test wants, and keeps every frame. The AUTH challenge is kept
 * separately.
 */
import WebSocket from 'ws';
import { ledger } from '../secrets/ledger.js';

export type Frame = [string, ...unknown[]];

/** The id of the subscription that only makes the node send a challenge. */
const CHALLENGE = 'only-for-the-challenge';

export class RawClient {
  readonly frames: Frame[] = [];
  readonly challenges: string[] = [];
  closed: { code: number; reason: string } | undefined;
  private readonly watchers = new Set<() => void>();

  private constructor(readonly ws: WebSocket) {
    ws.on('message', (data) => {
      const text = String(data);
      ledger.note('frame', text);
      const frame = JSON.parse(text) as Frame;
      if (frame[0] === 'AUTH') this.challenges.push(String(frame[1]));
      else if (frame[1] !== CHALLENGE) this.frames.push(frame);
      this.changed();
    });
    ws.on('close', (code, reason) => {
      this.closed = { code, reason: String(reason) };
      this.changed();
    });
    ws.on('error', () => undefined);
  }

  get challenge(): string | undefined {
    return this.challenges.at(-1);
  }

  static connect(url: string, headers: Record<string, string> = {}): Promise<RawClient> {
    return new Promise((resolve, reject) => {
      const ws = new WebSocket(url, { headers });
      const client = new RawClient(ws);
      ws.once('open', () => resolve(client));
      ws.once('error', reject);
    });
  }

  /** A string is sent unchanged, anything else as JSON. */
  send(message: unknown): void {
    this.ws.send(typeof message === 'string' ? message : JSON.stringify(message));
  }

  /** Queries events that only authenticated clients may see. */
  askForChallenge(): void {
    this.send(['REQ', CHALLENGE, { kinds: [4] }]);
  }

  /** The first frame, from `from` on, that matches the predicate. */
  async waitFor(predicate: (frame: Frame) => boolean, from = 0, timeoutMs = 20_000): Promise<Frame> {
    let found: Frame | undefined;
    await this.until(() => {
      found = this.frames.slice(from).find(predicate);
      return found !== undefined;
    }, timeoutMs);
    return found!;
  }

  until(condition: () => boolean, timeoutMs = 20_000): Promise<void> {
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => {
        this.watchers.delete(check);
        const seen = JSON.stringify(this.frames.slice(-5)).slice(0, 600);
        reject(
          new Error(`the frame did not come; last frames: ${seen}; closed: ${JSON.stringify(this.closed)}`),
        );
      }, timeoutMs);
      const check = (): void => {
        if (!condition()) return;
        clearTimeout(timer);
        this.watchers.delete(check);
        resolve();
      };
      this.watchers.add(check);
      check();
    });
  }

  /** Publishes and returns `[accepted, message]`. */
  async publish(event: { id: string }): Promise<[boolean, string]> {
    const from = this.frames.length;
    this.send(['EVENT', event]);
    const frame = await this.waitFor((f) => f[0] === 'OK' && f[1] === event.id, from);
    return [frame[2] as boolean, frame[3] as string];
  }

  /** The stored events of a REQ, or the reason of its CLOSED. */
  async query(...filters: unknown[]): Promise<{ events: { id: string }[]; closed?: string }> {
    const id = `q${Math.random().toString(36).slice(2)}`;
    const from = this.frames.length;
    this.send(['REQ', id, ...filters]);
    const end = await this.waitFor((f) => (f[0] === 'EOSE' || f[0] === 'CLOSED') && f[1] === id, from);
    this.send(['CLOSE', id]);
    const events = this.frames
      .slice(from, this.frames.indexOf(end))
      .filter((f) => f[0] === 'EVENT' && f[1] === id);
    return {
      events: events.map((f) => f[2] as { id: string }),
      ...(end[0] === 'CLOSED' ? { closed: end[2] as string } : {}),
    };
  }

  close(): Promise<void> {
    this.ws.close();
    return this.until(() => this.closed !== undefined);
  }

  private changed(): void {
    for (const check of [...this.watchers]) check();
  }
}
