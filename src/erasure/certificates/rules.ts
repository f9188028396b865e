/**
 * The certificate of an erasure: how many rows each store had, what became of them, and that nothing was
 * left. It is the content of a signed event, so that anybody can check it, and holds the id of the
 * certificate before it. It names the person only by a keyed hash.
 */
import { z } from 'zod';
import type { NostrEvent } from '../../events/rules/event.js';
import { ERASURE_CAUSES } from '../rules.js';

/** Never published. It is an event because every Nostr library can check one. */
export const KIND_CERTIFICATE = 8_062;

const hash = z.string().regex(/^[0-9a-f]{64}$/);
const time = z.number().int().min(0);
const count = z.number().int().min(0);

const common = {
  type: z.literal('minato-erasure-certificate'),
  erasure_id: z.uuid(),
  software: z.strictObject({ name: z.string(), version: z.string() }),
  community: z.string().describe('The slug of the community'),
  subject: z.strictObject({
    type: z.enum(['member', 'community']),
    hash,
    key: hash.describe('A fingerprint of the key that the hash was made with'),
  }),
  cause: z.enum(ERASURE_CAUSES),
  requested_at: time,
  fenced_at: time,
  counted_at: time,
  completed_at: time,
  until: z.number().int().nullable().describe('Seconds: what was signed up to then stays refused'),
  banned: z.boolean().describe('They were banned before, and still are'),
  kept: z.array(z.strictObject({ name: z.string(), rows: count, until: time, why: z.string() })),
  previous: hash.nullable().describe('The id of the certificate before this one'),
};

const storeRow = z.strictObject({
  name: z.string(),
  before: count.describe('All rows of the subject: deleted + otherwise + after'),
  added: count.describe('Of these, rows that were added after the count, such as the deletes in the outbox'),
  deleted: count,
  otherwise: count.describe('Deleted by something else: a consumer, a job, or an expiry'),
  after: count,
});
const follower = z.strictObject({
  name: z.string(),
  acknowledged: count.describe('The offset of the outbox up to which it had acknowledged'),
  needed: count.describe('The offset of the last delete of this erasure, or later'),
  limit_seconds: count.describe('For so long the erasure waited'),
});

/** Version 1 did not account for every row, and had no followers. */
export const certificateSchema = z.discriminatedUnion('version', [
  z.strictObject({
    ...common,
    version: z.literal(1),
    stores: z
      .array(z.strictObject({ name: z.string(), before: count.nullable(), deleted: count, after: count }))
      .min(1),
  }),
  z.strictObject({
    ...common,
    version: z.literal(2),
    stores: z.array(storeRow).min(1),
    unacknowledged: z
      .array(follower)
      .describe('Followers of the outbox that have not acknowledged the deletes (I17)'),
  }),
]);
export type Certificate = z.output<typeof certificateSchema>;

/** What is wrong with it beside its signature, in sentences; none when it holds. */
export function certificateProblems(event: NostrEvent): { problems: string[]; certificate?: Certificate } {
  if (event.kind !== KIND_CERTIFICATE)
    return { problems: [`the event is of kind ${event.kind}, and a certificate of ${KIND_CERTIFICATE}`] };
  const read = certificateSchema.safeParse(parsed(event.content));
  if (!read.success)
    return {
      problems: read.error.issues.map(({ path, message }) => `${path.join('.') || 'content'}: ${message}`),
    };
  const certificate = read.data;
  const { requested_at, fenced_at, counted_at, completed_at } = certificate;
  const left = rowsOf(certificate)
    .filter(({ after }) => after > 0)
    .map(({ name, after }) => `${name} still counts ${after}`);
  const sums = certificate.version === 1 ? [] : certificate.stores.flatMap(sumProblem);
  const times = [requested_at, fenced_at, counted_at, completed_at];
  const isInOrder = times.every((at, place) => place === 0 || at >= times[place - 1]!);
  const order = isInOrder ? [] : ['its times are not in order'];
  return { problems: [...left, ...sums, ...order], certificate };
}

function sumProblem({ name, before, added, deleted, otherwise, after }: z.output<typeof storeRow>): string[] {
  const isWhole = before === deleted + otherwise + after && added <= before;
  return isWhole ? [] : [`the rows of ${name} do not add up`];
}

export interface StoreRow {
  readonly name: string;
  /** Null: certificates of version 1 may not know. */
  readonly before: number | null;
  readonly deleted: number;
  readonly otherwise: number | null;
  readonly after: number;
}

/** The stores, whichever version the certificate has. */
export function rowsOf(certificate: Certificate): readonly StoreRow[] {
  if (certificate.version === 2) return certificate.stores;
  return certificate.stores.map((row) => ({ ...row, otherwise: null }));
}

function parsed(content: string): unknown {
  try {
    return JSON.parse(content);
  } catch {
    return undefined;
  }
}
