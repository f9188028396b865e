/**
 * An external service that follows the outbox over HTTP, saves the offset with its effect and acknowledges it
 * (docs/outbox.md). An erasure is certified only after it has the deletes (I17).
 */
import { setTimeout as delay } from 'node:timers/promises';
import type { Person } from '../keys.js';
import type { Http } from './http.js';

const NAME = 'mirror';
const FOLLOWER = `/v1/admin/followers/${NAME}`;
const ROWS_MAX = 1_000;
const FOLLOW_MS = 500;

interface Row {
  readonly op: 'upsert' | 'delete' | 'position' | 'scrubbed' | 'behind' | 'closed';
  readonly seq: number;
  readonly head?: number;
  readonly event_id?: string;
  readonly author?: string;
  readonly event?: object | null;
}

export class Mirror {
  /** Ids with their authors. */
  readonly copy = new Map<string, string>();
  private seq = 0;
  /** Rows that it has applied. */
  applied = 0;

  constructor(
    private readonly http: Http,
    private readonly admin: Person,
    private readonly needsRebuild: (why: string) => void,
  ) {}

  async register(untilMs: number): Promise<void> {
    const request = { method: 'PUT', path: FOLLOWER, body: {}, instance: 0 };
    await this.http.insist(this.admin, request, { isDone: ({ status }) => status === 200, untilMs });
  }

  /** Follows, through either instance, until it is stopped: an erasure waits for it. */
  follow(instances: number): { stop(): Promise<void> } {
    let isRunning = true;
    const run = async () => {
      for (let turn = 0; isRunning; turn += 1) {
        await this.advance(turn % instances);
        await delay(FOLLOW_MS);
      }
    };
    const running = run();
    return {
      stop: () => {
        isRunning = false;
        return running;
      },
    };
  }

  /** Reads and acknowledges once. True: it has everything up to the head. */
  async advance(instance: number): Promise<boolean> {
    const path = `/v1/admin/outbox?after=${this.seq}&limit=${ROWS_MAX}&follower=${NAME}`;
    const answer = await this.http.ask(this.admin, { method: 'GET', path, instance });
    if (answer === undefined || answer.status !== 200) {
      if (answer?.status === 410) this.needsRebuild(JSON.stringify(answer.body));
      return false;
    }
    const rows = String(answer.body.text ?? '')
      .split('\n')
      .flatMap((line) => (line === '' ? [] : [JSON.parse(line) as Row]));
    let isAtHead = false;
    for (const row of rows) {
      this.apply(row);
      isAtHead = row.op === 'position' && row.seq === row.head;
    }
    const acknowledged = await this.http.ask(this.admin, {
      method: 'POST',
      path: `${FOLLOWER}/acknowledge`,
      body: { seq: this.seq },
      instance,
    });
    return isAtHead && acknowledged?.status === 200;
  }

  private apply({ op, seq, event_id: id, author, event }: Row): void {
    if (op === 'closed' || op === 'behind') return;
    this.seq = Math.max(this.seq, seq);
    if (op === 'upsert' && id !== undefined) {
      // Hidden since: a later row says why.
      if (event === null) this.copy.delete(id);
      else this.copy.set(id, author ?? '');
    }
    if (op === 'delete' && id !== undefined) this.copy.delete(id);
    this.applied += 1;
  }
}
