/**
 * The environment variables with their meaning: for the help of `minato serve` and for docs/settings.md.
 */
import { defaultsOfVariables, type Variable } from '../node/config.js';
import { DEFAULT_NETWORK_ID } from '../node/prepare.js';
import { PROXY_HEADERS } from '../port/client-address.js';

/** A variable that is missing here does not compile. */
const VARIABLES: Record<Variable, string> = {
  MINATO_HOST: 'address to listen on',
  MINATO_PORT: 'port for everything: websocket, API, pages, metrics; 0 takes a free one',
  MINATO_DATA_DIR: 'folder of the embedded PostgreSQL and of the keys of the node',
  DATABASE_URL: 'your own PostgreSQL, 15 or newer, instead of the embedded one',
  DATABASE_READ_URL: 'a streaming replica of it, for reads of stored events (docs/scale.md)',
  REDIS_URL: 'keeps rate limits and sessions that instances share, instead of PostgreSQL: redis://host:6379',
  DYNAMODB_ENDPOINT:
    'keeps the audit log there, and events if they are: https://dynamodb.eu-central-1.amazonaws.com',
  AWS_REGION: 'region of that endpoint; the AWS SDK finds the credentials',
  MINATO_DYNAMODB_PREFIX: 'prefix of the table names there',
  MINATO_EVENT_STORE: 'where events are kept: postgres or dynamodb (docs/dynamodb.md)',
  MINATO_PUBLIC_URL: 'the address that clients use, for example wss://relay.example.org',
  MINATO_NETWORK_ID: 'names the network in topic ids; fixed at the first boot',
  MINATO_ADMIN_PUBKEYS: 'the operators, hex or npub, comma separated',
  MINATO_TOPIC_MODE: 'first value of topic.mode: required, default or open',
  MINATO_AUTH_MODE: 'first value of auth.mode: off or required',
  MINATO_TRUSTED_PROXIES:
    'proxies trusted to name the client: addresses, networks, loopback, comma separated',
  MINATO_PROXY_HEADER: `the header in which they name the client: ${PROXY_HEADERS.join(', ')}`,
  MINATO_PROXY_PROTOCOL: 'on: they name it at the start of each connection (PROXY protocol)',
  MINATO_ERASURE_KEY:
    'key of the hashes that name erased members, the same on every machine: 64 hex characters',
  MINATO_BACKUP_DIR: 'folder for backups; the embedded PostgreSQL also archives its log there',
  MINATO_BACKUP_PASSPHRASE_FILE: 'file with the passphrase that encrypts both',
  MINATO_USER: 'the system user that a node started by root becomes; root: it stays root',
  MINATO_LOG_LEVEL: 'debug, info, warn, error or silent',
  MINATO_METRICS_TOKEN: 'bearer token to read /metrics from other machines',
};

/** What applies if a variable without a default is not set. */
const OTHERWISE: Partial<Record<Variable, string>> = {
  DATABASE_URL: 'the embedded one',
  DATABASE_READ_URL: 'everything is read from DATABASE_URL',
  REDIS_URL: 'PostgreSQL',
  DYNAMODB_ENDPOINT: 'PostgreSQL',
  MINATO_PUBLIC_URL: 'the address on which it listens',
  MINATO_NETWORK_ID: DEFAULT_NETWORK_ID,
  MINATO_PROXY_HEADER: 'x-forwarded-for or x-real-ip, unless they disagree',
  MINATO_ERASURE_KEY: 'a file in the data folder',
  MINATO_BACKUP_DIR: 'no archive',
  MINATO_BACKUP_PASSPHRASE_FILE: 'not encrypted',
  MINATO_USER: 'minato, created if it is missing',
};

export interface BootVariable {
  readonly name: Variable;
  readonly about: string;
  /** What applies without it; empty for nothing. */
  readonly otherwise: string;
}

export function bootVariables(): BootVariable[] {
  const defaults = defaultsOfVariables();
  return (Object.keys(VARIABLES) as Variable[]).map((name) => {
    const value = defaults[name];
    const text = Array.isArray(value) ? value.join(',') : String(value ?? '');
    return { name, about: VARIABLES[name], otherwise: text || (OTHERWISE[name] ?? '') };
  });
}
