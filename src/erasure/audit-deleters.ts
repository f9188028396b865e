/**
 * The audit log in an erasure. Of a member its rows are deleted, anonymised or kept for a time, as the community has it
 * (erasure.auditLog); of a community they all go.
 *
 * With DynamoDB a row moves there from PostgreSQL, and is put there before it goes here. So the deleters stand, and have to be asked,
 * in this order: what has moved by then is found at the second.
 */
import type { Pool } from 'pg';
import { DYNAMODB_TABLES, type DynamodbAudit } from '../audit/dynamodb.js';
import { PostgresAudit } from '../audit/postgres.js';
import type { AuditStore } from '../audit/store.js';
import { type MemberSubject, type Subject, untilMs } from '../core/erasure.js';
import { DAY_MS } from '../core/retention.js';
import type { Settings } from '../core/settings.js';
import type { AuditRows } from '../store/audit.js';
import type { Deleter, Kept, Progress } from './deleter.js';

/** Of the keyed hash, in the rows that stay. */
const ALIAS_HEX = 16;

export interface AuditDeletersOptions {
  readonly pool: Pool;
  readonly dynamodb?: DynamodbAudit | undefined;
  readonly settingsOf: (community: number) => Settings;
  readonly now: () => number;
  /** The keyed hash that stands for a member afterwards, in hex. */
  readonly hashOf: (community: number, pubkey: string) => string | Promise<string>;
}

export function auditDeleters(options: AuditDeletersOptions): Deleter[] {
  const { pool, dynamodb } = options;
  const postgres = new AuditDeleter('postgres:audit_log', ['audit_log'], new PostgresAudit(pool), options);
  if (dynamodb === undefined) return [postgres];
  const archive: Deleter = new AuditDeleter('dynamodb:audit_logs', DYNAMODB_TABLES, dynamodb, options);
  archive.people = async function* (community) {
    for await (const entries of dynamodb.read({ community })) yield entries.flatMap(keysIn);
  };
  return [postgres, archive];
}

/** Public keys that stand anywhere in a row; an id of an event looks the same, and is nobody's. */
const keysIn = (entry: object) => JSON.stringify(entry).match(/(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])/g) ?? [];

class AuditDeleter implements Deleter {
  constructor(
    readonly name: string,
    readonly holds: readonly string[],
    private readonly store: AuditStore,
    private readonly options: AuditDeletersOptions,
  ) {}

  count(subject: Subject): Promise<number> {
    return this.store.count(this.rowsToGo(subject));
  }

  async delete(subject: Subject, progress: Progress): Promise<number> {
    let deleted = 0;
    for await (const taken of await this.batches(subject)) {
      deleted += taken;
      await progress(taken);
    }
    return deleted;
  }

  async kept(subject: Subject): Promise<Kept | undefined> {
    if (subject.type === 'community' || this.policyOf(subject) !== 'keep') return undefined;
    const { community, pubkey } = subject;
    const days = this.keepDays(community);
    const held = { community, pubkey, from: this.keptFrom(community), to: untilMs(subject) };
    const rows = await this.store.count(held);
    const youngest = rows === 0 ? null : await this.store.youngest(held);
    if (youngest === null) return undefined;
    const why = `erasure.auditLog of the community is "keep": rows of the audit log are kept for ${days} days (erasure.auditKeepDays)`;
    return { rows, until: youngest + days * DAY_MS, why };
  }

  private async batches(subject: Subject): Promise<AsyncGenerator<number>> {
    if (subject.type === 'community' || this.policyOf(subject) !== 'anonymise')
      return this.store.delete(this.rowsToGo(subject));
    const { community, pubkey } = subject;
    const hash = await this.options.hashOf(community, pubkey);
    return this.store.anonymise({ ...this.rowsToGo(subject), pubkey }, `erased:${hash.slice(0, ALIAS_HEX)}`);
  }

  /** What names the member, but for what is kept; of a community everything. */
  private rowsToGo(subject: Subject): AuditRows {
    const { community } = subject;
    if (subject.type === 'community') return { community };
    const { pubkey } = subject;
    const to = untilMs(subject);
    if (this.policyOf(subject) !== 'keep') return { community, pubkey, to };
    return { community, pubkey, to: Math.min(to, this.keptFrom(community) - 1) };
  }

  private policyOf({ community }: MemberSubject): Settings['erasure.auditLog'] {
    return this.options.settingsOf(community)['erasure.auditLog'];
  }

  private keepDays(community: number): number {
    return this.options.settingsOf(community)['erasure.auditKeepDays'];
  }

  private keptFrom(community: number): number {
    return this.options.now() - this.keepDays(community) * DAY_MS;
  }
}
