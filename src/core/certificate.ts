/**
 * The certificate of an erasure: what was counted before, what went, and that nothing was left. It is the content of a signed event, so
 * that anybody can check it, and holds the id of the certificate before it. Of the person it knows no more than a keyed hash.
 */
import { z } from 'zod';
import { ERASURE_CAUSES } from './erasure.js';
import type { NostrEvent } from './event.js';

/** Regular, and never published: an event only because everybody here can sign and check one. */
export const KIND_CERTIFICATE = 8_062;

const hash = z.string().regex(/^[0-9a-f]{64}$/);
const time = z.number().int().min(0);
const count = z.number().int().min(0);

export const certificateSchema = z.strictObject({
  type: z.literal('minato-erasure-certificate'),
  version: z.literal(1),
  erasure_id: z.uuid(),
  software: z.strictObject({ name: z.string(), version: z.string() }),
  community: z.string().describe('The slug of the community'),
  subject: z.strictObject({
    type: z.enum(['member', 'community']),
    hash,
    key: hash.describe('A print of the key that the hash was made with'),
  }),
  cause: z.enum(ERASURE_CAUSES),
  requested_at: time,
  fenced_at: time,
  counted_at: time,
  completed_at: time,
  until: z.number().int().nullable().describe('Seconds: what was signed up to then stays refused'),
  banned: z.boolean().describe('They were kept out before, and are so still'),
  stores: z
    .array(z.strictObject({ name: z.string(), before: count.nullable(), deleted: count, after: count }))
    .min(1),
  kept: z.array(z.strictObject({ name: z.string(), rows: count, until: time, why: z.string() })),
  previous: hash.nullable().describe('The id of the certificate before this one'),
});
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
  const { stores, requested_at, fenced_at, counted_at, completed_at } = certificate;
  const left = stores
    .filter(({ after }) => after > 0)
    .map(({ name, after }) => `${name} still counts ${after}`);
  const times = [requested_at, fenced_at, counted_at, completed_at];
  const isInOrder = times.every((at, place) => place === 0 || at >= times[place - 1]!);
  return { problems: isInOrder ? left : [...left, 'its times are not in order'], certificate };
}

function parsed(content: string): unknown {
  try {
    return JSON.parse(content);
  } catch {
    return undefined;
  }
}
