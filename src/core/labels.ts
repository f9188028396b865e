/**
 * Labels that a community puts on events and people, and the events that tell them: kind 1985 (NIP-32), and the addressable 39006 that
 * says how sure the node is and by which policy. Pure: the same label always gives the same events, so publishing it twice is once.
 */
import { z } from 'zod';
import { KIND_DELETION } from './classify.js';
import { isStorable } from './text.js';

export const LABELS = ['spam', 'illegal', 'harassment', 'impersonation', 'nsfw', 'safe'] as const;
export type Label = (typeof LABELS)[number];

export const KIND_LABEL = 1_985;
export const KIND_LABEL_CLAIM = 39_006;
/** Of the words above, for those who read labels of several nodes. */
export const LABEL_NAMESPACE = 'minato.moderation';
export const LABEL_DAYS_MAX = 3_650;
const DAY_SECONDS = 86_400;

/** What a rule or a moderator puts on something. */
export const labelSchema = z.strictObject({
  label: z.enum(LABELS),
  confidence: z.number().gt(0).max(1).default(1).describe('How sure, up to 1'),
  days: z.number().int().min(1).max(LABEL_DAYS_MAX).default(90).describe('After so many days it lapses'),
  policy: z
    .string()
    .max(500)
    .refine(isStorable, 'neither NUL nor lone surrogates')
    .default('')
    .describe('By which rule of the community: a name or an address'),
});
export type LabelSpec = z.output<typeof labelSchema>;

/** When a label that is signed in this second lapses. */
export function lapsesAt(signedAt: number, { days }: Pick<LabelSpec, 'days'>): number {
  return signedAt + days * DAY_SECONDS;
}

export interface PutLabel {
  readonly label: Label;
  readonly confidence: number;
  readonly policy: string;
  /** Seconds, as `lapsesAt`. */
  readonly signedAt: number;
  readonly lapsesAt: number;
  /** None: it is on the person. */
  readonly targetEvent: string | undefined;
  readonly targetPubkey: string;
  /** Of the event. */
  readonly topics: readonly string[];
}

export interface Template {
  readonly kind: number;
  readonly created_at: number;
  readonly tags: string[][];
  readonly content: string;
}

/** Readers of the event's topics get its labels, because they carry the same ones. */
export function labelTemplates(put: PutLabel): { readonly label: Template; readonly claim: Template } {
  const { label, confidence, policy, signedAt, targetEvent, targetPubkey } = put;
  const target = targetEvent ?? targetPubkey;
  const expiry = String(put.lapsesAt);
  const about = [
    targetEvent === undefined ? ['p', targetPubkey] : ['e', targetEvent],
    ...put.topics.map((topic) => ['t', topic]),
    ['expiration', expiry],
  ];
  const shared = { created_at: signedAt, content: '' };
  return {
    label: {
      ...shared,
      kind: KIND_LABEL,
      tags: [['L', LABEL_NAMESPACE], ['l', label, LABEL_NAMESPACE], ...about],
    },
    claim: {
      ...shared,
      kind: KIND_LABEL_CLAIM,
      tags: [
        ['d', `${target}:${label}`],
        ['target', `${targetEvent === undefined ? 'pubkey' : 'event'}:${target}`],
        ['label', label],
        ['confidence', String(confidence)],
        ...(policy === '' ? [] : [['policy', policy]]),
        ['exp', expiry],
        ...about,
      ],
    },
  };
}

/** Takes back the events of a label, by the key that signed them (NIP-09). */
export function withdrawalTemplate(events: readonly string[], withdrawnAt: number): Template {
  return {
    kind: KIND_DELETION,
    created_at: withdrawnAt,
    tags: [...events.map((id) => ['e', id]), ['k', String(KIND_LABEL)], ['k', String(KIND_LABEL_CLAIM)]],
    content: '',
  };
}
