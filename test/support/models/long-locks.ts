/** Finds statements of a migration that lock a large table for as long as it is large. By text, no parser. */

/** Grow with events or members. */
const LARGE =
  'events(_\\w+)?|event_tags(_\\w+)?|event_dedupe|event_heads|deletion_tombstones|history_deletions|audit_log|' +
  'post_search_documents(_1)?|members|consents|topic_subscriptions|moderation_cases|moderation_actions|reports|' +
  'labels|trust_contacts|trust_people|trust_scores|trust_authors|usage_counters';
const large = `(?:ONLY )?(?:public\\.)?(?:${LARGE})\\b`;

interface Rule {
  readonly why: string;
  readonly finds: RegExp;
  /** Allowed in a migration that begins with `-- online`. */
  readonly online?: true;
}

const RULES: readonly Rule[] = [
  {
    why: 'an index without CONCURRENTLY',
    finds: new RegExp(`CREATE (UNIQUE )?INDEX (?!CONCURRENTLY).* ON ${large}`),
  },
  { why: 'CONCURRENTLY without "-- online"', finds: /\bCONCURRENTLY\b/, online: true },
  {
    why: 'an index of a partitioned table: build it partition by partition',
    finds:
      /CREATE (UNIQUE )?INDEX CONCURRENTLY.* ON (events|event_tags|events_outbox|post_search_documents) /,
  },
  {
    why: 'IF NOT EXISTS keeps an invalid index: drop it first',
    finds: /CREATE (UNIQUE )?INDEX CONCURRENTLY IF NOT EXISTS/,
  },
  {
    why: 'rows of a large table: change them in a job, in batches',
    finds: new RegExp(`^(UPDATE|DELETE FROM) ${large}`),
  },
  {
    why: 'a copy of a large table: fill it in a job, in batches',
    finds: new RegExp(`^(INSERT|CREATE TABLE|WITH)\\b.* (FROM|JOIN) ${large}`),
  },
  {
    why: 'the table is written again',
    finds: new RegExp(`ALTER TABLE ${large}.* (TYPE|GENERATED|SET (UN)?LOGGED|SET TABLESPACE)\\b`),
  },
  {
    why: 'the table is read: first CHECK (… IS NOT NULL) NOT VALID',
    finds: new RegExp(`ALTER TABLE ${large}.* SET NOT NULL`),
  },
  {
    why: 'a constraint without NOT VALID',
    finds: new RegExp(`ALTER TABLE ${large}.*ADD CONSTRAINT(?!.* NOT VALID)`),
  },
  {
    why: 'a key, or a default that is computed for each row',
    finds: new RegExp(
      `ALTER TABLE ${large}.*ADD (COLUMN )?.*(PRIMARY KEY|UNIQUE|REFERENCES|DEFAULT \\w+\\()`,
    ),
  },
  { why: 'VALIDATE CONSTRAINT without "-- online"', finds: /VALIDATE CONSTRAINT/, online: true },
  { why: 'a lock', finds: new RegExp(`^(LOCK|REINDEX|VACUUM FULL|CLUSTER|TRUNCATE)\\b.*${large}`) },
];

/** What is wrong with each statement. */
export function longLocks(sql: string): string[] {
  const isOnline = /^-- online\b/.test(sql);
  return sql
    .replace(/--.*$/gm, '')
    .split(/;\s*(?:\n|$)/)
    .map((statement) => statement.replace(/\s+/g, ' ').trim())
    .flatMap((statement) =>
      RULES.filter(({ finds, online }) => finds.test(statement) && !(isOnline && online)).map(
        ({ why }) => `${why}: ${statement.slice(0, 80)}`,
      ),
    );
}
