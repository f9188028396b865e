/**
 * Profiles (kind 0) for the lists of people: SQL that finds keys by a name in their profile, and the profile
 * of a row. Both read the current events, so there is no copy that could differ or be forgotten.
 */
import { Keep } from '../../rules/keep.js';
import { NOT_VANISHED } from './hidden-at-read.js';

/** What is served as the profile of a key. The index on the names in profiles has the same condition. */
const IS_PROFILE = `e.keep = ${Keep.current} AND e.kind = 0 AND e.hidden IS NULL`;

const isServed = (nowSeconds: string) =>
  `(e.expires_at IS NULL OR e.expires_at > ${nowSeconds}) AND ${NOT_VANISHED}`;

/** A text as the indexes have it. */
export const foldedText = (text: string) => `lower(normalize(${text}, NFKC))`;

/**
 * Keys whose profile has each pair of characters of a folded text: all that have the text in a name, and a
 * few others, which `hasName` sorts out.
 */
export const keysWithPairs = (community: string, folded: string) =>
  `SELECT e.pubkey FROM events e WHERE e.community = ${community} AND ${IS_PROFILE}
     AND text_pairs(e.community, profile_names(e.payload)) @> text_pairs(${community}, ${folded})`;

/** Joins the profile of `m`, a row with community and pubkey, as `profile`. */
export const joinProfile = (nowSeconds: string) =>
  `LEFT JOIN LATERAL (SELECT e.payload FROM events e
     WHERE e.community = m.community AND e.pubkey = m.pubkey AND ${IS_PROFILE} AND ${isServed(nowSeconds)}
     LIMIT 1) profile ON true`;

/** Whether a name in the joined profile has a folded text. */
export const hasName = (folded: string) => `strpos(profile_names(profile.payload), ${folded}) > 0`;
