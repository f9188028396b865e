/**
 * Several statements as one message to the server, with one Sync at the end. The server sends one answer for
 * all of them, so that each side wakes up once. The driver ends each statement with a Sync of its own: five
 * statements were five answers and up to five wake-ups, a sixth of what the lane's session cost at 100
 * events a second (`perf`).
 *
 * The statements still run one after another, each with a snapshot of its own. After a failed one the server
 * skips the others.
 */
import pg from 'pg';
import { SQLSTATE } from './rules-error-code.js';

/** The server has skipped this statement because one before it failed. It answers 25P02 in other places. */
export class Skipped extends Error {
  readonly code = SQLSTATE.failedTransaction;
}

/** What the driver calls for each answer of the server; its types name only `submit`. */
export interface Statement {
  readonly name?: string;
  readonly text: string;
  isAnswered?: true;
  submit(connection: Wire): Error | null;
  handleRowDescription(message: unknown): void;
  handleDataRow(message: unknown): void;
  handleCommandComplete(message: unknown, connection: Wire): void;
  handleReadyForQuery(connection: Wire): void;
  handleError(error: Error, connection: Wire): void;
}

interface Wire {
  readonly stream: { cork(): void; uncork(): void };
  readonly submittedNamedStatements: Record<string, string>;
  sync(): void;
}

type Done = (error: Error | null, result: pg.QueryResult) => void;
/** What a caller may ask; the driver's types know `rowMode` in one of their two kinds only. */
export type Asked = pg.QueryConfig & Partial<Pick<pg.QueryArrayConfig, 'rowMode'>>;

/**
 * Without a name it is planned each time. A literal that names its fields, because there are some fifteen for
 * each event of a calm node: a spread gives each object a hidden class of its own (decision 19).
 */
export function statementOf(
  { name, text, values, types, rowMode }: Asked,
  typesOfSession: pg.CustomTypesConfig | undefined,
  done: Done,
): Statement {
  const answered: Done = (error, result) => {
    statement.isAnswered = true;
    done(error, result);
  };
  const config = { name, text, values, types: types ?? typesOfSession, rowMode, queryMode: 'extended' };
  const statement = new pg.Query(config as pg.QueryConfig, answered as never) as unknown as Statement;
  return statement;
}

export class Statements extends pg.Query {
  /** Of the statement that is answered now: the driver remembers which names are prepared. */
  declare name: string | undefined;
  declare text: string;
  /** Set by the driver, which has a deadline for all statements together. */
  declare callback: ((error: Error | null) => void) | undefined;
  private current = 0;

  constructor(private readonly statements: Statement[]) {
    super({ text: '' });
    this.step(0);
  }

  override submit = (connection: unknown): null => {
    const wire = connection as Wire;
    const withoutSync = Object.create(wire, { sync: { value: () => undefined } }) as Wire;
    wire.stream.cork();
    const unsent = this.statements.findIndex((statement) => !isSent(statement, withoutSync));
    if (unsent !== -1) skip(this.statements.splice(unsent), 'a value that cannot be sent', wire);
    wire.sync();
    wire.stream.uncork();
    return null;
  };

  handleRowDescription(message: unknown): void {
    this.statements[this.current]!.handleRowDescription(message);
  }
  handleDataRow(message: unknown): void {
    this.statements[this.current]!.handleDataRow(message);
  }
  handleCommandComplete(message: unknown, connection: Wire): void {
    const answered = this.statements[this.current]!;
    answered.handleCommandComplete(message, connection);
    this.step(this.current + 1);
    answered.handleReadyForQuery(connection);
  }

  handleReadyForQuery(): void {
    this.callback?.(null);
  }

  /** An error of the server, or of the connection; then nobody knows what became of the others. */
  handleError(error: Error, connection: Wire): void {
    const [failed, ...others] = this.statements.slice(this.current);
    this.step(this.statements.length);
    failed?.handleError(error, connection);
    if (error instanceof pg.DatabaseError) skip(others, error.message, connection);
    else for (const other of others) other.handleError(error, connection);
    this.callback?.(error);
  }

  private step(to: number): void {
    this.current = to;
    const { name, text = '' } = this.statements[to] ?? {};
    this.name = name;
    this.text = text;
  }
}

/** False if the driver refuses the statement or one of its values. Then the statement has its error. */
function isSent(statement: Statement, wire: Wire): boolean {
  const wrong = statement.submit(wire);
  if (wrong !== null) statement.handleError(wrong, wire);
  return statement.isAnswered !== true;
}

function skip(statements: readonly Statement[], why: string, wire: Wire): void {
  for (const statement of statements) {
    if (statement.isAnswered) continue;
    if (statement.name !== undefined) delete wire.submittedNamedStatements[statement.name];
    statement.handleError(new Skipped(`skipped after: ${why}`), wire);
  }
}
