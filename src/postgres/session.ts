/**
 * A PostgreSQL session and a pool of sessions, which everything in this program uses (I15). A server that
 * hangs does not enforce its own time-outs, so every wait has a deadline here: connecting, each statement,
 * and closing.
 *
 * An error that does not come from the server (time-out, broken connection) is a `NoAnswer` and ends the
 * session: its state is unknown, and a late answer must not reach the next user of the session.
 */
import pg from 'pg';
import { NoAnswer } from '../limits/in-time.js';

/** How long the server may take to close a connection. */
const GOODBYE_MS_MAX = 2_000;

/**
 * What the driver and Node.js throw after a time-out or a broken connection. Errors of the server and of this
 * program have other classes.
 */
const isSilence = (error: unknown) =>
  error instanceof AggregateError ||
  (error instanceof Error && Object.getPrototypeOf(error) === Error.prototype);

/** Converts a time-out or a broken connection to NoAnswer; other errors stay as they are. */
export function asNoAnswer(error: unknown): unknown {
  return isSilence(error) ? new NoAnswer(`PostgreSQL does not answer: ${wordsOf(error)}`, error) : error;
}

/** Several addresses of one host may have failed, each for its own reason. */
function wordsOf(error: unknown): string {
  if (error instanceof AggregateError) return [...new Set(error.errors.map(wordsOf))].join(', ');
  return error instanceof Error ? error.message : String(error);
}

type Answered = (error: unknown, ...result: unknown[]) => unknown;
type Ask = (...question: unknown[]) => unknown;

/** All signatures of `query` stay: with a callback, as the pool calls it, or with a promise. */
function convertErrors(ask: Ask, convert: (error: unknown) => unknown): Ask {
  return (...question) => {
    const callback = question.at(-1);
    if (typeof callback === 'function') {
      const answered = callback as Answered;
      question[question.length - 1] = (error: unknown, ...result: unknown[]) =>
        answered(error ? convert(error) : error, ...result);
      return ask(...question);
    }
    const answer = ask(...question);
    if (!(answer instanceof Promise)) return answer;
    return answer.catch((error: unknown) => {
      throw convert(error);
    });
  };
}

export class Session extends pg.Client {
  private isGathering = false;

  constructor(config: pg.ClientConfig) {
    super(config);
    const isPipelined = config.pipeline === true;
    const ask: Ask = this.query.bind(this);
    const send: Ask = (...question) => {
      if (isPipelined) this.sendTogether();
      return ask(...question);
    };
    this.query = convertErrors(send, (error) => this.failed(error)) as pg.Client['query'];
  }

  /**
   * The statements of one step are one write: the server wakes up once for all of them, and not for each.
   */
  private sendTogether(): void {
    if (this.isGathering) return;
    this.isGathering = true;
    const { stream } = this.connection;
    stream.cork();
    process.nextTick(() => {
      this.isGathering = false;
      stream.uncork();
    });
  }

  /** Closes the connection at once, in any state. */
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
    // A broken connection is replaced at its next use, and its query fails. Without these listeners its error
    // would end the process: the first one is for idle connections, the second one for those in use.
    this.on('error', () => undefined);
    this.on('connect', (client) => client.on('error', () => undefined));
    // For a connection that breaks in the middle of a query, pg-pool answers with the `error` event of the
    // client, which has not passed the query of the session.
    this.query = convertErrors(this.query.bind(this), asNoAnswer) as pg.Pool['query'];
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

/** From now on the session receives the notifications of this channel. */
export async function listenTo(session: pg.ClientBase, channel: string): Promise<void> {
  await session.query(`LISTEN ${channel}`);
}
