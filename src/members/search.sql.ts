/**
 * The list of members with their profiles, for operators: by key or newest first, and searched by name, key,
 * address (NIP-05) or note. A search reads candidates from indexes, sorts them, and checks one after another
 * until the page is full.
 */
import type { Pool } from 'pg';
import { type Denial, isDenial } from '../api/rules-errors.js';
import { foldedText, hasName, joinProfile, keysWithPairs } from '../events/postgres/read/profiles.js';
import type { StoredEvents } from '../events/stored-events.js';
import { FREE_PLAN } from '../plans/rules.js';
import { named } from '../postgres/named.js';
import { BY_PUBKEY, NEWEST_PUBKEY, type Page, type PageOf, readPage } from '../postgres/page.js';
import { inTransaction } from '../postgres/transaction.js';
import { bytes, type Db } from '../postgres/values.js';
import { MEMBER_COLUMNS, type Member } from './members.sql.js';
import type { MemberStatus } from './rules.js';
import type { MemberSearch } from './rules-profile.js';

export interface ListedMember extends Member {
  readonly plan: string;
  /** The event of kind 0, as it is stored. */
  readonly payload: string | null;
}

export interface MemberChoice {
  readonly events: StoredEvents;
  /** Keys whose profile has the searched words, where SQL does not find them. */
  readonly named?: readonly string[] | undefined;
  readonly community: number;
  readonly status?: MemberStatus | undefined;
  readonly search?: MemberSearch | undefined;
  /** Notes are searched for those only who may read them. */
  readonly seesNotes: boolean;
  readonly order: 'key' | 'newest';
  readonly now: number;
}

const PLAN = `CASE WHEN m.plan_until IS NULL OR m.plan_until > :now THEN m.plan
  ELSE '${FREE_PLAN}' END AS plan`;
const NOW_SECONDS = ':now / 1000';
const COLUMNS = `${MEMBER_COLUMNS}, ${PLAN}, profile.payload`;
const JOINED = joinProfile(NOW_SECONDS);
/** Profiles elsewhere are added to the page. */
const NOT_JOINED = 'CROSS JOIN (SELECT NULL::text AS payload) profile';
const joined = ({ inDatabase }: StoredEvents) => (inDatabase ? JOINED : NOT_JOINED);

export async function readListedMember(
  db: Db,
  events: StoredEvents,
  { community, pubkey }: { readonly community: number; readonly pubkey: string },
  now: number,
): Promise<ListedMember | undefined> {
  const { rows } = await db.query<ListedMember>(
    named(
      `SELECT ${COLUMNS} FROM members m ${joined(events)}
       WHERE m.community = :community AND m.pubkey = :pubkey`,
      { community: ['int', community], pubkey: ['bytea', bytes(pubkey)], now: ['bigint', now] },
    ),
  );
  return (await withProfiles(db, events, { community, now }, rows))[0];
}

async function withProfiles(
  db: Db,
  events: StoredEvents,
  of: { readonly community: number; readonly now: number },
  members: ListedMember[],
): Promise<ListedMember[]> {
  if (events.inDatabase || members.length === 0) return members;
  const profiles = await events.profiles(db, { ...of, pubkeys: members.map(({ pubkey }) => pubkey) });
  return members.map((member) => ({ ...member, payload: profiles.get(member.pubkey) ?? null }));
}

/** The pools of the API do without bitmap scans, which are the only way to read these indexes. */
const BEGIN_SEARCH = 'BEGIN READ ONLY; SET LOCAL enable_bitmapscan = on';

export function searchMembers(
  pool: Pool,
  choice: MemberChoice,
  page: PageOf,
): Promise<Page<ListedMember> | Denial> {
  if (choice.order === 'key')
    return readPage(
      page,
      BY_PUBKEY,
      ({ pubkey }: ListedMember) => [pubkey],
      ([after], limit) =>
        read(pool, choice, {
          beyond: 'm.pubkey > :after',
          order: 'm.pubkey',
          after: { pubkey: after },
          limit,
        }),
    );
  return readPage(
    page,
    NEWEST_PUBKEY,
    ({ createdAt, pubkey }: ListedMember) => [createdAt, pubkey],
    ([at, pubkey], limit) =>
      read(pool, choice, {
        beyond: '(m.created_at, m.pubkey) < (:at, :after)',
        order: 'm.created_at DESC, m.pubkey DESC',
        after: { at, pubkey },
        limit,
      }),
  );
}

interface Part {
  readonly beyond: string;
  readonly order: string;
  readonly after: { readonly at?: number; readonly pubkey: string };
  readonly limit: number;
}

async function read(pool: Pool, choice: MemberChoice, part: Part): Promise<ListedMember[]> {
  const { events, community, status, search, seesNotes, now } = choice;
  const { beyond, order, after, limit } = part;
  const sought = search === undefined ? undefined : matching(search, seesNotes, events);
  const statement = named(
    // OFFSET 0: sorts before it looks into a profile, which costs more than to find and sort its key.
    `SELECT ${COLUMNS} FROM (
         SELECT m.* FROM members m WHERE m.community = :community AND ${beyond}
           ${status === undefined ? '' : 'AND m.status = :status'}
           ${sought === undefined ? '' : `AND m.pubkey IN (${sought.candidates})`}
         ORDER BY ${order} OFFSET 0) m ${joined(events)}
       ${sought === undefined ? '' : `WHERE ${sought.check}`}
       ORDER BY ${order} LIMIT :limit`,
    {
      community: ['int', community],
      status: ['text', status ?? null],
      at: ['bigint', after.at ?? 0],
      after: ['bytea', bytes(after.pubkey)],
      text: ['text', search?.text ?? null],
      local: ['text', search?.localName ?? null],
      from: ['bytea', search?.keys ? bytes(search.keys.from) : null],
      to: ['bytea', search?.keys ? bytes(search.keys.to) : null],
      profiles: ['bytea[]', (choice.named ?? []).map((key) => bytes(key))],
      limit: ['int', limit],
      now: ['bigint', now],
    },
  );
  const page = (rows: ListedMember[]) => withProfiles(pool, events, { community, now }, rows);
  if (search === undefined) return page((await pool.query<ListedMember>(statement)).rows);
  const found = await inTransaction(pool, BEGIN_SEARCH, (db) => db.query<ListedMember>(statement));
  if (isDenial(found)) throw new Error('a search refuses nothing');
  return page(found.rows);
}

/** As the index on the names and notes of members has them. */
const WORDS = foldedText(`E'\\n' || coalesce(m.name, '') || E'\\n' || coalesce(m.note, '')`);
const TEXT = foldedText(':text');

/** Candidates, each by one index, and the exact condition on `m` and its profile. */
function matching({ localName, keys }: MemberSearch, seesNotes: boolean, { inDatabase }: StoredEvents) {
  const members = (condition: string) =>
    `SELECT m.pubkey FROM members m WHERE m.community = :community AND ${condition}`;
  const hasWords = `(m.name IS NOT NULL OR m.note IS NOT NULL)
    AND text_pairs(m.community, ${WORDS}) @> text_pairs(:community, ${TEXT})`;
  const isLocal = 'm.name = :local';
  const isKey = 'm.pubkey BETWEEN :from AND :to';
  const exact = [...(localName === null ? [] : [isLocal]), ...(keys === null ? [] : [isKey])];
  const visible = seesNotes ? WORDS : `E'\\n' || m.name`;
  const inProfiles = inDatabase ? keysWithPairs(':community', TEXT) : 'SELECT unnest(:profiles)';
  const isNamed = inDatabase ? hasName(TEXT) : 'm.pubkey = ANY (:profiles)';
  return {
    candidates: [inProfiles, ...[hasWords, ...exact].map(members)].join('\n UNION ALL '),
    check: [isNamed, `strpos(${visible}, ${TEXT}) > 0`, ...exact].join(' OR '),
  };
}
