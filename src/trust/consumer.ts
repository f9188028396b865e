/**
 * The outbox consumer that collects the grounds of trust, which are the contacts, reports and first-seen
 * times that scores are computed from, and computes the scores. Grounds are primary data (I9): an event that
 * is no longer served cannot be read again, so a rebuild only adds grounds, and removes those of served
 * events that do not count by today's rules. Both generations of a rebuild share the tables, and the result
 * does not depend on which of them writes first.
 *
 *   apply: contacts, reports, first seen → due
 *   followUp: due → scores → assertions (NIP-85), submitted through the lane
 */
import { setImmediate as letEventLoopRun } from 'node:timers/promises';
import type { ClientBase } from 'pg';
import type { Communities, Community } from '../communities/communities.js';
import { readErasedUntil } from '../erasure/steps.sql.js';
import { type PublicTopics, publicTopicsOf } from '../events/rules/access.js';
import { type NostrEvent, serializeEvent } from '../events/rules/event.js';
import type { EventStore } from '../events/store.js';
import type { StoredEvents } from '../events/stored-events.js';
import type { NodeKeys } from '../keys/keys.js';
import type { SubjectKey } from '../keys/subject-key.js';
import type { Log } from '../node/log.js';
import { type Change, eventOf } from '../outbox/changes.sql.js';
import type { Consumer } from '../outbox/consumers/consumer.js';
import { BEGIN_EFFECT } from '../outbox/consumers/consumers.sql.js';
import type { Database } from '../postgres/database.js';
import { inTransaction } from '../postgres/transaction.js';
import { KIND_REPORT, reportedBy } from '../reports/rules.js';
import { asMatched } from '../topics/rules.js';
import {
  type AssertedScore,
  type ClaimOf,
  saveAsserted,
  takeUnasserted,
  type Unasserted,
} from './assertions.sql.js';
import {
  type Contact,
  removeContacts,
  type Seen,
  writeAuthors,
  writeContacts,
  writeReport,
} from './grounds.sql.js';
import {
  assertionOf,
  CLAIMS,
  groundTime,
  isPublic,
  KIND_ASSERTION,
  makesContacts,
  namedBy,
  renewalMs,
  scoringRules,
} from './rules.js';
import { computeScores, type DueScore, isAnyWaiting, saveScores, takeDue } from './scores.sql.js';
import {
  addContactRules,
  type ContactRules,
  dropContactRules,
  firstUsedTopic,
  readClaimKeys,
  readContactRules,
  readSweeps,
  saveContactRules,
  startSweep,
  sweepOn,
} from './scoring-rules.sql.js';

/** Scores computed in one transaction. */
const SCORES_MAX = 100;
/** Few, because a signature takes about 2 ms and the relay may run in the same process. */
const ASSERTIONS_MAX = 20;
const SWEEP_MAX = 500;
/** How long to wait before signing a claim of a community again after a failure such as a missing key. */
const SET_ASIDE_MS = 30_000;

export interface TrustConsumerOptions {
  /** Finds erased members by the hash of their key. Without it nobody counts as erased. */
  readonly subjectKey?: Pick<SubjectKey, 'tryHash'>;
  readonly communities: Pick<Communities, 'all' | 'get'>;
  readonly database: Pick<Database, 'ownPool'>;
  readonly store: Pick<EventStore, 'submit' | 'stored'>;
  readonly keys: NodeKeys;
  readonly log: Pick<Log, 'warn'>;
  readonly now: () => number;
}

export function trustConsumer(options: TrustConsumerOptions): Consumer {
  const { communities, database, now } = options;
  const aside = new ClaimsAside();
  return {
    name: 'trust',
    about: 'contacts and reports, and the scores that follow from them (NIP-85)',
    gatherMs: 1_000,
    apply: async (batch, tx, generation) => {
      await noteRules(tx, generation, batch, communities);
      await applyAll(batch, tx, options);
    },
    followUp: async () => {
      const time = now();
      if (!(await isAnyWaiting(database.ownPool, time))) return false;
      const worked = await inTransaction(database.ownPool, BEGIN_EFFECT, async (tx) => {
        const swept = await sweepOn(tx, time, SWEEP_MAX);
        const due = await takeDue(tx, time, SCORES_MAX);
        await computeDue(tx, due, communities, time);
        return { more: swept || due.length === SCORES_MAX };
      });
      const asserted = await assertSome(options, aside);
      return ('more' in worked && worked.more) || asserted === ASSERTIONS_MAX;
    },
    open: async (tx, generation) => {
      await saveContactRules(tx, generation, rulesOfAll(communities));
    },
    drop: dropContactRules,
    outdated: async (client, generation) => {
      await sweepWhereChanged(client, communities);
      const made = await readContactRules(client, generation);
      const today = rulesOfAll(communities);
      for (const [community, rules] of today) {
        const why = await whyOutdated(client, community, made.get(community), rules);
        if (why !== undefined) return `${communities.get(community)?.slug}: ${why}`;
      }
      if (!isSame(made, today)) await saveContactRules(client, generation, today);
      return undefined;
    },
  };
}

// ── Grounds ────────────────────────────────────────────────────────────────────────────────────────────────

type Step =
  | { readonly type: 'contacts' | 'remove'; readonly contacts: readonly Contact[] }
  | { readonly type: 'report'; readonly event: NostrEvent; readonly rules: Community };

/** Applies the changes in order, because a report is weighed by the grounds before it. */
async function applyAll(
  batch: readonly Change[],
  tx: ClientBase,
  { communities, subjectKey, store, now }: TrustConsumerOptions,
): Promise<void> {
  const time = now();
  const steps = batch.map((change) => ({ change, step: stepOf(change, communities.get(change.community)) }));
  const erased = await findErased(tx, subjectKey, steps.flatMap(namedIn));
  await writeAuthors(tx, seenIn(batch), time);
  const waiting = new Map<string, { readonly change: Change; readonly step: Step }>();
  const flush = async (): Promise<void> => {
    await writeWaiting(tx, [...waiting.values()], time);
    waiting.clear();
  };
  for (const { change, step } of steps) {
    if (step === undefined) continue;
    if (step.type === 'report') {
      await flush();
      await takeReport(tx, store.stored, change, step, erased, time);
    } else waiting.set(`${change.community}/${change.id}`, { change, step: withoutErased(step, erased) });
  }
  await flush();
}

/**
 * Authors of upserts that are still served: nothing is written about a vanished author. The node's own
 * assertions are left out, because they do not show that anybody is active here.
 */
function seenIn(batch: readonly Change[]): Seen[] {
  return batch
    .filter(({ payload, kind }) => payload !== undefined && kind !== KIND_ASSERTION)
    .map(({ community, author, ingestedAt }) => ({ community, pubkey: author, at: ingestedAt }));
}

/**
 * An event that is no longer served keeps its contacts. An upsert whose event is no longer served is ignored:
 * a later change of the outbox handles it.
 */
function stepOf(change: Change, rules: Community | undefined): Step | undefined {
  const { op, payload, bound, community, kind, createdAt, ingestedAt, author, id } = change;
  if (op === 'delete' || payload === undefined || rules === undefined) return undefined;
  if (kind === KIND_REPORT) return { type: 'report', event: eventOf(change)!, rules };
  const event = asMatched(eventOf(change)!, bound);
  const counts = makesContacts(kind, rules.settings) && isPublic(event, rules);
  const at = groundTime(createdAt, ingestedAt);
  const { named: people, shared } = namedBy(event);
  const contacts = people.map((named) => ({ community, kind, at, author, named, eventId: id, shared }));
  return { type: counts ? 'contacts' : 'remove', contacts };
}

/** `waiting` has only the last change of each event. */
async function writeWaiting(
  tx: ClientBase,
  waiting: readonly { readonly change: Change; readonly step: Step }[],
  now: number,
): Promise<void> {
  const contactsOf = (type: 'contacts' | 'remove') =>
    waiting.flatMap(({ step }) => (step.type === type ? step.contacts : []));
  await removeContacts(tx, contactsOf('remove'), now);
  await writeContacts(tx, contactsOf('contacts'), now);
}

async function takeReport(
  tx: ClientBase,
  stored: StoredEvents,
  { community, author, id, createdAt, ingestedAt }: Change,
  { event, rules }: Extract<Step, { type: 'report' }>,
  erased: Erased,
  now: number,
): Promise<void> {
  const at = groundTime(createdAt, ingestedAt);
  const report = { community, reporter: author, source: id, at, cameAt: ingestedAt };
  const isErased = (pubkey: string | undefined) => pubkey !== undefined && erased({ community, pubkey, at });
  const targets = reportedBy(event).filter(({ pubkey }) => !isErased(pubkey));
  await writeReport(tx, stored, { ...report, targets }, rules, now);
}

interface Named {
  readonly community: number;
  readonly pubkey: string;
  /** Milliseconds. */
  readonly at: number;
}
type Erased = (named: Named) => boolean;

/** The people that a change names, apart from its author. */
function namedIn({ change, step }: { readonly change: Change; readonly step: Step | undefined }): Named[] {
  const { community, createdAt, ingestedAt } = change;
  const at = groundTime(createdAt, ingestedAt);
  if (step?.type === 'contacts') return step.contacts.map(({ named }) => ({ community, pubkey: named, at }));
  if (step?.type !== 'report') return [];
  return reportedBy(step.event).flatMap(({ pubkey }) =>
    pubkey === undefined ? [] : [{ community, pubkey, at }],
  );
}

/**
 * A rebuild reads old events of others that name an erased member. They are not stored again as grounds. One
 * query per community for all people that a batch names.
 */
async function findErased(
  tx: ClientBase,
  subjectKey: TrustConsumerOptions['subjectKey'],
  named: readonly Named[],
): Promise<Erased> {
  const hashOf = ({ community, pubkey }: Named) => subjectKey?.tryHash(community, pubkey);
  const until = new Map<string, number>();
  for (const community of new Set(named.map((one) => one.community))) {
    const here = named.filter((one) => one.community === community);
    const hashes = here.flatMap((one) => hashOf(one) ?? []);
    if (hashes.length === 0) continue;
    for (const [subject, time] of await readErasedUntil(tx, community, hashes))
      until.set(`${community}/${subject}`, time);
  }
  return (one) => {
    const time = until.get(`${one.community}/${hashOf(one)?.toString('hex')}`);
    return time !== undefined && one.at <= time * 1_000 + 999;
  };
}

function withoutErased(step: Step, erased: Erased): Step {
  if (step.type !== 'contacts') return step;
  const contacts = step.contacts.filter(
    ({ community, named, at }) => !erased({ community, pubkey: named, at }),
  );
  return { ...step, contacts };
}

// ── Scores ─────────────────────────────────────────────────────────────────────────────────────────────────

async function computeDue(
  tx: ClientBase,
  due: readonly DueScore[],
  communities: TrustConsumerOptions['communities'],
  now: number,
): Promise<void> {
  for (const community of new Set(due.map((one) => one.community))) {
    const rules = communities.get(community);
    if (rules === undefined) continue;
    for (const claim of CLAIMS) {
      const own = due.filter((one) => one.community === community && one.claim === claim);
      if (own.length === 0) continue;
      const scope = { community, claim, subjects: own.map(({ subject }) => subject) };
      await saveScores(tx, scope, await computeScores(tx, scope, rules, now), rules.settings, now);
    }
  }
}

// ── Assertions ─────────────────────────────────────────────────────────────────────────────────────────────

/** Claims that cannot be signed at the moment. Each failure is logged once, until signing works again. */
class ClaimsAside {
  private readonly claims = new Map<string, ClaimOf & { readonly until: number }>();

  has({ community, claim }: ClaimOf, now: number): boolean {
    return (this.claims.get(`${community}/${claim}`)?.until ?? 0) > now;
  }

  at(now: number): ClaimOf[] {
    return [...this.claims.values()].filter(({ until }) => until > now);
  }

  /** Returns false when the claim failed before. */
  add({ community, claim }: ClaimOf, until: number): boolean {
    const key = `${community}/${claim}`;
    const isNew = !this.claims.has(key);
    this.claims.set(key, { community, claim, until });
    return isNew;
  }

  remove({ community, claim }: ClaimOf): void {
    this.claims.delete(`${community}/${claim}`);
  }
}

/**
 * Returns how many assertions it handled. They are signed one after another, with pauses for the event loop,
 * and saved together. A failure of one community, such as a missing key, does not hold up the others.
 */
async function assertSome(options: TrustConsumerOptions, aside: ClaimsAside): Promise<number> {
  const { database, now } = options;
  const time = now();
  const wanted = await takeUnasserted(database.ownPool, time, ASSERTIONS_MAX, aside.at(time));
  const submitted: Promise<AssertedScore | undefined>[] = [];
  for (const one of wanted) {
    if (aside.has(one, time)) continue;
    submitted.push(submit(await signOrSetAside(one, options, aside, time), options));
    await letEventLoopRun();
  }
  const made = await Promise.all(submitted);
  await saveAsserted(
    database.ownPool,
    made.filter((one) => one !== undefined),
  );
  return wanted.length;
}

async function signOrSetAside(
  wanted: Unasserted,
  options: TrustConsumerOptions,
  aside: ClaimsAside,
  now: number,
): Promise<Signed | undefined> {
  try {
    const signed = await signOne(wanted, options);
    aside.remove(wanted);
    return signed;
  } catch (error) {
    const { community, claim } = wanted;
    if (aside.add(wanted, now + SET_ASIDE_MS)) {
      const { slug } = options.communities.get(community) ?? {};
      options.log.warn({ community: slug, claim, error: String(error) }, 'trust cannot be asserted');
    }
    return undefined;
  }
}

interface Signed {
  readonly asserted: AssertedScore;
  readonly event: NostrEvent;
}

async function signOne(
  wanted: Unasserted,
  { communities, keys }: TrustConsumerOptions,
): Promise<Signed | undefined> {
  const { community, claim, assertedAt } = wanted;
  const settings = communities.get(community)?.settings;
  if (settings === undefined) return undefined;
  const event = await keys.sign(community, claim, assertionOf({ ...wanted, at: assertedAt }, settings));
  const renewAt = Math.floor(assertedAt * 1_000 + renewalMs(settings));
  return { asserted: { ...wanted, eventId: event.id, by: event.pubkey, renewAt }, event };
}

/** Returns undefined when the store refuses the event; it is tried again later. */
async function submit(
  signed: Signed | undefined,
  { store }: TrustConsumerOptions,
): Promise<AssertedScore | undefined> {
  if (signed === undefined) return undefined;
  const { asserted, event } = signed;
  const { community } = asserted;
  const outcome = await store.submit({ community, event, payload: serializeEvent(event) });
  return outcome === 'stored' ? asserted : undefined;
}

// ── Rules of contacts and scores ───────────────────────────────────────────────────────────────────────────

function rulesOfAll({ all }: TrustConsumerOptions['communities']): Map<number, ContactRules> {
  return new Map(all().map((community) => [community.id, rulesOf(community)]));
}

function rulesOf(community: Community): ContactRules {
  const { 'trust.kindWeights': weights, 'auth.privateKinds': privateKinds } = community.settings;
  return { kinds: Object.keys(weights), privateKinds, topics: publicTopicsOf(community) };
}

function isSame(made: ReadonlyMap<number, ContactRules>, today: ReadonlyMap<number, ContactRules>): boolean {
  const spelt = ({ kinds, privateKinds, topics }: ContactRules) =>
    JSON.stringify([kinds, privateKinds, topics?.prefix, topics?.public, topics?.plain]);
  return (
    made.size === today.size &&
    [...today].every(([id, rules]) => made.has(id) && spelt(made.get(id)!) === spelt(rules))
  );
}

/** Stores the current rules for communities that have none yet in this generation. */
async function noteRules(
  tx: ClientBase,
  generation: number,
  batch: readonly Change[],
  communities: TrustConsumerOptions['communities'],
): Promise<void> {
  const met = [...new Set(batch.map(({ community }) => community))].flatMap(
    (id) => communities.get(id) ?? [],
  );
  const rules = new Map(met.map((community) => [community.id, rulesOf(community)]));
  if (rules.size > 0) await addContactRules(tx, generation, rules);
}

async function whyOutdated(
  client: ClientBase,
  community: number,
  made: ContactRules | undefined,
  today: ContactRules,
): Promise<string | undefined> {
  if (made === undefined) return undefined;
  const kindsOf = ({ kinds, privateKinds }: ContactRules) => JSON.stringify([kinds, privateKinds]);
  if (kindsOf(made) !== kindsOf(today)) return 'the kinds that are contacts have changed';
  return whyTopicsOutdated(client, community, made.topics, today.topics);
}

/** A change of a topic without events needs no rebuild. */
async function whyTopicsOutdated(
  client: ClientBase,
  community: number,
  made: PublicTopics | null,
  today: PublicTopics | null,
): Promise<string | undefined> {
  if ((made === null) !== (today === null)) return 'auth.mode has changed';
  if (made === null || today === null) return undefined;
  if (made.prefix !== today.prefix) return 'topic.namespace has changed';
  const changed = [...onlyInOne(made.public, today.public), ...onlyInOne(made.plain, today.plain)];
  // Events can belong to the global topic without naming it.
  const global = changed.find((topic) => topic === `${today.prefix}global`);
  const topic = global ?? (await firstUsedTopic(client, community, changed));
  return topic && `the topic ${topic} has become public or is no longer public`;
}

function onlyInOne(one: readonly string[], other: readonly string[]): string[] {
  return [...one.filter((item) => !other.includes(item)), ...other.filter((item) => !one.includes(item))];
}

/**
 * When a weight, window, key or the set of public topics has changed, the grounds stay as they are and every
 * score is computed again.
 */
async function sweepWhereChanged(
  client: ClientBase,
  communities: TrustConsumerOptions['communities'],
): Promise<void> {
  const keys = await readClaimKeys(client);
  const made = await readSweeps(client);
  for (const community of communities.all()) {
    const { id } = community;
    const rules = scoringRules(
      community,
      CLAIMS.map((claim) => keys.get(`${id}/${claim}`)),
    );
    if (made.get(id)?.rules !== rules) await startSweep(client, id, rules);
  }
}
