/** The operator of a soak: erasures, and a service that follows the outbox and acknowledges it. */
import { createHash, randomUUID } from 'node:crypto';
import type { Sign } from '../sign.js';

const FOLLOWER = '/v1/admin/followers/soak';
const ROWS_MAX = 5_000;
const ANSWER_MS_MAX = 60_000;

export class Operator {
  private seq = 0;
  /** Requests that were not answered as they should. */
  readonly problems = new Map<string, number>();

  constructor(
    private readonly url: string,
    private readonly key: Buffer,
    private readonly sign: Sign,
  ) {}

  register(): Promise<unknown> {
    return this.ask('PUT', FOLLOWER, {});
  }

  erase(pubkey: string): Promise<unknown> {
    return this.ask('POST', '/v1/admin/erasures', { pubkey, grace_days: 0 });
  }

  /** Reads what is new, up to the head. */
  async follow(): Promise<void> {
    for (;;) {
      const text = await this.ask(
        'GET',
        `/v1/admin/outbox?after=${this.seq}&limit=${ROWS_MAX}&follower=soak`,
      );
      const last = text?.trimEnd().split('\n').at(-1);
      if (last === undefined || last === '') return;
      const { op, seq, head } = JSON.parse(last) as { op: string; seq: number; head?: number };
      this.seq = Math.max(this.seq, seq);
      // On the way there it may be behind what it acknowledged before the run was stopped.
      if (seq === head) await this.ask('POST', `${FOLLOWER}/acknowledge`, { seq: this.seq });
      if (op !== 'position' || seq === head) return;
    }
  }

  private async ask(method: string, path: string, body?: object): Promise<string | undefined> {
    const text = body === undefined ? undefined : JSON.stringify(body);
    const address = this.url.replace(/^ws/, 'http') + path;
    try {
      const answer = await fetch(address, {
        method,
        headers: {
          authorization: this.credential(method, address, text),
          ...(text === undefined ? {} : { 'content-type': 'application/json' }),
        },
        ...(text === undefined ? {} : { body: text }),
        signal: AbortSignal.timeout(ANSWER_MS_MAX),
      });
      const said = await answer.text();
      if (answer.ok) return said;
      this.note(`${method} ${path.split('?')[0]}: ${answer.status} ${said.slice(0, 120)}`);
    } catch (error) {
      this.note(`${method} ${path.split('?')[0]}: ${(error as Error).message}`);
    }
    return undefined;
  }

  private note(problem: string): void {
    this.problems.set(problem, (this.problems.get(problem) ?? 0) + 1);
  }

  /** NIP-98. */
  private credential(method: string, address: string, body: string | undefined): string {
    const hash = body === undefined ? [] : [['payload', createHash('sha256').update(body).digest('hex')]];
    const tags = [['u', address], ['method', method], ['nonce', randomUUID()], ...hash];
    const created_at = Math.floor(Date.now() / 1_000);
    const event = this.sign({ kind: 27_235, created_at, tags, content: '' }, this.key);
    return `Nostr ${Buffer.from(JSON.stringify(event)).toString('base64')}`;
  }
}
