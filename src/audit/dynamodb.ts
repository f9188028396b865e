/**
 * The audit log in a DynamoDB table: partition key `community`, sort key `sk` (time and position). The key of
 * a row never changes, so writing it twice changes nothing.
 *
 * I14: reads are paged, writes are batches of 25. Unprocessed items are retried with growing delays; then an
 * error says how many are left. Every read is a consistent one. The SDK is loaded at first use, because
 * loading takes longer than most commands run.
 */
import { setTimeout as delay } from 'node:timers/promises';
import type * as Client from '@aws-sdk/client-dynamodb';
import type * as Document from '@aws-sdk/lib-dynamodb';
import { openSdk, REQUEST_MS_MAX, reasonOf, type Sdk, saidBy } from '../dynamodb/sdk.js';
import { inTime } from '../limits/in-time.js';
import type { DynamodbPlace } from '../node/config.js';
import {
  type AuditEntry,
  type AuditFilter,
  type AuditKey,
  type AuditRow,
  type AuditRows,
  spellingsOf,
} from './audit.sql.js';
import type { AuditStore, PersonAuditRows } from './store.js';

/** Every DynamoDB table that this program can write, without the prefix. */
export const DYNAMODB_TABLES = ['audit_logs'] as const;

const ACTIVE_MS_MAX = 60_000;
const ACTIVE_POLL_MS = 500;
/** The limit of BatchWriteItem. */
const BATCH_ITEMS = 25;
const BATCH_TRIES_MAX = 5;
const BACK_OFF_MS = 50;
/** Items that one Query reads. */
const PAGE_ITEMS = 500;
/** Pages that a filter reads: 50,000 rows. */
const FILTERED_PAGES_MAX = 100;
/** The reason of an error of `newest`: the time must be narrower. */
export const TOO_MANY_ROWS = 'TooManyRows';
/** Concurrent updates, and tries of one update that loses against another. */
const UPDATES_AT_ONCE = 10;
const UPDATE_TRIES_MAX = 5;
/** Digits of both numbers in `sk`: enough for the largest safe integer. */
const DIGITS = 16;

interface Key {
  readonly community: number;
  readonly sk: string;
}

/** `details` is JSON as text: it stays exact, and is searched like the text in PostgreSQL. */
interface Item extends Key, Omit<AuditEntry, 'actor' | 'details'> {
  readonly actor?: string;
  readonly details: string;
}

type WriteRequest = { PutRequest: { Item: Item } } | { DeleteRequest: { Key: Key } };
type Condition = Pick<
  Document.QueryCommandInput,
  'KeyConditionExpression' | 'FilterExpression' | 'ExpressionAttributeNames' | 'ExpressionAttributeValues'
>;

/** An error of DynamoDB as a sentence. `reason` is the error name of DynamoDB. */
export class DynamodbError extends Error {
  constructor(
    text: string,
    readonly reason?: string,
    cause?: unknown,
  ) {
    super(text, { cause });
    this.name = 'DynamodbError';
  }
}

export class DynamodbAudit implements AuditStore {
  readonly table: string;
  private readonly host: string;
  private opened: Promise<Sdk> | undefined;
  private ready: Promise<void> | undefined;

  constructor(private readonly place: DynamodbPlace) {
    this.table = `${place.prefix}${DYNAMODB_TABLES[0]}`;
    this.host = new URL(place.endpoint).host;
  }

  /** Resolves only when all rows are written. */
  async put(rows: readonly AuditRow[]): Promise<void> {
    for (const batch of batchesOf(rows, BATCH_ITEMS))
      for await (const _done of this.write(batch.map((row) => ({ PutRequest: { Item: itemOf(row) } }))));
  }

  /**
   * Newest first, only entries older than the key. There is no index for a filter: it reads the rows of the
   * time, and is refused when they are too many.
   */
  async newest(
    community: number,
    before: AuditKey,
    limit: number,
    filter: AuditFilter = {},
  ): Promise<AuditEntry[]> {
    const condition = filterOf(community, before, filter);
    const Limit = condition.FilterExpression === undefined ? limit : PAGE_ITEMS;
    const found: AuditEntry[] = [];
    let start: Record<string, unknown> | undefined;
    for (let pages = 0; pages < FILTERED_PAGES_MAX; pages += 1) {
      const answer = await this.query({
        ...condition,
        ScanIndexForward: false,
        Limit,
        ExclusiveStartKey: start,
      });
      found.push(...((answer.Items ?? []) as Item[]).map(entryOf));
      start = answer.LastEvaluatedKey;
      if (found.length >= limit || start === undefined) return found.slice(0, limit);
    }
    throw new DynamodbError(`${this.where()} has too many rows in this time for a filter`, TOO_MANY_ROWS);
  }

  /** Oldest first, page by page. */
  async *read(rows: AuditRows): AsyncGenerator<AuditEntry[]> {
    for await (const items of this.pages(conditionOf(rows))) yield (items as Item[]).map(entryOf);
  }

  async count(rows: AuditRows): Promise<number> {
    const condition = conditionOf(rows);
    let counted = 0;
    let start: Record<string, unknown> | undefined;
    do {
      const answer = await this.query({ ...condition, Select: 'COUNT', ExclusiveStartKey: start });
      counted += answer.Count ?? 0;
      start = answer.LastEvaluatedKey;
    } while (start !== undefined);
    return counted;
  }

  async youngest(rows: AuditRows): Promise<number | null> {
    const newestFirst = { ScanIndexForward: false, ProjectionExpression: 'community, sk' };
    for await (const [key] of this.pages(conditionOf(rows), newestFirst))
      return Number(key!.sk.split('#')[0]);
    return null;
  }

  async *delete(rows: AuditRows): AsyncGenerator<number> {
    for await (const keys of this.pages(conditionOf(rows), { ProjectionExpression: 'community, sk' }))
      for (const batch of batchesOf(keys, BATCH_ITEMS))
        yield* this.write(batch.map(({ community, sk }) => ({ DeleteRequest: { Key: { community, sk } } })));
  }

  async *anonymise(rows: PersonAuditRows, alias: string): AsyncGenerator<number> {
    for await (const items of this.pages(conditionOf(rows))) {
      for (const batch of batchesOf(items as Item[], UPDATES_AT_ONCE)) {
        const ends = await Promise.allSettled(batch.map((item) => this.rename(item, rows.pubkey, alias)));
        const done = ends.filter((end) => end.status === 'fulfilled' && end.value).length;
        if (done > 0) yield done;
        const failed = ends.find((end) => end.status === 'rejected');
        if (failed !== undefined) throw failed.reason;
      }
    }
  }

  /** For diagnosis: creates nothing. Undefined when the table does not exist. */
  async state(): Promise<string | undefined> {
    const { client, plain } = await this.open();
    try {
      const { Table } = await this.inTime(
        plain.send(new client.DescribeTableCommand({ TableName: this.table })),
      );
      return Table?.TableStatus;
    } catch (error) {
      if (reasonOf(error) === 'ResourceNotFoundException') return undefined;
      throw this.explain(error);
    }
  }

  async close(): Promise<void> {
    const opened = await this.opened?.catch(() => undefined);
    opened?.plain.destroy();
  }

  // ── Requests ─────────────────────────────────────────────────────────────────────────────────────────────

  /** Sends a request. The first one waits until the table exists and is active. */
  private async send<T>(request: (opened: Sdk) => Promise<T>): Promise<T> {
    const opened = await this.open();
    this.ready ??= this.makeTable(opened);
    try {
      await this.ready;
    } catch (error) {
      this.ready = undefined;
      throw error;
    }
    try {
      return await this.inTime(request(opened));
    } catch (error) {
      throw this.explain(error);
    }
  }

  private query(input: Omit<Document.QueryCommandInput, 'TableName'>): Promise<Document.QueryCommandOutput> {
    const bounded = { TableName: this.table, ConsistentRead: true, Limit: PAGE_ITEMS, ...input };
    return this.send(({ document, db }) => db.send(new document.QueryCommand(bounded)));
  }

  /** A page may be empty although more follow: its limit counts the items read, not those that match. */
  private async *pages(
    condition: Condition,
    more: Partial<Document.QueryCommandInput> = {},
  ): AsyncGenerator<Key[]> {
    let start: Record<string, unknown> | undefined;
    do {
      const answer = await this.query({ ...condition, ...more, ExclusiveStartKey: start });
      const items = (answer.Items ?? []) as Key[];
      if (items.length > 0) yield items;
      start = answer.LastEvaluatedKey;
    } while (start !== undefined);
  }

  /** Writes at most 25 items. Yields how many each try wrote; items left after the last try are an error. */
  private async *write(requests: readonly WriteRequest[]): AsyncGenerator<number> {
    let left: readonly WriteRequest[] = requests;
    for (let tries = 1; tries <= BATCH_TRIES_MAX; tries += 1) {
      const undone = await this.writeOnce(left);
      if (undone.length < left.length) yield left.length - undone.length;
      if (undone.length === 0) return;
      left = undone;
      // Random delays, so that workers do not all retry at the same moment.
      if (tries < BATCH_TRIES_MAX) await delay(BACK_OFF_MS * 2 ** (tries - 1) * (0.5 + Math.random()));
    }
    throw new DynamodbError(
      `${this.where()} did not write ${left.length} of ${requests.length} rows ` +
        `in ${BATCH_TRIES_MAX} tries: it is throttling writes at the moment`,
    );
  }

  private writeOnce(requests: readonly WriteRequest[]): Promise<readonly WriteRequest[]> {
    return this.send(async ({ document, db }) => {
      const answer = await db.send(
        new document.BatchWriteCommand({ RequestItems: { [this.table]: [...requests] } }),
      );
      return (answer.UnprocessedItems?.[this.table] ?? []) as WriteRequest[];
    });
  }

  /**
   * Updates a row only if it is as it was read: another erasure may change the same row. False when there was
   * nothing left to do.
   */
  private async rename(item: Item, pubkey: string, alias: string): Promise<boolean> {
    let seen: Item | undefined = item;
    for (let tries = 1; tries <= UPDATE_TRIES_MAX && seen !== undefined && names(seen, pubkey); tries += 1) {
      if (await this.replace(seen, renamed(seen, pubkey, alias))) return true;
      seen = await this.get(seen);
    }
    if (seen === undefined || !names(seen, pubkey)) return false;
    throw new DynamodbError(
      `${this.where()}: a row changed ${UPDATE_TRIES_MAX} times while it was anonymised`,
    );
  }

  /** False when the item has changed or was deleted. */
  private async replace(seen: Item, { actor, target, details }: Item): Promise<boolean> {
    const removed = seen.actor !== undefined && actor === undefined ? ' REMOVE actor' : '';
    try {
      await this.send(({ document, db }) =>
        db.send(
          new document.UpdateCommand({
            TableName: this.table,
            Key: { community: seen.community, sk: seen.sk },
            UpdateExpression: `SET #target = :target, details = :details${removed}`,
            ConditionExpression: '#target = :seenTarget AND details = :seenDetails',
            ExpressionAttributeNames: { '#target': 'target' },
            ExpressionAttributeValues: {
              ':target': target,
              ':details': details,
              ':seenTarget': seen.target,
              ':seenDetails': seen.details,
            },
          }),
        ),
      );
      return true;
    } catch (error) {
      if (error instanceof DynamodbError && error.reason === 'ConditionalCheckFailedException') return false;
      throw error;
    }
  }

  private async get({ community, sk }: Key): Promise<Item | undefined> {
    const input = { TableName: this.table, Key: { community, sk }, ConsistentRead: true };
    const { Item } = await this.send(({ document, db }) => db.send(new document.GetCommand(input)));
    return Item as Item | undefined;
  }

  // ── The table ────────────────────────────────────────────────────────────────────────────────────────────

  private open(): Promise<Sdk> {
    this.opened ??= openSdk({
      ...this.place,
      fail: (message, reason, cause) => new DynamodbError(message, reason, cause),
    });
    return this.opened;
  }

  /** Two instances may create it at once; one of them gets an error that it exists. */
  private async makeTable({ client, plain }: Sdk): Promise<void> {
    if ((await this.state()) === undefined) {
      const made = plain.send(new client.CreateTableCommand(shapeOf(this.table)));
      await this.inTime(made).catch((error) => {
        if (reasonOf(error) !== 'ResourceInUseException') throw this.explain(error);
      });
    }
    for (let waited = 0; waited <= ACTIVE_MS_MAX; waited += ACTIVE_POLL_MS) {
      // A table that is UPDATING serves requests as well.
      if (['ACTIVE', 'UPDATING'].includes((await this.state()) ?? '')) return;
      await delay(ACTIVE_POLL_MS);
    }
    throw new DynamodbError(`${this.where()} is not active after ${ACTIVE_MS_MAX / 1_000} seconds`);
  }

  /** I15: a request that hangs is given up, with an error that names the host. */
  private inTime<T>(answer: Promise<T>): Promise<T> {
    return inTime(answer, REQUEST_MS_MAX, `DynamoDB at ${this.host}`);
  }

  private where(): string {
    return `DynamoDB at ${this.host}, table ${this.table},`;
  }

  private explain(error: unknown): DynamodbError {
    if (error instanceof DynamodbError) return error;
    const said = `${this.where()} did not complete a request: ${saidBy(error)}`;
    return new DynamodbError(said, reasonOf(error), error);
  }
}

function shapeOf(table: string): Client.CreateTableCommandInput {
  return {
    TableName: table,
    BillingMode: 'PAY_PER_REQUEST',
    AttributeDefinitions: [
      { AttributeName: 'community', AttributeType: 'N' },
      { AttributeName: 'sk', AttributeType: 'S' },
    ],
    KeySchema: [
      { AttributeName: 'community', KeyType: 'HASH' },
      { AttributeName: 'sk', KeyType: 'RANGE' },
    ],
  };
}

// ── Items ──────────────────────────────────────────────────────────────────────────────────────────────────

const padded = (number: number) => String(number).padStart(DIGITS, '0');
const sortKey = (at: number, position: number) => `${padded(at)}#${padded(position)}`;

function itemOf({ community, position, at, actor, action, target, details }: AuditRow): Item {
  const key = { community, sk: sortKey(at, position) };
  const words = { action, target, details: JSON.stringify(details) };
  return { ...key, at, position, ...words, ...(actor === null ? {} : { actor }) };
}

function entryOf({ position, at, actor, action, target, details }: Item): AuditEntry {
  const parsed = JSON.parse(details) as AuditEntry['details'];
  return { position, at, actor: actor ?? null, action, target, details: parsed };
}

/** The rows before a key that match a filter. `#` sorts before all digits, `~` after them. */
function filterOf(
  community: number,
  [at, position]: AuditKey,
  { actor, action, target, since = 0, until = Number.MAX_SAFE_INTEGER }: AuditFilter,
): Condition {
  const before = position > 0 ? sortKey(at, position - 1) : `${padded(at)}#`;
  const first = `${padded(since)}#`;
  const end = `${padded(until)}#~`;
  const last = before < end ? before : end;
  const given = Object.entries({ actor, action, target }).filter(([, value]) => value !== undefined);
  const [from, to] = first > last ? ['#', '#'] : [first, last];
  return {
    KeyConditionExpression: 'community = :community AND sk BETWEEN :first AND :last',
    ExpressionAttributeValues: {
      ':community': community,
      ':first': from,
      ':last': to,
      ...Object.fromEntries(given.map(([name, value]) => [`:${name}`, value])),
    },
    ...(given.length === 0
      ? {}
      : {
          FilterExpression: given.map(([name]) => `#${name} = :${name}`).join(' AND '),
          ExpressionAttributeNames: Object.fromEntries(given.map(([name]) => [`#${name}`, name])),
        }),
  };
}

/**
 * `#` sorts before all digits, `~` after them. DynamoDB refuses a range that ends before it begins, so such a
 * range becomes an empty one.
 */
function conditionOf({ community, pubkey, from = 0, to = Number.MAX_SAFE_INTEGER }: AuditRows): Condition {
  const [first, last] = from > to ? ['#', '#'] : [`${padded(from)}#`, `${padded(to)}#~`];
  const span = {
    KeyConditionExpression: 'community = :community AND sk BETWEEN :first AND :last',
    ExpressionAttributeValues: { ':community': community, ':first': first, ':last': last },
  };
  if (pubkey === undefined) return span;
  const [hex, npub] = spellingsOf(pubkey);
  const inText = (name: string) => `contains(${name}, :hex) OR contains(${name}, :npub)`;
  return {
    ...span,
    FilterExpression: `actor = :hex OR ${inText('#target')} OR ${inText('details')}`,
    ExpressionAttributeNames: { '#target': 'target' },
    ExpressionAttributeValues: { ...span.ExpressionAttributeValues, ':hex': hex, ':npub': npub },
  };
}

function names({ actor, target, details }: Item, pubkey: string): boolean {
  return actor === pubkey || spellingsOf(pubkey).some((one) => target.includes(one) || details.includes(one));
}

function renamed(item: Item, pubkey: string, alias: string): Item {
  const replaced = (text: string) =>
    spellingsOf(pubkey).reduce((changed, spelling) => changed.replaceAll(spelling, alias), text);
  const { actor, ...rest } = item;
  const changed = { ...rest, target: replaced(item.target), details: replaced(item.details) };
  if (actor !== pubkey) return { ...changed, ...(actor === undefined ? {} : { actor }) };
  const details = JSON.parse(changed.details) as object;
  return { ...changed, details: JSON.stringify({ ...details, actor: alias }) };
}

function* batchesOf<T>(list: readonly T[], size: number): Generator<readonly T[]> {
  for (let at = 0; at < list.length; at += size) yield list.slice(at, at + size);
}
