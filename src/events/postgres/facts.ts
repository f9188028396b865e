/**
 * Reads the facts of a batch before it is decided. One statement is enough for most batches: known ids,
 * tombstones, vanish marks. One more is needed for keys, and one for events to be deleted. The caller holds
 * the lane's lock.
 */
import type { ClientBase } from 'pg';
import type { Settings } from '../../communities/rules-settings.js';
import { SUBJECT_FINGERPRINT } from '../../node/state.sql.js';
import { hexArray, int4Array } from '../../postgres/binary.js';
import { UNBOUND } from '../../topics/rules.js';
import type { Superseded } from '../rules/batch/history.js';
import { addressOf, classify, KIND_DELETION, kindOf } from '../rules/classify.js';
import { deletionTargets, ownersOf, targetName } from '../rules/deletion.js';
import type { NostrEvent } from '../rules/event.js';
import {
  type BatchFacts,
  factKey,
  type Head,
  type StoredEvent,
  type Submission,
  tombstoneKey,
} from '../rules/facts.js';
import { HIDDEN_CODES, type Hidden, hiddenOf } from '../rules/hidden.js';
import { Keep } from '../rules/keep.js';
import { DAY_MS, type TopicRule } from '../rules/retention.js';
import { addressHash, type HistoryQuery, type PlacedRow, readHistory, supersededOf } from './history.js';
import { dedupeOf, eventAt } from './places.js';

/** Whole days since 1970: a quota is per author and day. */
export const dayOf = (now: number) => Math.floor(now / DAY_MS);

const COMMON_SQL = `
  SELECT 'head' AS what, s.last_seq AS number, 0 AS community, NULL AS key, NULL AS author FROM lane_state s
  UNION ALL
  SELECT 'rules', m.version, 0, NULL, NULL FROM moderation_version m
  UNION ALL
  SELECT 'known', coalesce(d.hidden, 0), d.community, encode(d.event_id, 'hex'), NULL
  FROM unnest($1::int[], $2::bytea[]) AS asked (community, event_id)
  ${dedupeOf('asked.community', 'asked.event_id')}
  UNION ALL
  SELECT 'tombstone', t.requested_at, t.community, encode(t.target, 'hex'), encode(t.author, 'hex')
  FROM unnest($3::int[], $4::bytea[], $5::bytea[]) AS asked (community, target, author)
  CROSS JOIN LATERAL (SELECT * FROM deletion_tombstones at WHERE at.community = asked.community
    AND at.target = asked.target AND at.author = asked.author OFFSET 0) t
  UNION ALL
  SELECT 'vanished', v.until, v.community, encode(v.pubkey, 'hex'), NULL
  FROM unnest($6::int[], $7::bytea[]) AS asked (community, pubkey)
  CROSS JOIN LATERAL (SELECT * FROM vanish_marks at
    WHERE at.community = asked.community AND at.pubkey = asked.pubkey OFFSET 0) v
  UNION ALL
  SELECT 'erased', CASE WHEN m.banned THEN ${Number.MAX_SAFE_INTEGER} ELSE m.until END,
    m.community, encode(m.subject, 'hex'), NULL
  FROM unnest($8::int[], $9::bytea[]) AS asked (community, subject)
  CROSS JOIN LATERAL (SELECT * FROM erasure_marks at
    WHERE at.community = asked.community AND at.subject = asked.subject OFFSET 0) m
  UNION ALL
  SELECT 'fingerprint', 0, 0, n.value, NULL FROM node_state n
  WHERE n.key = '${SUBJECT_FINGERPRINT}' AND EXISTS (SELECT 1 FROM erasure_marks)`;

interface CommonRow {
  what: 'head' | 'rules' | 'known' | 'tombstone' | 'vanished' | 'erased' | 'fingerprint';
  number: number;
  community: number;
  key: string;
  author: string;
}

export interface FactOptions {
  readonly now: number;
  readonly settingsOf: (community: number) => Settings;
  /** The topics that the operator has set rules for. */
  readonly topicsOf?: (community: number) => ReadonlyMap<string, TopicRule>;
  /** Seconds: events signed up to then belong to an erased community that had the same name. */
  readonly refusedUntilOf?: (community: number) => number | undefined;
  /** Events ingested before this time were already past their days when the rules last changed. */
  readonly keptSinceOf?: (community: number) => number;
  /** Hashes the keys of erased members; without a key nobody was erased here. */
  readonly subjectKey?: SubjectHashes;
}

export interface SubjectHashes {
  readonly fingerprint: string | undefined;
  hash(community: number, pubkey: string): Buffer;
  /** Throws when it is not the key that this database uses. */
  check(fingerprint: string): void;
}

export async function readFacts(
  client: ClientBase,
  submissions: readonly Submission[],
  options: FactOptions,
): Promise<BatchFacts> {
  const tombstoneQueries = tombstonesOf(submissions);
  const owners = ownersIn(submissions);
  const { subjectKey } = options;
  const subjects = new Map(
    subjectKey?.fingerprint === undefined
      ? []
      : [...owners, ...communitiesOf(submissions)].map((owner) => [
          subjectKey.hash(owner.community, owner.pubkey).toString('hex'),
          owner,
        ]),
  );
  const common = client.query<CommonRow>({
    name: 'facts',
    text: COMMON_SQL,
    values: [
      int4Array(submissions.map((s) => s.community)),
      hexArray(submissions.map((s) => s.event.id)),
      int4Array(tombstoneQueries.map((q) => q.community)),
      hexArray(tombstoneQueries.map((q) => q.target)),
      hexArray(tombstoneQueries.map((q) => q.author)),
      int4Array(owners.map((o) => o.community)),
      hexArray(owners.map((o) => o.pubkey)),
      int4Array([...subjects.values()].map((o) => o.community)),
      hexArray([...subjects.keys()]),
    ],
  });
  const [{ rows }, broadcast, heads] = await Promise.all([
    common,
    readBroadcast(client, submissions),
    readHeads(client, submissions),
  ]);
  const known = new Map<string, 'served' | Hidden>();
  const vanished = new Map<string, number>();
  const erased = new Map<string, number>();
  const found = new Map<string, number>();
  let lastSeq = 0;
  let rulesVersion = 0;
  for (const { what, number, community, key, author } of rows) {
    if (what === 'head') lastSeq = number;
    if (what === 'rules') rulesVersion = number;
    if (what === 'known') known.set(factKey(community, key), number === 0 ? 'served' : hiddenOf(number));
    if (what === 'tombstone') found.set(tombstoneKey(community, key, author), number);
    if (what === 'vanished') vanished.set(factKey(community, key), number);
    if (what === 'erased') erased.set(factKey(community, subjects.get(key)!.pubkey), number);
    if (what === 'fingerprint') subjectKey?.check(key);
  }
  for (const key of broadcast) known.set(key, 'served');
  const tombstones = new Map<string, number>();
  for (const { community, target, author, name } of tombstoneQueries) {
    const requestedAt = found.get(tombstoneKey(community, target, author));
    if (requestedAt !== undefined) tombstones.set(tombstoneKey(community, name, author), requestedAt);
  }
  const { targets, superseded } = await readTargets(client, submissions, heads);
  const history = await readHistory(client, historyQueries(submissions));
  const deletionsLeft = await readDeletionsLeft(client, submissions, options);
  const communities = [...new Set(submissions.map((submission) => submission.community))];
  for (const community of communities) {
    const until = options.refusedUntilOf?.(community);
    const key = factKey(community, '');
    if (until !== undefined) erased.set(key, Math.max(until, erased.get(key) ?? until));
  }
  const purgesDeleted = new Set(
    communities.filter((community) => options.settingsOf(community)['deletion.mode'] === 'physical'),
  );
  const retention = new Map(
    communities.map((community) => [
      community,
      {
        settings: options.settingsOf(community),
        topics: options.topicsOf?.(community) ?? new Map(),
        keptSince: options.keptSinceOf?.(community),
      },
    ]),
  );
  const keepsNoHistory = new Set(
    communities.filter((community) => options.settingsOf(community)['retention.historyDays'] === 0),
  );
  return {
    lastSeq,
    rulesVersion,
    known,
    heads,
    targets,
    superseded: [...superseded, ...history.versions],
    historyLeft: !history.whole,
    tombstones,
    vanished,
    erased,
    deletionsLeft,
    purgesDeleted,
    keepsNoHistory,
    retention,
    topicSettings: new Map(communities.map((community) => [community, options.settingsOf(community)])),
  };
}

async function readDeletionsLeft(
  client: ClientBase,
  submissions: readonly Submission[],
  { now, settingsOf }: FactOptions,
): Promise<Map<string, number>> {
  const requests = submissions.filter(({ event }) => event.kind === KIND_DELETION);
  const left = new Map<string, number>();
  if (requests.length === 0) return left;
  for (const { community, event } of requests) {
    left.set(factKey(community, event.pubkey), settingsOf(community)['deletion.targetsPerDayMax']);
  }
  const { rows } = await client.query<{ community: number; author: string; targets: number }>({
    name: 'facts-quotas',
    text: `SELECT q.community, encode(q.author, 'hex') AS author, q.targets
      FROM (SELECT DISTINCT * FROM unnest($1::int[], $2::bytea[]) AS u (community, author)) asked
      JOIN deletion_quotas q USING (community, author) WHERE q.day = $3`,
    values: [
      int4Array(requests.map((r) => r.community)),
      hexArray(requests.map((r) => r.event.pubkey)),
      dayOf(now),
    ],
  });
  for (const { community, author, targets } of rows) {
    const key = factKey(community, author);
    left.set(key, (left.get(key) ?? 0) - targets);
  }
  return left;
}

/**
 * Ephemeral events that are already on the live bus, perhaps by another instance: each is announced once
 * (I3).
 */
async function readBroadcast(client: ClientBase, submissions: readonly Submission[]): Promise<string[]> {
  const ephemeral = submissions.filter(({ event }) => classify(event.kind) === 'ephemeral');
  if (ephemeral.length === 0) return [];
  const { rows } = await client.query<{ community: number; id: string }>({
    name: 'facts-broadcast',
    text: `SELECT b.community, encode(b.event_id, 'hex') AS id
      FROM unnest($1::int[], $2::bytea[]) AS asked (community, event_id)
      JOIN live_bus b USING (community, event_id)`,
    values: [int4Array(ephemeral.map((s) => s.community)), hexArray(ephemeral.map((s) => s.event.id))],
  });
  return rows.map((row) => factKey(row.community, row.id));
}

interface TombstoneQuery {
  readonly community: number;
  readonly target: string;
  readonly author: string;
  /** The id or address that the target stands for. */
  readonly name: string;
}

/**
 * Every tombstone that could refuse an event of the batch: by its id and each owner, by its address and its
 * author. For a deletion request, the tombstones of its targets, which tell whether it is a repeat.
 */
function tombstonesOf(submissions: readonly Submission[]): TombstoneQuery[] {
  return submissions.flatMap(({ community, event }) => {
    if (event.kind === KIND_DELETION) return targetTombstones(community, event);
    const byId = ownersOf(event).map((author) => ({ community, target: event.id, author, name: event.id }));
    const address = addressOf(event);
    if (address === undefined) return byId;
    return [...byId, { community, target: addressHash(address), author: event.pubkey, name: address }];
  });
}

/** A deletion request is protected, so no tombstone refuses the request itself. */
function targetTombstones(community: number, request: NostrEvent): TombstoneQuery[] {
  return deletionTargets(request).map((target) => {
    const name = targetName(target);
    const hash = target.type === 'id' ? name : addressHash(name);
    return { community, target: hash, author: request.pubkey, name };
  });
}

/** A whole community can be erased, too. */
function communitiesOf(submissions: readonly Submission[]): { community: number; pubkey: string }[] {
  const communities = new Set(submissions.map(({ community }) => community));
  return [...communities].map((community) => ({ community, pubkey: '' }));
}

function ownersIn(submissions: readonly Submission[]): { community: number; pubkey: string }[] {
  const owners = new Map<string, { community: number; pubkey: string }>();
  for (const { community, event } of submissions) {
    for (const pubkey of ownersOf(event)) owners.set(factKey(community, pubkey), { community, pubkey });
  }
  return [...owners.values()];
}

/** The addresses that a submission concerns: its own, and those that it asks to delete. */
function addressesOf({ event }: Submission): string[] {
  const own = addressOf(event);
  if (event.kind !== KIND_DELETION) return own === undefined ? [] : [own];
  return deletionTargets(event).flatMap((target) => (target.type === 'address' ? [target.address] : []));
}

/**
 * Looked up one by one and fenced like the dedupe rows, so that a small table is never scanned as a whole.
 */
const HEADS_SQL = `
  SELECT asked.place::int, h.created_at, encode(h.event_id, 'hex') AS id, h.topics,
    d.seq, d.ingested_at, d.keep
  FROM unnest($1::int[], $2::bytea[]) WITH ORDINALITY AS asked (community, address_hash, place)
  CROSS JOIN LATERAL (SELECT * FROM event_heads at
    WHERE at.community = asked.community AND at.address_hash = asked.address_hash OFFSET 0) h
  LEFT JOIN event_dedupe d ON d.community = h.community AND d.event_id = h.event_id AND d.hidden IS NULL`;

interface HeadRow {
  place: number;
  id: string;
  created_at: number;
  topics: string[];
  seq: number | null;
  ingested_at: number;
  keep: number;
}

async function readHeads(client: ClientBase, submissions: readonly Submission[]): Promise<Map<string, Head>> {
  const asked = new Map<string, { community: number; address: string }>();
  for (const submission of submissions) {
    const { community } = submission;
    for (const address of addressesOf(submission))
      asked.set(factKey(community, address), { community, address });
  }
  const heads = new Map<string, Head>();
  if (asked.size === 0) return heads;
  const keys = [...asked.keys()];
  const wanted = [...asked.values()];
  const { rows } = await client.query<HeadRow>({
    name: 'facts-heads',
    text: HEADS_SQL,
    values: [int4Array(wanted.map((w) => w.community)), hexArray(wanted.map((w) => addressHash(w.address)))],
  });
  for (const { place, id, created_at, topics, seq, ingested_at, keep } of rows) {
    const row = seq === null ? undefined : { seq, ingestedAt: ingested_at, keep };
    heads.set(keys[place - 1]!, { id, created_at, topics, row });
  }
  return heads;
}

const TARGETS_SQL = `
  SELECT d.community, d.seq, d.ingested_at, d.keep, e.payload, e.bound
  FROM unnest($1::int[], $2::bytea[]) AS asked (community, event_id)
  ${dedupeOf('asked.community', 'asked.event_id')}
  ${eventAt('d')}
  WHERE e.hidden IS NULL OR e.hidden = ${HIDDEN_CODES.superseded}`;

interface Targets {
  readonly targets: Map<string, StoredEvent>;
  readonly superseded: Superseded[];
}

/**
 * The events, served or superseded, that the batch's deletion requests name by id or by the head of an
 * address.
 */
async function readTargets(
  client: ClientBase,
  submissions: readonly Submission[],
  heads: ReadonlyMap<string, Head>,
): Promise<Targets> {
  const asked = submissions.flatMap(({ community, event }) => {
    if (event.kind !== KIND_DELETION) return [];
    return deletionTargets(event).flatMap((target) => {
      const id = target.type === 'id' ? target.id : heads.get(factKey(community, target.address))?.id;
      return id === undefined ? [] : [{ community, id }];
    });
  });
  const targets = new Map<string, StoredEvent>();
  if (asked.length === 0) return { targets, superseded: [] };
  const { rows } = await client.query<PlacedRow>({
    name: 'facts-targets',
    text: TARGETS_SQL,
    values: [int4Array(asked.map((a) => a.community)), hexArray(asked.map((a) => a.id))],
  });
  for (const { community, seq, ingested_at, keep, payload, bound } of rows) {
    if (keep === Keep.history) continue;
    const event = JSON.parse(payload) as NostrEvent;
    const row = { seq, ingestedAt: ingested_at, keep };
    targets.set(factKey(community, event.id), { row, event, bound: bound ?? UNBOUND });
  }
  return { targets, superseded: rows.filter(({ keep }) => keep === Keep.history).map(supersededOf) };
}

/** The history to read: each author and kind with an address to delete, up to the latest request time. */
function historyQueries(submissions: readonly Submission[]): HistoryQuery[] {
  const queries = new Map<string, HistoryQuery>();
  for (const { community, event } of submissions) {
    if (event.kind !== KIND_DELETION) continue;
    for (const target of deletionTargets(event)) {
      if (target.type === 'id') continue;
      const kind = kindOf(target.address);
      const key = factKey(community, `${kind}:${event.pubkey}`);
      const until = Math.max(event.created_at, queries.get(key)?.until ?? 0);
      queries.set(key, { community, author: event.pubkey, kind, until });
    }
  }
  return [...queries.values()];
}
