/** Why a stored event is no longer served. The numbers are in the database; they never change. */
export const HIDDEN_CODES = {
  superseded: 1,
  deleted: 2,
  expired: 3,
  retention: 4,
  capacity: 5,
  vanished: 6,
  /** A request to vanish: kept for the operator, never served. */
  withheld: 7,
  /** A moderator removed it, or a rule held it on arrival. It can be restored for some time. */
  removed: 8,
  /** A person or a whole community is being erased. */
  erased: 9,
} as const;

export type Hidden = keyof typeof HIDDEN_CODES;

const BY_CODE = new Map<number, Hidden>(
  (Object.keys(HIDDEN_CODES) as Hidden[]).map((hidden) => [HIDDEN_CODES[hidden], hidden]),
);

export function hiddenOf(code: number): Hidden {
  const hidden = BY_CODE.get(code);
  if (hidden === undefined)
    throw new Error(`events.hidden is ${code}, which no version of this program wrote`);
  return hidden;
}

/** The reasons in the outbox. A withheld event is never announced, so it has none. */
export const OUTBOX_REASONS = {
  superseded: 'superseded',
  deleted: 'nip09',
  expired: 'expiration',
  retention: 'retention',
  capacity: 'capacity',
  vanished: 'vanish',
  removed: 'moderation',
  erased: 'erasure',
} as const satisfies Record<Exclude<Hidden, 'withheld'>, string>;

export type Announced = keyof typeof OUTBOX_REASONS;

/**
 * What the outbox says about an event: enough to decide whether a client could hold it, without its content.
 */
export interface EventOutline {
  readonly id: string;
  readonly author: string;
  readonly kind: number;
  /** Seconds, as Nostr has them. */
  readonly createdAt: number;
  /** The topics that it names and those that it is bound to. */
  readonly topics: readonly string[];
  /**
   * The keys of its tags, as the store makes them. Undefined where they are not known: for an upsert, a
   * superseded version, and an event with more than `OUTLINE_TAGS_MAX` different tags.
   */
  readonly tags: ReadonlySet<string> | undefined;
}

export const OUTLINE_TAGS_MAX = 100;
