/**
 * Boot settings: environment variables. They are checked once, and one error lists all problems. Everything
 * else is a setting of a community.
 */
import { compile as compileTrust } from '@fastify/proxy-addr';
import * as nip19 from 'nostr-tools/nip19';
import { z } from 'zod';
import { PROXY_HEADERS, type ProxyHeader } from '../port/client-address.js';
import { HOST_DEFAULT, PORT_DEFAULT } from '../port/rules-early.js';
import { databaseUrlOf } from '../postgres/rules-database-url.js';

const port = z
  .string()
  .regex(/^\d{1,5}$/, 'must be a port between 0 and 65535')
  .transform(Number)
  .refine((value) => value <= 65_535, 'must be a port between 0 and 65535');

const pubkeys = z.string().transform((list, context) => {
  const keys = list.split(',').flatMap((key) => (key.trim() === '' ? [] : [key.trim()]));
  return keys.map((key) => {
    const hex = pubkeyOf(key);
    if (hex === undefined) context.addIssue(`"${key}" is neither 64 lowercase hex characters nor an npub`);
    return hex ?? '';
  });
});

const databaseUrl = z.string().transform((text, context) => {
  const read = databaseUrlOf(text, process.env.PGHOST || 'localhost');
  if ('url' in read) return read.url;
  context.addIssue(read.problem);
  return '';
});

/** Addresses, networks (10.0.0.0/8) or the names loopback, linklocal and uniquelocal. */
const proxies = z.string().transform((list, context) => {
  const names = list.split(',').flatMap((name) => (name.trim() === '' ? [] : [name.trim()]));
  try {
    compileTrust(names);
  } catch {
    context.addIssue('must be addresses, networks like 10.0.0.0/8, or loopback, separated by commas');
  }
  return names;
});

/** A hex key as it is, an npub as hex; undefined if it is neither. */
export function pubkeyOf(key: string): string | undefined {
  if (/^[0-9a-f]{64}$/.test(key)) return key;
  try {
    const decoded = nip19.decode(key);
    return decoded.type === 'npub' ? decoded.data : undefined;
  } catch {
    return undefined;
  }
}

const environment = z.object({
  MINATO_HOST: z.string().min(1).default(HOST_DEFAULT),
  MINATO_PORT: port.default(PORT_DEFAULT),
  MINATO_DATA_DIR: z.string().min(1).default('./data'),
  DATABASE_URL: databaseUrl.optional(),
  DATABASE_READ_URL: databaseUrl.optional(),
  REDIS_URL: z
    .url({ protocol: /^rediss?$/, error: 'must look like redis://user:password@host:6379' })
    .optional(),
  DYNAMODB_ENDPOINT: z
    .url({ protocol: /^https?$/, error: 'must look like https://dynamodb.eu-central-1.amazonaws.com' })
    .optional(),
  AWS_REGION: z
    .string()
    .regex(/^[a-z0-9-]{1,64}$/, 'must be the name of a region, like eu-central-1')
    .default('us-east-1'),
  MINATO_DYNAMODB_PREFIX: z
    .string()
    .regex(/^[A-Za-z0-9_.-]{1,200}$/, 'must be at most 200 letters, digits and _ . -')
    .default('minato_'),
  MINATO_EVENT_STORE: z.enum(['postgres', 'dynamodb'], 'must be postgres or dynamodb').default('postgres'),
  MINATO_PUBLIC_URL: z
    .url({ protocol: /^(ws|http)s?$/, error: 'must be a ws:, wss:, http: or https: address' })
    .optional(),
  MINATO_NETWORK_ID: z.string().min(1).max(100).optional(),
  MINATO_ADMIN_PUBKEYS: pubkeys.default([]),
  MINATO_TOPIC_MODE: z.enum(['required', 'default', 'open']).default('required'),
  MINATO_AUTH_MODE: z.enum(['off', 'required']).default('off'),
  MINATO_TRUSTED_PROXIES: proxies.default(['loopback']),
  MINATO_PROXY_HEADER: z
    .string()
    .toLowerCase()
    .pipe(z.enum(PROXY_HEADERS, `must be one of ${PROXY_HEADERS.join(', ')}`))
    .optional(),
  MINATO_PROXY_PROTOCOL: z.enum(['off', 'on'], 'must be on or off').default('off'),
  MINATO_ERASURE_KEY: z
    .string()
    .regex(/^[0-9a-f]{64}$/, 'must be 64 lowercase hex characters (openssl rand -hex 32)')
    .optional(),
  MINATO_BACKUP_DIR: z.string().min(1).optional(),
  MINATO_BACKUP_PASSPHRASE_FILE: z.string().min(1).optional(),
  MINATO_USER: z
    .string()
    .regex(/^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}$/, 'must be the name of a user of this machine')
    .optional(),
  MINATO_LOG_LEVEL: z.enum(['debug', 'info', 'warn', 'error', 'silent']).default('info'),
  MINATO_METRICS_TOKEN: z.string().min(16, 'must have at least 16 characters').optional(),
});

export type EventStoreName = 'postgres' | 'dynamodb';

/** Where the tables in DynamoDB are. The AWS SDK finds the credentials itself. */
export interface DynamodbPlace {
  readonly endpoint: string;
  readonly region: string;
  /** The prefix of all table names. */
  readonly prefix: string;
}

export interface Config {
  readonly host: string;
  readonly port: number;
  readonly dataDir: string;
  readonly databaseUrl: string | undefined;
  /** A streaming replica of it, for reads of stored events. */
  readonly databaseReadUrl: string | undefined;
  readonly publicUrl: string | undefined;
  readonly networkId: string | undefined;
  readonly adminPubkeys: readonly string[];
  readonly topicMode: 'required' | 'default' | 'open';
  readonly authMode: 'off' | 'required';
  readonly redisUrl: string | undefined;
  readonly dynamodb: DynamodbPlace | undefined;
  /** Where events are kept. Everything else is in PostgreSQL. */
  readonly eventStore: EventStoreName;
  /** Proxies that are trusted to name the address of the client. */
  readonly trustedProxies: readonly string[];
  /**
   * The header in which they name the address. Undefined: X-Forwarded-For or X-Real-IP, if these do not
   * contradict each other.
   */
  readonly proxyHeader: ProxyHeader | undefined;
  /** They name the address at the start of each connection (PROXY protocol). */
  readonly proxyProtocol: boolean;
  /** Replaces the key file that the first erasure creates: for nodes on several machines. */
  readonly erasureKey: string | undefined;
  /** Where the embedded server copies its log to, and where backups are written. */
  readonly backupDir: string | undefined;
  /** The file with the passphrase that encrypts both. */
  readonly backupPassphraseFile: string | undefined;
  /** The system user that a node started by root becomes; `root`: it stays root. */
  readonly user: string | undefined;
  readonly logLevel: string;
  readonly metricsToken: string | undefined;
}

export class ConfigError extends Error {}

/** Every environment variable that the node reads. */
export type Variable = keyof typeof environment.shape;

/** The default of each variable; undefined if it has none. */
export function defaultsOfVariables(): Readonly<Record<Variable, unknown>> {
  const unset = Object.fromEntries(Object.keys(environment.shape).map((name) => [name, undefined]));
  return { ...unset, ...environment.parse({}) } as Record<Variable, unknown>;
}

/** Names with our prefix that the node does not know: most likely misspelt. */
export function unknownVariables(env: NodeJS.ProcessEnv): string[] {
  return Object.keys(env).filter(
    (name) => name.startsWith('MINATO_') && !Object.hasOwn(environment.shape, name),
  );
}

export function readConfig(env: NodeJS.ProcessEnv): Config {
  // An empty variable is an unset one: `MINATO_PORT= minato serve` means the default.
  const given = Object.fromEntries(Object.entries(env).filter(([, value]) => value !== ''));
  const result = environment.safeParse(given);
  if (!result.success) {
    const problems = result.error.issues.map((issue) => `  ${issue.path.join('.')}: ${issue.message}`);
    throw new ConfigError(`These environment variables are wrong:\n${problems.join('\n')}`);
  }
  const value = result.data;
  if (value.DATABASE_READ_URL !== undefined && value.DATABASE_URL === undefined)
    throw new ConfigError(
      'These environment variables are wrong:\n' +
        '  DATABASE_READ_URL: needs DATABASE_URL, whose replica it is; the embedded PostgreSQL has none',
    );
  if (value.MINATO_EVENT_STORE === 'dynamodb' && value.DYNAMODB_ENDPOINT === undefined)
    throw new ConfigError(
      'These environment variables are wrong:\n' +
        '  MINATO_EVENT_STORE: dynamodb needs DYNAMODB_ENDPOINT, for example ' +
        `https://dynamodb.${value.AWS_REGION}.amazonaws.com`,
    );
  return {
    host: value.MINATO_HOST,
    port: value.MINATO_PORT,
    dataDir: value.MINATO_DATA_DIR,
    databaseUrl: value.DATABASE_URL,
    databaseReadUrl: value.DATABASE_READ_URL,
    publicUrl: value.MINATO_PUBLIC_URL,
    networkId: value.MINATO_NETWORK_ID,
    adminPubkeys: value.MINATO_ADMIN_PUBKEYS,
    topicMode: value.MINATO_TOPIC_MODE,
    authMode: value.MINATO_AUTH_MODE,
    redisUrl: value.REDIS_URL,
    dynamodb: dynamodbOf(value),
    eventStore: value.MINATO_EVENT_STORE,
    trustedProxies: value.MINATO_TRUSTED_PROXIES,
    proxyHeader: value.MINATO_PROXY_HEADER,
    proxyProtocol: value.MINATO_PROXY_PROTOCOL === 'on',
    erasureKey: value.MINATO_ERASURE_KEY,
    backupDir: value.MINATO_BACKUP_DIR,
    backupPassphraseFile: value.MINATO_BACKUP_PASSPHRASE_FILE,
    user: value.MINATO_USER,
    logLevel: value.MINATO_LOG_LEVEL,
    metricsToken: value.MINATO_METRICS_TOKEN,
  };
}

function dynamodbOf(value: z.infer<typeof environment>): DynamodbPlace | undefined {
  if (value.DYNAMODB_ENDPOINT === undefined) return undefined;
  return {
    endpoint: value.DYNAMODB_ENDPOINT,
    region: value.AWS_REGION,
    prefix: value.MINATO_DYNAMODB_PREFIX,
  };
}
