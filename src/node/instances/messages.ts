/** What the primary process of `minato serve --instances` and its instances tell each other. */
import type { EmbeddedConnection } from '../../postgres/embedded.js';
import type { Role } from '../roles.js';

/** How many instances one command may start. */
export const INSTANCES_MAX = 64;

/** What an instance is, sent to it before anything else. */
export interface InstanceStart {
  /** Its name in the log: `1`, `2`, … or `worker`. */
  readonly name: string;
  /** Instances that share the port. */
  readonly instances: number;
  readonly roles: readonly Role[];
  /** The port that the primary listens on. */
  readonly port: number;
  /** The embedded PostgreSQL, which the primary runs; undefined with DATABASE_URL. */
  readonly database: EmbeddedConnection | undefined;
  /** It says what is to be said once: the link to set the node up, and hints for the operator. */
  readonly isFirst: boolean;
}

export type ToInstance =
  | { readonly kind: 'start'; readonly start: InstanceStart }
  /** With the socket of a client. The number is for the answer. */
  | { readonly kind: 'connection'; readonly number: number }
  /** `drains`: other instances go on; clients that have just connected get their answer first. */
  | { readonly kind: 'stop'; readonly drains: boolean }
  | { readonly kind: 'ping' }
  | { readonly kind: 'report'; readonly request: number }
  | { readonly kind: 'scraped'; readonly request: number; readonly text: string }
  | { readonly kind: 'run'; readonly job: string };

export type ToPrimary =
  /** It listens. What is sent to it earlier is lost. */
  | { readonly kind: 'hello' }
  | { readonly kind: 'ready' }
  | { readonly kind: 'failed'; readonly why: string }
  | { readonly kind: 'pong' }
  | { readonly kind: 'taken'; readonly number: number }
  | { readonly kind: 'scrape'; readonly request: number }
  | { readonly kind: 'report'; readonly request: number; readonly metrics: readonly object[] }
  | { readonly kind: 'run'; readonly job: string };
