/**
 * Requests to DynamoDB with their bounds: every request has a deadline (I15), every retry and batch a limit
 * (I14). Reads of tables are strongly consistent; reads of indexes cannot be. The units that DynamoDB reports
 * are counted by operation. The SDK is loaded at first use.
 */
import { setTimeout as delay } from 'node:timers/promises';
import type * as Document from '@aws-sdk/lib-dynamodb';
import { reasonOf as nameOf, openSdk, REQUEST_MS_MAX, type Sdk, saidBy } from '../../dynamodb/sdk.js';
import { inTime, NoAnswer } from '../../limits/in-time.js';
import type { DynamodbPlace } from '../../node/config.js';
import { errorCode, isOutageCode } from '../../postgres/rules-error-code.js';
import { TABLE_NAMES, type Table } from './keys.js';

/** The limits of BatchGetItem and BatchWriteItem. */
const GET_KEYS_MAX = 100;
const WRITE_ITEMS_MAX = 25;
/** Tries for what a batch leaves undone, with growing random delays: 3 seconds in all. */
const BATCH_TRIES_MAX = 7;
const BACK_OFF_MS = 50;
/** Batches of one call at the same time. */
const BATCHES_AT_ONCE = 4;
const SOCKETS_MAX = 128;
/**
 * AWS takes 100 items in a transaction, the DynamoDB Local of the tests 10. A put has a few, and two for each
 * owner of the event.
 */
export const TRANSACTION_ITEMS_MAX = 10;

export type Item = Record<string, unknown>;

export type TransactItem = NonNullable<Document.TransactWriteCommandInput['TransactItems']>[number];
/** A transaction item names its table by our name. */
interface OfTable {
  readonly table: Table;
  readonly if?: Condition;
}
export interface PutOf extends OfTable {
  readonly put: Item;
}
export interface UpdateOf extends OfTable {
  readonly update: Item;
  readonly set: Expression;
}
export interface RemoveOf extends OfTable {
  readonly remove: Item;
}
export interface CheckOf extends OfTable {
  readonly check: Item;
  readonly if: Condition;
}
export type Change = PutOf | UpdateOf | RemoveOf | CheckOf;

export interface Expression {
  readonly text: string;
  readonly values?: Item;
}
export type Condition = Expression;

export interface WriteOf {
  readonly table: Table;
  readonly put?: Item;
  readonly remove?: Item;
}

/** A condition did not hold, or another transaction changed the same items: the caller reads again. */
export class Conflict extends Error {
  /** By item: its condition did not hold. */
  constructor(readonly failed: readonly boolean[]) {
    super('another writer changed the same items');
    this.name = 'Conflict';
  }
}

/** DynamoDB did not do it. `reason` is the error name of DynamoDB. */
export class DynamodbFailure extends Error {
  constructor(
    text: string,
    readonly reason?: string,
    cause?: unknown,
  ) {
    super(text, { cause });
    this.name = 'DynamodbFailure';
  }
}

/** Capacity units by operation, and requests that were throttled. */
export interface Meter {
  used(operation: string, units: number): void;
  throttled(operation: string): void;
}

const THROTTLED = new Set([
  'ProvisionedThroughputExceededException',
  'ThrottlingException',
  'RequestLimitExceeded',
]);

export class Dynamodb {
  readonly host: string;
  /** Of all table names. */
  readonly prefix: string;
  private opened: Promise<Sdk> | undefined;

  constructor(
    private readonly place: DynamodbPlace,
    private readonly meter?: Meter,
  ) {
    this.host = new URL(place.endpoint).host;
    this.prefix = place.prefix;
  }

  nameOf(table: Table): string {
    return `${this.prefix}${TABLE_NAMES[table]}`;
  }

  /** Items by `keyText`; those that do not exist are missing. The same key may be asked for twice. */
  async read(asked: readonly { readonly table: Table; readonly key: Item }[]): Promise<Map<string, Item>> {
    const keys = new Map(asked.map((one) => [keyText(one.table, one.key), one]));
    const found = new Map<string, Item>();
    await inPortions([...keys.values()], GET_KEYS_MAX, (portion) => this.readPortion(portion, found));
    return found;
  }

  async get(table: Table, key: Item): Promise<Item | undefined> {
    const input = { TableName: this.nameOf(table), Key: key, ConsistentRead: true };
    const answer = await this.send('get', input, ({ document, db }, one) =>
      db.send(new document.GetCommand(one as Document.GetCommandInput)),
    );
    return answer.Item;
  }

  /** One page of a query. `next` is where the next page begins. */
  async query(
    table: Table,
    input: Omit<Document.QueryCommandInput, 'TableName'>,
  ): Promise<{ readonly items: Item[]; readonly next: Item | undefined }> {
    const consistent = input.IndexName === undefined;
    const whole = { ...input, TableName: this.nameOf(table), ConsistentRead: consistent };
    const answer = await this.send('query', whole, ({ document, db }, one) =>
      db.send(new document.QueryCommand(one as Document.QueryCommandInput)),
    );
    return { items: answer.Items ?? [], next: answer.LastEvaluatedKey };
  }

  /**
   * One page of a whole table, for copies. A running node never scans, and its rights need not allow it.
   */
  async scan(
    table: Table,
    from: Item | undefined,
  ): Promise<{ readonly items: Item[]; readonly next: Item | undefined }> {
    const input = { TableName: this.nameOf(table), ConsistentRead: true, ExclusiveStartKey: from };
    const answer = await this.send('scan', input, ({ document, db }, one) =>
      db.send(new document.ScanCommand(one as Document.ScanCommandInput)),
    );
    return { items: answer.Items ?? [], next: answer.LastEvaluatedKey };
  }

  /**
   * Writes without conditions, in batches. What DynamoDB leaves undone is tried again; then it is an error.
   */
  async write(writes: readonly WriteOf[]): Promise<void> {
    await inPortions(writes, WRITE_ITEMS_MAX, (portion) => this.writePortion(portion));
  }

  /** One write with a condition. False when the condition did not hold. */
  async change(change: PutOf | UpdateOf | RemoveOf): Promise<boolean> {
    const item = this.transactItem(change);
    try {
      await this.send(
        'put' in change ? 'put' : 'update' in change ? 'update' : 'delete',
        { ...(item.Put ?? item.Update ?? item.Delete) },
        async ({ document, db }, one): Promise<{ ConsumedCapacity?: unknown }> => {
          if (item.Put !== undefined)
            return db.send(new document.PutCommand(one as Document.PutCommandInput));
          if (item.Update !== undefined)
            return db.send(new document.UpdateCommand(one as Document.UpdateCommandInput));
          return db.send(new document.DeleteCommand(one as Document.DeleteCommandInput));
        },
      );
      return true;
    } catch (error) {
      if (reasonOf(error) === 'ConditionalCheckFailedException') return false;
      throw error;
    }
  }

  /** All or nothing. Throws a Conflict when a condition did not hold. */
  async transact(changes: readonly Change[]): Promise<void> {
    if (changes.length > TRANSACTION_ITEMS_MAX)
      throw new Error(`a transaction of ${changes.length} items is too large`);
    const TransactItems = changes.map((change) => this.transactItem(change));
    await this.send('transact', { TransactItems }, ({ document, db }, one) =>
      db.send(new document.TransactWriteCommand(one as Document.TransactWriteCommandInput)),
    );
  }

  /** For tables: the plain client of the SDK, with the same deadline. */
  async plain<T>(request: (opened: Sdk) => Promise<T>): Promise<T> {
    const opened = await this.open();
    try {
      return await this.inTime(request(opened));
    } catch (error) {
      throw this.explain(error);
    }
  }

  async close(): Promise<void> {
    const opened = await this.opened?.catch(() => undefined);
    opened?.plain.destroy();
  }

  // ── Requests ─────────────────────────────────────────────────────────────────────────────────────────────

  private async send<T extends object>(
    operation: string,
    input: object,
    request: (opened: Sdk, input: object) => Promise<T>,
  ): Promise<T> {
    const opened = await this.open();
    try {
      const answer = await this.inTime(request(opened, { ...input, ReturnConsumedCapacity: 'TOTAL' }));
      this.meter?.used(operation, unitsOf((answer as { ConsumedCapacity?: unknown }).ConsumedCapacity));
      return answer;
    } catch (error) {
      const failure = this.explain(error);
      if (failure instanceof DynamodbFailure && THROTTLED.has(failure.reason ?? ''))
        this.meter?.throttled(operation);
      throw failure;
    }
  }

  private async readPortion(
    portion: readonly { readonly table: Table; readonly key: Item }[],
    found: Map<string, Item>,
  ): Promise<void> {
    let left: Record<string, { Keys: Item[]; ConsistentRead: true }> = {};
    for (const { table, key } of portion) {
      const name = this.nameOf(table);
      left[name] ??= { Keys: [], ConsistentRead: true };
      left[name].Keys.push(key);
    }
    for (let tries = 1; tries <= BATCH_TRIES_MAX; tries += 1) {
      const answer = await this.send('batch-get', { RequestItems: left }, ({ document, db }, one) =>
        db.send(new document.BatchGetCommand(one as Document.BatchGetCommandInput)),
      );
      for (const table of Object.keys(TABLE_NAMES) as Table[])
        for (const item of answer.Responses?.[this.nameOf(table)] ?? [])
          found.set(keyText(table, item), item);
      left = (answer.UnprocessedKeys ?? {}) as typeof left;
      if (Object.keys(left).length === 0) return;
      await this.backOff('batch-get', tries);
    }
    throw this.failure(`did not read all items in ${BATCH_TRIES_MAX} tries: it is throttling`);
  }

  private async writePortion(portion: readonly WriteOf[]): Promise<void> {
    let left: Record<string, unknown[]> = {};
    for (const { table, put, remove } of portion) {
      const request = put === undefined ? { DeleteRequest: { Key: remove } } : { PutRequest: { Item: put } };
      const name = this.nameOf(table);
      left[name] ??= [];
      left[name].push(request);
    }
    for (let tries = 1; tries <= BATCH_TRIES_MAX; tries += 1) {
      const answer = await this.send('batch-write', { RequestItems: left }, ({ document, db }, one) =>
        db.send(new document.BatchWriteCommand(one as Document.BatchWriteCommandInput)),
      );
      left = answer.UnprocessedItems ?? {};
      if (Object.keys(left).length === 0) return;
      await this.backOff('batch-write', tries);
    }
    throw this.failure(`did not write all items in ${BATCH_TRIES_MAX} tries: it is throttling`);
  }

  /** Random, so that writers do not all retry at the same moment. */
  private async backOff(operation: string, tries: number): Promise<void> {
    this.meter?.throttled(operation);
    if (tries < BATCH_TRIES_MAX) await delay(BACK_OFF_MS * 2 ** (tries - 1) * (0.5 + Math.random()));
  }

  private transactItem(change: Change): TransactItem {
    const TableName = this.nameOf(change.table);
    const condition = change.if;
    const values = { ...condition?.values, ...('set' in change ? change.set.values : {}) };
    const common = {
      TableName,
      ...(condition === undefined ? {} : { ConditionExpression: condition.text }),
      ...(Object.keys(values).length === 0 ? {} : { ExpressionAttributeValues: values }),
    };
    if ('put' in change) return { Put: { ...common, Item: change.put } };
    if ('remove' in change) return { Delete: { ...common, Key: change.remove } };
    if ('update' in change)
      return { Update: { ...common, Key: change.update, UpdateExpression: change.set.text } };
    return { ConditionCheck: { ...common, Key: change.check, ConditionExpression: change.if.text } };
  }

  private open(): Promise<Sdk> {
    this.opened ??= openSdk({
      ...this.place,
      socketsMax: SOCKETS_MAX,
      fail: (message, reason, cause) => new DynamodbFailure(message, reason, cause),
    });
    return this.opened;
  }

  private inTime<T>(answer: Promise<T>): Promise<T> {
    return inTime(answer, REQUEST_MS_MAX, `DynamoDB at ${this.host}`);
  }

  private failure(what: string, reason?: string, cause?: unknown): DynamodbFailure {
    return new DynamodbFailure(`DynamoDB at ${this.host} ${what}`, reason, cause);
  }

  private explain(error: unknown): Error {
    if (error instanceof DynamodbFailure || error instanceof NoAnswer) return error;
    const conflict = conflictOf(error);
    if (conflict !== undefined) return conflict;
    const what = `did not complete a request: ${saidBy(error)}`;
    return this.failure(what, reasonOf(error), asNoAnswer(error));
  }
}

const reasonOf = (error: unknown) => (error instanceof DynamodbFailure ? error.reason : nameOf(error));

/** A NoAnswer if the SDK gave up before `inTime`: its time-out, or a connection that broke or failed. */
export function asNoAnswer(error: unknown): unknown {
  const isUnanswered = reasonOf(error) === 'TimeoutError' || isOutageCode(errorCode(error));
  return isUnanswered ? new NoAnswer(saidBy(error), error) : error;
}

/** An item of a request by its key. */
export function keyText(table: Table, item: Item): string {
  return table === 'events' ? `${table} ${item.id}` : `${table} ${item.pk} ${item.sk}`;
}

/**
 * A cancelled transaction says for each item why, in a list or, in older versions, in the text. Undefined for
 * any other error, and where throttling was among the reasons.
 */
function conflictOf(error: unknown): Conflict | undefined {
  const {
    name,
    message = '',
    CancellationReasons,
  } = error as {
    name?: string;
    message?: string;
    CancellationReasons?: { Code?: string }[];
  };
  if (name === 'TransactionConflictException' || name === 'TransactionInProgressException')
    return new Conflict([]);
  if (name !== 'TransactionCanceledException') return undefined;
  const listed = CancellationReasons?.map(({ Code }) => Code ?? 'None');
  const codes = listed ?? (/\[([^\]]*)\]/.exec(message)?.[1] ?? '').split(',').map((code) => code.trim());
  const isOurs = (code: string) => ['None', 'ConditionalCheckFailed', 'TransactionConflict'].includes(code);
  if (!codes.every(isOurs)) return undefined;
  return new Conflict(codes.map((code) => code === 'ConditionalCheckFailed'));
}

function unitsOf(consumed: unknown): number {
  const list = Array.isArray(consumed) ? consumed : consumed === undefined ? [] : [consumed];
  return list.reduce((sum: number, one: { CapacityUnits?: number }) => sum + (one.CapacityUnits ?? 0), 0);
}

/** Some portions at once; the first failure is thrown when those under way have ended. */
async function inPortions<T>(
  list: readonly T[],
  size: number,
  work: (portion: readonly T[]) => Promise<void>,
): Promise<void> {
  const portions = Array.from({ length: Math.ceil(list.length / size) }, (_, at) =>
    list.slice(at * size, (at + 1) * size),
  );
  await eachOf(portions, BATCHES_AT_ONCE, work);
}

/** Runs the work for each, so many at once. The first failure is thrown after all under way have ended. */
export async function eachOf<T>(
  list: readonly T[],
  atOnce: number,
  work: (one: T) => Promise<unknown>,
): Promise<void> {
  let next = 0;
  let failed = false;
  const run = async (): Promise<void> => {
    while (next < list.length && !failed) {
      const one = list[next] as T;
      next += 1;
      try {
        await work(one);
      } catch (error) {
        failed = true;
        throw error;
      }
    }
  };
  const ends = await Promise.allSettled(Array.from({ length: Math.min(atOnce, list.length) }, run));
  const broken = ends.find((end) => end.status === 'rejected');
  if (broken !== undefined) throw broken.reason;
}
