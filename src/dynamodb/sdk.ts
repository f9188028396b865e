/**
 * The AWS SDK for DynamoDB, an optional dependency. It is loaded at first use, because loading takes longer
 * than most commands run. Its requests have deadlines (I15) and few attempts (I14).
 */
import type * as Client from '@aws-sdk/client-dynamodb';
import type * as Document from '@aws-sdk/lib-dynamodb';
import { errorCode } from '../postgres/rules-error-code.js';

/** Attempts of one request by the SDK, for network errors and throttling of the whole request. */
export const ATTEMPTS_MAX = 3;
export const REQUEST_BOUNDS = {
  connectionTimeout: 2_000,
  requestTimeout: 5_000,
  throwOnRequestTimeout: true,
} as const;
/**
 * For one request with all its attempts. It is shorter than the idle time-out of a PostgreSQL transaction
 * that waits for it.
 */
export const REQUEST_MS_MAX = 8_000;
const SDK_MISSING =
  'The AWS SDK, an optional dependency, is not installed. ' +
  'Run: npm install @aws-sdk/client-dynamodb @aws-sdk/lib-dynamodb';

export interface Sdk {
  readonly client: typeof Client;
  readonly document: typeof Document;
  readonly plain: Client.DynamoDBClient;
  readonly db: Document.DynamoDBDocumentClient;
}

export interface SdkOptions {
  readonly endpoint: string;
  readonly region: string;
  /** By default as many as the SDK allows. */
  readonly socketsMax?: number;
  /** The error of the caller. */
  readonly fail: (message: string, reason: string, cause: unknown) => Error;
}

export async function openSdk({ endpoint, region, socketsMax, fail }: SdkOptions): Promise<Sdk> {
  const [client, document] = await Promise.all([
    import('@aws-sdk/client-dynamodb'),
    import('@aws-sdk/lib-dynamodb'),
  ]).catch((error: unknown) => {
    throw fail(SDK_MISSING, 'SdkMissing', error);
  });
  const agents = { httpAgent: { maxSockets: socketsMax }, httpsAgent: { maxSockets: socketsMax } };
  const plain = new client.DynamoDBClient({
    endpoint,
    region,
    maxAttempts: ATTEMPTS_MAX,
    requestHandler: { ...REQUEST_BOUNDS, ...(socketsMax === undefined ? {} : agents) },
  });
  const marshallOptions = { removeUndefinedValues: true };
  return { client, document, plain, db: document.DynamoDBDocumentClient.from(plain, { marshallOptions }) };
}

/** The error name of DynamoDB. */
export const reasonOf = (error: unknown) => (error as { name?: string }).name;

/** What the SDK said, as words. */
export function saidBy(error: unknown): string {
  const { message } = error as { message?: string };
  const reason = reasonOf(error);
  return [reason === 'Error' ? undefined : reason, message || errorCode(error)]
    .filter((word) => word)
    .join(': ');
}
