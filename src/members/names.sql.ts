/** The names of keys, for pages that show people: from profiles (kind 0) and from NIP-05 names given here. */
import { NOT_VANISHED } from '../events/postgres/read/hidden-at-read.js';
import type { NostrEvent } from '../events/rules/event.js';
import { Keep } from '../events/rules/keep.js';
import { hexArray } from '../postgres/binary.js';
import type { Db } from '../postgres/values.js';
import { nameInProfile } from './rules-names.js';

export interface NamedKey {
  readonly pubkey: string;
  /** From the profile. */
  readonly profileName: string | undefined;
  /** In /.well-known/nostr.json of this community. */
  readonly name: string | null;
}

interface Row {
  readonly pubkey: string;
  readonly payload: string | null;
  readonly name: string | null;
}

/** One row for each key that has a name. A profile is found by the index on authors and kinds. */
export async function readNames(
  db: Db,
  community: number,
  pubkeys: readonly string[],
  now: number,
): Promise<NamedKey[]> {
  const { rows } = await db.query<Row>(
    `SELECT encode(asked.pubkey, 'hex') AS pubkey, p.payload, m.name
     FROM unnest($2::bytea[]) AS asked (pubkey)
     LEFT JOIN members m ON m.community = $1 AND m.pubkey = asked.pubkey
     LEFT JOIN LATERAL (SELECT e.payload FROM events e
       WHERE e.community = $1 AND e.pubkey = asked.pubkey AND e.kind = 0 AND e.keep = ${Keep.current}
         AND e.hidden IS NULL AND (e.expires_at IS NULL OR e.expires_at > $3) AND ${NOT_VANISHED}
       LIMIT 1) p ON true
     WHERE m.name IS NOT NULL OR p.payload IS NOT NULL`,
    [community, hexArray(pubkeys), Math.floor(now / 1_000)],
  );
  return rows.map(({ pubkey, payload, name }) => ({
    pubkey,
    profileName: payload === null ? undefined : nameInProfile((JSON.parse(payload) as NostrEvent).content),
    name,
  }));
}
