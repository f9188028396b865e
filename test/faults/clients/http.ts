/** HTTP requests of members and operators, signed (NIP-98), through the link of an instance. */
import { createHash } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import { finalizeEvent } from 'nostr-tools/pure';
import type { Person } from '../keys.js';
import type { Violations } from '../violations.js';
import { PUBLIC_URL } from '../world/world.js';

/** A statement of an API request takes 15 s at most, behind others; a link may be slow besides. */
const ANSWER_MS_MAX = 60_000;
const AGAIN_MS = 300;

export interface HttpAnswer {
  readonly status: number;
  readonly body: Record<string, unknown>;
}

export interface HttpOptions {
  readonly port: (instance: number) => number;
  readonly violations: Violations;
  readonly isHealthy: () => boolean;
}

export class Http {
  /** Requests that were answered. */
  answered = 0;

  constructor(private readonly options: HttpOptions) {}

  /** One request; undefined without an answer: refused, cut, or not in time. */
  async ask(
    as: Person,
    { method, path, body, instance }: { method: string; path: string; body?: object; instance: number },
  ): Promise<HttpAnswer | undefined> {
    const text = body === undefined ? undefined : JSON.stringify(body);
    const wasHealthy = this.options.isHealthy();
    try {
      const response = await fetch(`http://127.0.0.1:${this.options.port(instance)}${path}`, {
        method,
        headers: {
          authorization: credential(as, method, path, text),
          ...(text === undefined ? {} : { 'content-type': 'application/json' }),
        },
        ...(text === undefined ? {} : { body: text }),
        signal: AbortSignal.timeout(ANSWER_MS_MAX),
      });
      const said = await response.text();
      this.answered += 1;
      const isJson = response.headers.get('content-type')?.startsWith('application/json') ?? false;
      const parsed = isJson ? (JSON.parse(said) as Record<string, unknown>) : { text: said };
      if (response.status === 500) this.options.violations.add('I2', `${method} ${path} is 500: ${said}`);
      return { status: response.status, body: parsed };
    } catch (error) {
      if (wasHealthy && this.options.isHealthy() && (error as Error).name === 'TimeoutError')
        this.options.violations.add('I15', `${method} ${path} has no answer after ${ANSWER_MS_MAX} ms`);
      return undefined;
    }
  }

  /** Repeats a request until its answer is final. Refusals that say "not now" are repeated too. */
  async insist(
    as: Person,
    request: { method: string; path: string; body?: object; instance: number },
    { isDone, untilMs }: { isDone: (answer: HttpAnswer) => boolean; untilMs: number },
  ): Promise<HttpAnswer> {
    const until = Date.now() + untilMs;
    let last: HttpAnswer | undefined;
    for (;;) {
      const answer = await this.ask(as, request);
      if (answer !== undefined && isDone(answer)) return answer;
      last = answer ?? last;
      if (Date.now() > until || answer?.status === 400) {
        const what = last === undefined ? 'no answer' : `${last.status} ${JSON.stringify(last.body)}`;
        throw new Error(`${request.method} ${request.path}: ${what}`);
      }
      await delay(AGAIN_MS);
    }
  }
}

function credential(as: Person, method: string, path: string, body: string | undefined): string {
  const hash = body === undefined ? [] : [['payload', createHash('sha256').update(body).digest('hex')]];
  const tags = [['u', PUBLIC_URL + path], ['method', method], ['nonce', `${Math.random()}`], ...hash];
  const draft = { kind: 27_235, created_at: Math.floor(Date.now() / 1_000), tags, content: '' };
  const event = finalizeEvent(draft, as.secret);
  return `Nostr ${Buffer.from(JSON.stringify(event)).toString('base64')}`;
}
