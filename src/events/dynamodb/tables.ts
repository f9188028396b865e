/**
 * The tables of events in DynamoDB: how the node creates them, and the same as CloudFormation and as an IAM
 * policy (`docs/examples/dynamodb`, written by scripts/dynamodb.ts).
 */
import { setTimeout as delay } from 'node:timers/promises';
import type * as Client from '@aws-sdk/client-dynamodb';
import type { EventTable } from '../stored-events.js';
import { type Dynamodb, DynamodbFailure } from './client.js';
import { GSI_OWNER, GSI_PK_KIND, GSI_PK_KIND_D, TABLE_NAMES, type Table } from './keys.js';

const ACTIVE_MS_MAX = 120_000;
const ACTIVE_POLL_MS = 500;
export const TTL_ATTRIBUTE = 'ttl_at';
const STREAM_VIEW = 'NEW_AND_OLD_IMAGES';

interface Shape {
  readonly hash: string;
  readonly range?: string;
  readonly indexes: readonly { readonly name: string; readonly hash: string; readonly range?: string }[];
  readonly streams: boolean;
}

/** All key attributes are texts. Indexes hold keys only: what is served is read from the table. */
export const SHAPES: Record<Table, Shape> = {
  events: {
    hash: 'id',
    indexes: [
      { name: GSI_PK_KIND_D, hash: 'pk_kind_d', range: 'newest' },
      { name: GSI_PK_KIND, hash: 'pk_kind', range: 'newest' },
    ],
    streams: true,
  },
  index: { hash: 'pk', range: 'sk', indexes: [], streams: false },
  state: { hash: 'pk', range: 'sk', indexes: [{ name: GSI_OWNER, hash: 'owner_key' }], streams: false },
};
export const TABLES = Object.keys(SHAPES) as Table[];

const keySchema = ({ hash, range }: Pick<Shape, 'hash' | 'range'>) => [
  { AttributeName: hash, KeyType: 'HASH' as const },
  ...(range === undefined ? [] : [{ AttributeName: range, KeyType: 'RANGE' as const }]),
];

export function tableInput(name: string, shape: Shape): Client.CreateTableCommandInput {
  const keys = [shape, ...shape.indexes].flatMap(({ hash, range }) => [
    hash,
    ...(range === undefined ? [] : [range]),
  ]);
  const indexes = shape.indexes.map((index) => ({
    IndexName: index.name,
    KeySchema: keySchema(index),
    Projection: { ProjectionType: 'KEYS_ONLY' as const },
  }));
  return {
    TableName: name,
    BillingMode: 'PAY_PER_REQUEST',
    AttributeDefinitions: [...new Set(keys)].map((AttributeName) => ({ AttributeName, AttributeType: 'S' })),
    KeySchema: keySchema(shape),
    ...(indexes.length === 0 ? {} : { GlobalSecondaryIndexes: indexes }),
    ...(shape.streams ? { StreamSpecification: { StreamEnabled: true, StreamViewType: STREAM_VIEW } } : {}),
  };
}

interface Described {
  readonly status: string | undefined;
  /** What its stream carries; undefined without a stream. */
  readonly streamView: string | undefined;
}

/** Undefined when the table does not exist. Creates nothing. */
async function describe(db: Dynamodb, table: Table): Promise<Described | undefined> {
  try {
    const { Table: found } = await db.plain(({ client, plain }) =>
      plain.send(new client.DescribeTableCommand({ TableName: db.nameOf(table) })),
    );
    const { StreamEnabled, StreamViewType } = found?.StreamSpecification ?? {};
    return { status: found?.TableStatus, streamView: StreamEnabled ? StreamViewType : undefined };
  } catch (error) {
    if (error instanceof DynamodbFailure && error.reason === 'ResourceNotFoundException') return undefined;
    throw error;
  }
}

/** What the tables hold; DynamoDB counts it about every six hours. */
export function tableSizes(db: Dynamodb): Promise<EventTable[]> {
  const sizeOf = async (table: Table): Promise<EventTable> => {
    const { Table: found } = await db.plain(({ client, plain }) =>
      plain.send(new client.DescribeTableCommand({ TableName: db.nameOf(table) })),
    );
    const indexes = found?.GlobalSecondaryIndexes ?? [];
    return {
      name: db.nameOf(table),
      holds: table,
      rows: found?.ItemCount ?? 0,
      tableBytes: found?.TableSizeBytes ?? 0,
      indexBytes: indexes.reduce((sum, { IndexSizeBytes = 0 }) => sum + IndexSizeBytes, 0),
    };
  };
  return Promise.all(TABLES.map(sizeOf));
}

/** A table that is UPDATING serves requests as well. */
const SERVING: readonly (string | undefined)[] = ['ACTIVE', 'UPDATING'];

/** Creates the tables that are missing, and waits until all are active. Returns their names. */
export async function ensureTables(db: Dynamodb): Promise<string[]> {
  const made = await Promise.all(TABLES.map((table) => createTable(db, table)));
  for (const [at, table] of TABLES.entries()) {
    await waitActive(db, table);
    if (made[at]) await enableTtl(db, table);
  }
  return TABLES.filter((_, at) => made[at]).map((table) => db.nameOf(table));
}

/** The names of the tables that do not exist. */
export async function missingTables(db: Dynamodb): Promise<string[]> {
  const found = await Promise.all(TABLES.map((table) => describe(db, table)));
  return TABLES.filter((_, at) => found[at] === undefined).map((table) => db.nameOf(table));
}

/** What keeps the node from using the tables, each with the name of its table. Empty when all is well. */
export async function tableProblems(db: Dynamodb): Promise<string[]> {
  const found = await Promise.all(TABLES.map((table) => describe(db, table)));
  return TABLES.flatMap((table, at) => {
    const name = `the table ${db.nameOf(table)}`;
    const described = found[at];
    if (described === undefined) return [`${name} does not exist`];
    if (!SERVING.includes(described.status)) return [`${name} is ${described.status}`];
    if (!SHAPES[table].streams || described.streamView === STREAM_VIEW) return [];
    return [`${name} has no stream of ${STREAM_VIEW}`];
  });
}

/** A node on tables that are missing or without their stream would lose what it is sent. */
export async function checkTables(db: Dynamodb): Promise<void> {
  const problems = await tableProblems(db);
  if (problems.length > 0)
    throw new DynamodbFailure(
      `DynamoDB at ${db.host} cannot be used: ${problems.join('; ')}. ${TABLES_ADVICE}`,
    );
}

export const TABLES_ADVICE =
  'Run "minato migrate", which creates tables that are missing and needs the right to do so, ' +
  'or create them from docs/examples/dynamodb/cloudformation.json.';

/** The stream of the events, by its name on AWS. */
export async function streamOf(db: Dynamodb): Promise<string> {
  const { Table: found } = await db.plain(({ client, plain }) =>
    plain.send(new client.DescribeTableCommand({ TableName: db.nameOf('events') })),
  );
  if (found?.LatestStreamArn !== undefined) return found.LatestStreamArn;
  throw new DynamodbFailure(`the table ${db.nameOf('events')} has no stream`);
}

/** The tables without TTL: their items are never purged. */
export async function tablesWithoutTtl(db: Dynamodb): Promise<string[]> {
  const states = await Promise.all(
    TABLES.map((table) =>
      db.plain(({ client, plain }) =>
        plain.send(new client.DescribeTimeToLiveCommand({ TableName: db.nameOf(table) })),
      ),
    ),
  );
  return TABLES.filter((_, at) => {
    const { TimeToLiveStatus: status = '', AttributeName } = states[at]?.TimeToLiveDescription ?? {};
    return !['ENABLED', 'ENABLING'].includes(status) || AttributeName !== TTL_ATTRIBUTE;
  }).map((table) => db.nameOf(table));
}

/** With everything that is in them. A table that does not exist is deleted already. */
export async function deleteTables(db: Dynamodb): Promise<void> {
  for (const table of TABLES) {
    if ((await describe(db, table)) === undefined) continue;
    await db.plain(({ client, plain }) =>
      plain.send(new client.DeleteTableCommand({ TableName: db.nameOf(table) })),
    );
  }
}

async function createTable(db: Dynamodb, table: Table): Promise<boolean> {
  if ((await describe(db, table)) !== undefined) return false;
  try {
    await db.plain(({ client, plain }) =>
      plain.send(new client.CreateTableCommand(tableInput(db.nameOf(table), SHAPES[table]))),
    );
    return true;
  } catch (error) {
    if (error instanceof DynamodbFailure && error.reason === 'ResourceInUseException') return false;
    throw error;
  }
}

async function waitActive(db: Dynamodb, table: Table): Promise<void> {
  for (let waited = 0; waited <= ACTIVE_MS_MAX; waited += ACTIVE_POLL_MS) {
    if (SERVING.includes((await describe(db, table))?.status)) return;
    await delay(ACTIVE_POLL_MS);
  }
  throw new DynamodbFailure(
    `the table ${db.nameOf(table)} is not active after ${ACTIVE_MS_MAX / 1_000} seconds`,
  );
}

async function enableTtl(db: Dynamodb, table: Table): Promise<void> {
  const TimeToLiveSpecification = { AttributeName: TTL_ATTRIBUTE, Enabled: true };
  await db.plain(({ client, plain }) =>
    plain.send(new client.UpdateTimeToLiveCommand({ TableName: db.nameOf(table), TimeToLiveSpecification })),
  );
}

// ── For operators who create the tables themselves ─────────────────────────────────────────────────────────

/** A CloudFormation template with the same tables, on demand, with point-in-time recovery. */
export function cloudFormation(): object {
  const resources = TABLES.map((table) => {
    const { TableName: _, StreamSpecification, ...input } = tableInput('', SHAPES[table]);
    const properties = {
      ...input,
      TableName: { 'Fn::Sub': `\${Prefix}${TABLE_NAMES[table]}` },
      ...(StreamSpecification === undefined
        ? {}
        : { StreamSpecification: { StreamViewType: StreamSpecification.StreamViewType } }),
      TimeToLiveSpecification: { AttributeName: TTL_ATTRIBUTE, Enabled: true },
      PointInTimeRecoverySpecification: { PointInTimeRecoveryEnabled: true },
    };
    return [
      TABLE_NAMES[table],
      {
        Type: 'AWS::DynamoDB::Table',
        DeletionPolicy: 'Retain',
        UpdateReplacePolicy: 'Retain',
        Properties: properties,
      },
    ];
  });
  return {
    AWSTemplateFormatVersion: '2010-09-09',
    Description: 'The tables of a Minato node that keeps its events in DynamoDB.',
    Parameters: {
      Prefix: { Type: 'String', Default: 'minato_', Description: 'As in MINATO_DYNAMODB_PREFIX.' },
    },
    Resources: Object.fromEntries(resources),
  };
}

/** What a running node needs, and no more. It neither creates nor scans tables. */
export function iamPolicy(): object {
  const arn = 'arn:aws:dynamodb:REGION:ACCOUNT:table/';
  const names = TABLES.map((table) => `${arn}minato_${TABLE_NAMES[table]}`);
  return {
    Version: '2012-10-17',
    Statement: [
      {
        Sid: 'Items',
        Effect: 'Allow',
        Action: [
          'dynamodb:BatchGetItem',
          'dynamodb:BatchWriteItem',
          'dynamodb:ConditionCheckItem',
          'dynamodb:DeleteItem',
          'dynamodb:DescribeTable',
          'dynamodb:DescribeTimeToLive',
          'dynamodb:GetItem',
          'dynamodb:PutItem',
          'dynamodb:Query',
          'dynamodb:UpdateItem',
        ],
        Resource: [...names, ...names.map((name) => `${name}/index/*`)],
      },
      {
        Sid: 'Streams',
        Effect: 'Allow',
        Action: ['dynamodb:DescribeStream', 'dynamodb:GetRecords', 'dynamodb:GetShardIterator'],
        Resource: [`${arn}minato_${TABLE_NAMES.events}/stream/*`],
      },
      { Sid: 'ListStreams', Effect: 'Allow', Action: ['dynamodb:ListStreams'], Resource: ['*'] },
    ],
  };
}
