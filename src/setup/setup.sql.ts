/**
 * The first set-up of a node that has no operator: a one-time code, of which only the hash is stored, and the
 * one transaction that uses it. Once an operator has existed, no set-up is possible any more.
 */
import { createHash, randomBytes, timingSafeEqual } from 'node:crypto';
import type { Pool } from 'pg';
import { type Denial, denial, isDenial } from '../api/rules-errors.js';
import { type Change, changeConfig } from '../communities/config-change.sql.js';
import type { SettingKey } from '../communities/rules-settings.js';
import { changeSetting } from '../communities/settings.sql.js';
import { addOperator } from '../members/operators.sql.js';
import { createPolicy, makeCurrent, publishPolicy, writeText } from '../policies/policies.sql.js';
import type { Db } from '../postgres/values.js';
import { createNodeTopic } from '../topics/node-topics.sql.js';

const CODE_BYTES = 32;
const KEY = 'setup';
const DONE = 'done';
/** The first version of the terms. */
const TERMS = { type: 'terms', version: '1' } as const;

const hashOf = (code: string) => createHash('sha256').update(code).digest('hex');

/** A community has an operator of its own. Those of MINATO_ADMIN_PUBKEYS are not in the database. */
async function hasOperator(db: Db): Promise<boolean> {
  const { rowCount } = await db.query(`SELECT 1 FROM operators WHERE role = 'operator' LIMIT 1`);
  return (rowCount ?? 0) > 0;
}

async function readState(db: Db): Promise<string | undefined> {
  const { rows } = await db.query<{ value: string }>('SELECT value FROM node_state WHERE key = $1', [KEY]);
  return rows[0]?.value;
}

/** `done` is never overwritten. Returns whether the state is now this one. */
async function writeState(db: Db, value: string): Promise<boolean> {
  const { rowCount } = await db.query(
    `INSERT INTO node_state AS n (key, value) VALUES ($1, $2)
     ON CONFLICT (key) DO UPDATE SET value = excluded.value WHERE n.value <> $3`,
    [KEY, value, DONE],
  );
  return rowCount === 1;
}

/**
 * A new code, which replaces the one before; undefined if the node has or ever had an operator. Called at
 * each start.
 */
export async function openSetup(
  db: Db,
  { fixed }: { readonly fixed: readonly string[] },
): Promise<string | undefined> {
  if (fixed.length > 0 || (await hasOperator(db))) {
    await writeState(db, DONE);
    return undefined;
  }
  const code = randomBytes(CODE_BYTES).toString('base64url');
  return (await writeState(db, hashOf(code))) ? code : undefined;
}

/** Whether this code opens the set-up now. */
export async function isSetupCode(db: Db, code: string): Promise<boolean> {
  const state = await readState(db);
  if (state === undefined || state === DONE) return false;
  return (
    timingSafeEqual(Buffer.from(state, 'hex'), Buffer.from(hashOf(code), 'hex')) && !(await hasOperator(db))
  );
}

export interface Setup {
  readonly community: number;
  /** Hex. */
  readonly operator: string;
  /** Checked values. */
  readonly settings: readonly { readonly key: SettingKey; readonly value: unknown }[];
  readonly topics: readonly { readonly topic: string; readonly name: string }[];
  readonly terms?: { readonly title: string; readonly content: string; readonly locale: string } | undefined;
}

/**
 * Everything or nothing. Of two requests at the same time the second finds nothing to set up: the lock of a
 * change comes first.
 */
export function completeSetup(
  pool: Pool,
  setup: Setup,
  { enabledMax }: { readonly enabledMax: number },
  now: number,
): Promise<true | Denial> {
  const { community, operator } = setup;
  return changeConfig<true>(pool, { community, actor: operator, now }, async (change) => {
    if ((await readState(change.db)) === DONE || (await hasOperator(change.db))) return denial('NOT_FOUND');
    const ref = { community, actor: operator };
    const steps = [
      () => addOperator(change, { ...ref, pubkey: operator, role: 'operator' }, { fixed: [] }, now),
      ...setup.settings.map((setting) => () => changeSetting(change, { ...ref, ...setting }, now)),
      ...setup.topics.map(
        (topic) => () => createNodeTopic(change, { ...ref, ...topic, public: true }, { enabledMax }, now),
      ),
      () => writeTerms(change, setup, now),
    ];
    for (const step of steps) {
      const result = await step();
      if (isDenial(result)) return result;
    }
    await writeState(change.db, DONE);
    await change.audit('setup.complete', operator);
    return true;
  });
}

async function writeTerms(
  change: Change,
  { community, operator, terms }: Setup,
  now: number,
): Promise<Denial | undefined> {
  if (terms === undefined) return undefined;
  const { locale, ...text } = terms;
  const ref = { community, actor: operator, ...TERMS };
  const steps = [
    () => createPolicy(change, ref, now),
    () => writeText(change, { ...ref, locale }, text, now),
    () => publishPolicy(change, ref, now),
    () => makeCurrent(change, ref, now),
  ];
  for (const step of steps) {
    const result = await step();
    if (isDenial(result)) return result;
  }
  return undefined;
}
