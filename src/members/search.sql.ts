/**
 * The list of members with their profiles, for operators: by key or newest first, and searched by name, key,
 * address (NIP-05) or note. A search reads candidates from indexes, sorts them, and checks one after another
 * until the page is full.
 */
import type { Denial } from '../api/rules-errors.js';
import {
  foldedText,
  hasName,
  joinProfile,
  keysWithPieces,
  piecesOf,
} from '../events/postgres/read/profiles.js';
import { FREE_PLAN } from '../plans/rules.js';
import { named } from '../postgres/named.js';
import { BY_PUBKEY, NEWEST_PUBKEY, type Page, type PageOf, readPage } from '../postgres/page.js';
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

export async function readListedMember(
  db: Db,
  { community, pubkey }: { readonly community: number; readonly pubkey: string },
  now: number,
): Promise<ListedMember | undefined> {
  const { rows } = await db.query<ListedMember>(
    named(
      `SELECT ${COLUMNS} FROM members m ${JOINED} WHERE m.community = :community AND m.pubkey = :pubkey`,
      { community: ['int', community], pubkey: ['bytea', bytes(pubkey)], now: ['bigint', now] },
    ),
  );
  return rows[0];
}

/** The profile of a key, member or not: the stored event of kind 0. */
export async function readProfilePayload(
  db: Db,
  { community, pubkey }: { readonly community: number; readonly pubkey: string },
  now: number,
): Promise<string | null> {
  const { rows } = await db.query<{ payload: string | null }>(
    named(`SELECT profile.payload FROM (SELECT :community AS community, :pubkey AS pubkey) m ${JOINED}`, {
      community: ['int', community],
      pubkey: ['bytea', bytes(pubkey)],
      now: ['bigint', now],
    }),
  );
  return rows[0]?.payload ?? null;
}

export function searchMembers(
  db: Db,
  choice: MemberChoice,
  page: PageOf,
): Promise<Page<ListedMember> | Denial> {
  if (choice.order === 'key')
    return readPage(
      page,
      BY_PUBKEY,
      ({ pubkey }: ListedMember) => [pubkey],
      ([after], limit) =>
        read(db, choice, { beyond: 'm.pubkey > :after', order: 'm.pubkey', after: { pubkey: after }, limit }),
    );
  return readPage(
    page,
    NEWEST_PUBKEY,
    ({ createdAt, pubkey }: ListedMember) => [createdAt, pubkey],
    ([at, pubkey], limit) =>
      read(db, choice, {
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

async function read(db: Db, choice: MemberChoice, part: Part): Promise<ListedMember[]> {
  const { community, status, search, seesNotes, now } = choice;
  const { beyond, order, after, limit } = part;
  const found = search === undefined ? undefined : matching(search, seesNotes);
  const { rows } = await db.query<ListedMember>(
    named(
      // OFFSET 0: sorts before it looks into a profile, which costs more than to find and sort its key.
      `SELECT ${COLUMNS} FROM (
         SELECT m.* FROM members m WHERE m.community = :community AND ${beyond}
           ${status === undefined ? '' : 'AND m.status = :status'}
           ${found === undefined ? '' : `AND m.pubkey IN (${found.candidates})`}
         ORDER BY ${order} OFFSET 0) m ${JOINED}
       ${found === undefined ? '' : `WHERE ${found.check}`}
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
        limit: ['int', limit],
        now: ['bigint', now],
      },
    ),
  );
  return rows;
}

/** As the index on the names and notes of members has them. */
const WORDS = foldedText(`coalesce(m.name, '') || ' ' || coalesce(m.note, '')`);
const TEXT = foldedText(':text');
const PIECES = piecesOf(':community', TEXT);

/** Candidates, each by one index, and the exact condition on `m` and its profile. */
function matching({ localName, keys }: MemberSearch, seesNotes: boolean) {
  const members = (condition: string) =>
    `SELECT m.pubkey FROM members m WHERE m.community = :community AND ${condition}`;
  const hasWords = `(m.name IS NOT NULL OR m.note IS NOT NULL)
    AND text_pieces(m.community, ${WORDS}, '{1,2}') @> ${PIECES}`;
  const isLocal = 'm.name = :local';
  const isKey = 'm.pubkey BETWEEN :from AND :to';
  const exact = [...(localName === null ? [] : [isLocal]), ...(keys === null ? [] : [isKey])];
  return {
    candidates: [keysWithPieces(':community', PIECES), ...[hasWords, ...exact].map(members)].join(
      '\n UNION ALL ',
    ),
    check: [hasName(TEXT), `strpos(${seesNotes ? WORDS : 'm.name'}, ${TEXT}) > 0`, ...exact].join(' OR '),
  };
}
