/**
 * The audit log in an erasure. Rows about a member are deleted, anonymised or kept for some time, by the
 * community's setting erasure.auditLog. Of an erased community all rows are deleted.
 *
 * With DynamoDB rows move there from PostgreSQL: a row is written there before it is deleted here. So the
 * PostgreSQL deleter must run first: rows that have moved meanwhile are found by the second one.
 */
import type { Pool } from 'pg';
import type { AuditRows } from '../../audit/audit.sql.js';
import { DYNAMODB_TABLES, type DynamodbAudit } from '../../audit/dynamodb.js';
import { PostgresAudit } from '../../audit/postgres.js';
import type { AuditStore } from '../../audit/store.js';
import type { Settings } from '../../communities/rules-settings.js';
import { DAY_MS } from '../../events/rules/retention.js';
import { storeBy } from '../all-tables.sql.js';
import { type MemberSubject, type Subject, untilMs } from '../rules.js';
import type { Deleter, Kept, Progress } from './deleter.js';

/** Characters of the keyed hash in anonymised rows. */
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
  const { name, holds } = storeBy('audit');
  const postgres = new AuditDeleter(name, holds, new PostgresAudit(pool), options);
  if (dynamodb === undefined) return [postgres];
  const archive: Deleter = new AuditDeleter('dynamodb:audit_logs', DYNAMODB_TABLES, dynamodb, options);
  archive.people = async function* (community) {
    for await (const entries of dynamodb.read({ community })) yield entries.flatMap(keysIn);
  };
  return [postgres, archive];
}

/** Public keys anywhere in a row. Ids of events look the same, and match no member. */
const keysIn = (entry: object) => JSON.stringify(entry).match(/(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])/g) ?? [];

class AuditDeleter implements Deleter {
  constructor(
    readonly name: string,
    readonly holds: readonly string[],
    private readonly store: AuditStore,
    private readonly options: AuditDeletersOptions,
  ) {}

  count(subject: Subject): Promise<number> {
    return this.store.count(this.rowsToDelete(subject));
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
    const why =
      'erasure.auditLog of the community is "keep": ' +
      `rows of the audit log are kept for ${days} days (erasure.auditKeepDays)`;
    return { rows, until: youngest + days * DAY_MS, why };
  }

  private async batches(subject: Subject): Promise<AsyncGenerator<number>> {
    if (subject.type === 'community' || this.policyOf(subject) !== 'anonymise')
      return this.store.delete(this.rowsToDelete(subject));
    const { community, pubkey } = subject;
    const hash = await this.options.hashOf(community, pubkey);
    return this.store.anonymise(
      { ...this.rowsToDelete(subject), pubkey },
      `erased:${hash.slice(0, ALIAS_HEX)}`,
    );
  }

  /** Rows that name the member, except those that are kept; of a community all rows. */
  private rowsToDelete(subject: Subject): AuditRows {
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
