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
import { type Asked, type Statement, Statements, statementOf } from './statements.js';

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

interface Parameter {
  readonly parameterName: string;
  readonly parameterValue: string;
}

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
  /** The major version of the server, once connected. */
  private version = 0;
  private isGrouping = false;
  /** Statements of this step that are not sent yet. */
  private gathered: Statement[] = [];
  private isCorked = false;

  constructor(config: pg.ClientConfig) {
    super(config);
    const ask: Ask = this.query.bind(this);
    const send: Ask = (question, ...others) => {
      if (this.isGrouping && typeof question === 'object' && others.length === 0)
        return this.gather(question as Asked, config.types, ask);
      if (config.pipeline === true) this.sendTogether(ask);
      return ask(question, ...others);
    };
    this.query = convertErrors(send, (error) => this.failed(error)) as pg.Client['query'];
    this.connection.on('parameterStatus', ({ parameterName, parameterValue }: Parameter) => {
      if (parameterName === 'server_version') this.version = Number.parseInt(parameterValue, 10);
    });
  }

  /**
   * For a pipelined session: from now on the statements of one step are one message (`statements.ts`). While
   * the server waits for the rest of such a message, none of its other time-outs runs, and a client that
   * stops there would keep its locks. So this needs a limit for the whole transaction, which PostgreSQL has
   * since version 17. With an older one each statement keeps its own answer.
   */
  async groupStatements(transactionMsMax: number): Promise<void> {
    if (this.version < 17) return;
    await this.query(`SET transaction_timeout = ${transactionMsMax}`);
    this.isGrouping = true;
  }

  private gather(
    question: Asked,
    types: pg.CustomTypesConfig | undefined,
    ask: Ask,
  ): Promise<pg.QueryResult> {
    return new Promise((resolve, reject) => {
      const statement = statementOf(question, types, (error, result) =>
        error ? reject(error) : resolve(result),
      );
      if (this.gathered.push(statement) === 1) process.nextTick(() => this.sendGathered(ask));
    });
  }

  private sendGathered(ask: Ask): void {
    const statements = this.gathered;
    this.gathered = [];
    if (statements.length > 0) ask(new Statements(statements));
  }

  /** What is sent in one step is one write, so that the server wakes up once. */
  private sendTogether(ask: Ask): void {
    this.sendGathered(ask);
    if (this.isCorked) return;
    this.isCorked = true;
    const { stream } = this.connection;
    stream.cork();
    process.nextTick(() => {
      this.isCorked = false;
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
