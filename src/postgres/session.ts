/**
 * A session of PostgreSQL and a pool of them, as everything in this program uses them (I15). A server that
 * hangs enforces none of its own time-outs, so that every wait ends here: connecting, each statement, and
 * saying goodbye.
 *
 * An error that the server did not give (nothing came in time, the connection broke) is a `NoAnswer`, and
 * ends the session: nobody knows what it is in the middle of, and an answer that comes late must not reach
 * the next one who uses it.
 */
import pg from 'pg';
import { NoAnswer } from '../in-time.js';

/** How long the server may take to close a connection that says goodbye. */
const GOODBYE_MS_MAX = 2_000;

/**
 * What the driver and Node throw when nothing came, or the connection broke. What the server said has a class
 * of its own, and so have our own mistakes.
 */
const isSilence = (error: unknown) =>
  error instanceof AggregateError ||
  (error instanceof Error && Object.getPrototypeOf(error) === Error.prototype);

/** One name for every silence; anything else stays as it is. */
export function asNoAnswer(error: unknown): unknown {
  return isSilence(error) ? new NoAnswer(`PostgreSQL does not answer: ${wordsOf(error)}`, error) : error;
}

/** Several addresses of one host failed, each with its own reason. */
function wordsOf(error: unknown): string {
  if (error instanceof AggregateError) return [...new Set(error.errors.map(wordsOf))].join(', ');
  return error instanceof Error ? error.message : String(error);
}

type Answered = (error: unknown, ...result: unknown[]) => unknown;

export class Session extends pg.Client {
  constructor(config: pg.ClientConfig) {
    super(config);
    // Its six signatures stay as they are: with a callback, as the pool asks, or with a promise.
    const ask: (...question: unknown[]) => unknown = this.query.bind(this);
    this.query = ((...question: unknown[]) => {
      const callback = question.at(-1);
      if (typeof callback === 'function') {
        const answered = callback as Answered;
        question[question.length - 1] = (error: unknown, ...result: unknown[]) =>
          answered(error ? this.failed(error) : error, ...result);
        return ask(...question);
      }
      const answer = ask(...question);
      if (!(answer instanceof Promise)) return answer;
      return answer.catch((error: unknown) => {
        throw this.failed(error);
      });
    }) as pg.Client['query'];
  }

  /** Ends it at once, whatever is under way. */
  cut(): void {
    this.connection.stream.destroy();
  }

  override end(): Promise<void>;
  override end(callback: (error: Error) => void): void;
  override end(callback?: (error: Error) => void): Promise<void> | undefined {
    const late = setTimeout(() => this.cut(), GOODBYE_MS_MAX);
    if (callback === undefined) return super.end().finally(() => clearTimeout(late));
    super.end((error) => {
      clearTimeout(late);
      callback(error);
    });
    return undefined;
  }

  private failed(error: unknown): unknown {
    if (isSilence(error)) this.cut();
    return asNoAnswer(error);
  }
}

type Connected = (
  error: Error | undefined,
  client: pg.PoolClient | undefined,
  done: (release?: unknown) => void,
) => void;

export class SessionPool extends pg.Pool {
  constructor(config: pg.PoolConfig) {
    super(config);
    // A connection that breaks is replaced at its next use, and a query on it fails; without a listener it
    // would end the process, whether it was idle (the pool's listener) or in somebody's hands (its own).
    this.on('error', () => undefined);
    this.on('connect', (client) => client.on('error', () => undefined));
  }

  override connect(): Promise<pg.PoolClient>;
  override connect(callback: Connected): void;
  override connect(callback?: Connected): Promise<pg.PoolClient> | undefined {
    if (callback === undefined)
      return super.connect().catch((error: unknown) => {
        throw asNoAnswer(error);
      });
    super.connect((error, client, done) => callback(error && (asNoAnswer(error) as Error), client, done));
    return undefined;
  }
}
