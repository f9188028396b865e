/**
 * Labels that a community puts on events and people, and the events that publish them: kind 1985 (NIP-32),
 * and the addressable kind 39006 with the confidence and the policy. Pure: the same label always gives the
 * same events, so publishing it twice changes nothing.
 */
import { z } from 'zod';
import { KIND_DELETION } from '../events/rules/classify.js';
import { isStorable } from '../events/rules/text.js';

export const LABELS = ['spam', 'illegal', 'harassment', 'impersonation', 'nsfw', 'safe'] as const;
export type Label = (typeof LABELS)[number];

export const KIND_LABEL = 1_985;
export const KIND_LABEL_CLAIM = 39_006;
/** The namespace of these words, for clients that read labels of several nodes. */
export const LABEL_NAMESPACE = 'minato.moderation';
export const LABEL_DAYS_MAX = 3_650;
const DAY_SECONDS = 86_400;

/** The label that a rule or a moderator puts on a target. */
export const labelSchema = z.strictObject({
  label: z.enum(LABELS),
  confidence: z.number().gt(0).max(1).default(1).describe('Confidence, up to 1'),
  days: z.number().int().min(1).max(LABEL_DAYS_MAX).default(90).describe('Days until it expires'),
  policy: z
    .string()
    .max(500)
    .refine(isStorable, 'must not contain NUL or lone surrogates')
    .default('')
    .describe('The rule of the community behind it: a name or a URL'),
});
export type LabelSpec = z.output<typeof labelSchema>;

/** When a label that is signed in this second expires. */
export function lapsesAt(signedAt: number, { days }: Pick<LabelSpec, 'days'>): number {
  return signedAt + days * DAY_SECONDS;
}

export interface PutLabel {
  readonly label: Label;
  readonly confidence: number;
  readonly policy: string;
  /** Seconds, like `lapsesAt`. */
  readonly signedAt: number;
  readonly lapsesAt: number;
  /** Undefined when the label is on the person. */
  readonly targetEvent: string | undefined;
  readonly targetPubkey: string;
  /** Topics of the event. */
  readonly topics: readonly string[];
}

export interface Template {
  readonly kind: number;
  readonly created_at: number;
  readonly tags: string[][];
  readonly content: string;
}

/** A label carries the topics of its event, so readers of these topics get it. */
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

/** A deletion request (NIP-09) for the events of a label, signed by the same key. */
export function withdrawalTemplate(events: readonly string[], withdrawnAt: number): Template {
  return {
    kind: KIND_DELETION,
    created_at: withdrawnAt,
    tags: [...events.map((id) => ['e', id]), ['k', String(KIND_LABEL)], ['k', String(KIND_LABEL_CLAIM)]],
    content: '',
  };
}
