/**
 * The part of `minato doctor` about Redis and DynamoDB: whether they answer, and what does not work
 * otherwise.
 */
import { DynamodbAudit } from '../audit/dynamodb.js';
import { type Finding, info, messageOf, ok, warn } from '../health/finding.js';
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

const DYNAMODB_ADVICE = `Check DYNAMODB_ENDPOINT, AWS_REGION and the credentials (docs/operations/audit-log.md
lists the rights). The node runs without it: rows of the audit log wait in PostgreSQL, but nobody can read
the log, and erasures and exports wait.`;
