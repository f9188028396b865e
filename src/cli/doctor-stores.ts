/**
 * The part of `minato doctor` about Redis and DynamoDB: whether they answer, and what does not work
 * otherwise.
 */
import { DynamodbAudit } from '../audit/dynamodb.js';
import { Dynamodb } from '../events/dynamodb/client.js';
import { Streams } from '../events/dynamodb/stream/client.js';
import {
  streamOf,
  TABLES_ADVICE,
  TTL_ATTRIBUTE,
  tableProblems,
  tablesWithoutTtl,
} from '../events/dynamodb/tables.js';
import { type Finding, fail, info, messageOf, ok, warn } from '../health/finding.js';
import { askRedis } from '../limits/redis.js';
import type { DynamodbPlace } from '../node/config.js';

// ─── Redis ─────────────────────────────────────────────────────────────────────────────────────────────────

export async function* checkRedis(url: string): AsyncGenerator<Finding> {
  // Neither user nor password.
  const where = `redis at ${new URL(url).host}`;
  try {
    yield ok(`${where} answers, version ${await askRedis(url)}`);
  } catch (error) {
    yield warn(`${where} does not answer: ${messageOf(error)}`, REDIS_ADVICE);
  }
}

const REDIS_ADVICE = `Check REDIS_URL: host, port, user and password; and that the server runs and accepts
connections from this machine. The node runs without it, but until it answers each instance counts rates
separately, and signed requests to the API are refused.`;

// ─── DynamoDB ──────────────────────────────────────────────────────────────────────────────────────────────

export async function* checkDynamodb(place: DynamodbPlace): AsyncGenerator<Finding> {
  const audit = new DynamodbAudit(place);
  // Neither user nor password.
  const where = `DynamoDB at ${new URL(place.endpoint).host}`;
  try {
    const state = await audit.state();
    if (state === undefined)
      yield info(
        `${where} answers; the table ${audit.table} does not exist yet`,
        'The node creates it at the first use.',
      );
    else if (state === 'ACTIVE') yield ok(`${where} answers, and has the table ${audit.table}`);
    else yield warn(`${where} answers, but the table ${audit.table} is ${state}`, DYNAMODB_ADVICE);
  } catch (error) {
    yield warn(messageOf(error), DYNAMODB_ADVICE);
  } finally {
    await audit.close();
  }
}

/** The tables of events, where events are in DynamoDB: a node cannot run without them. */
export async function* checkEventTables(place: DynamodbPlace): AsyncGenerator<Finding> {
  const db = new Dynamodb(place);
  const streams = new Streams(place);
  const where = `DynamoDB at ${db.host}`;
  try {
    await streams.load();
    const problems = await tableProblems(db);
    for (const problem of problems) yield fail(`events: ${problem} in ${where}`, TABLES_ADVICE);
    if (problems.length > 0) return;
    yield ok(`${where} has the tables of events, and their stream`);
    const shards = await streams.shards(await streamOf(db));
    yield ok(`the stream of ${db.nameOf('events')} can be read; it has ${shards.length} shards`);
    const withoutTtl = await tablesWithoutTtl(db);
    if (withoutTtl.length > 0)
      yield warn(`events: TTL by ${TTL_ATTRIBUTE} is off in ${withoutTtl.join(', ')}`, TTL_ADVICE);
  } catch (error) {
    yield fail(`events: ${messageOf(error)}`, EVENTS_ADVICE);
  } finally {
    await streams.close();
    await db.close();
  }
}

const TTL_ADVICE = `Enable TTL: aws dynamodb update-time-to-live --table-name NAME
--time-to-live-specification Enabled=true,AttributeName=${TTL_ATTRIBUTE}
Until then nothing is served longer than it should be, but old ids and versions are never purged.`;

const EVENTS_ADVICE = `Check DYNAMODB_ENDPOINT, AWS_REGION, the credentials, and their rights
(docs/examples/dynamodb/iam-policy.json). Without DynamoDB no event is accepted or served.`;

const DYNAMODB_ADVICE = `Check DYNAMODB_ENDPOINT, AWS_REGION and the credentials (docs/operations/audit-log.md
lists the rights). The node runs without it: rows of the audit log wait in PostgreSQL, but nobody can read
the log, and erasures and exports wait.`;
