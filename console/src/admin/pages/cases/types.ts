/** What the API answers about cases. */
import type { paths } from '../../../shared/schema.js';

type Cases = paths['/v1/admin/moderation/cases'];
export type ListedCase = Cases['get']['responses'][200]['content']['application/json']['items'][number];
export type CaseQuery = NonNullable<Cases['get']['parameters']['query']>;
type One = paths['/v1/admin/moderation/cases/{case_id}'];
export type WholeCase = One['get']['responses'][200]['content']['application/json'];
export type CaseStatus = ListedCase['status'];
export type CaseAction = WholeCase['actions'][number]['action'];

export const STATUSES = ['open', 'held', 'resolved', 'dismissed'] as const satisfies readonly CaseStatus[];
export const REASONS = [
  'nudity',
  'malware',
  'profanity',
  'illegal',
  'spam',
  'impersonation',
  'other',
] as const satisfies readonly NonNullable<CaseQuery['reason']>[];
export const LABELS = ['spam', 'illegal', 'harassment', 'impersonation', 'nsfw', 'safe'] as const;
export type LabelName = (typeof LABELS)[number];

/** The colours of statuses; each has its word beside it. */
export const STATUS_COLORS: Readonly<Record<CaseStatus, string>> = {
  open: 'blue',
  held: 'orange',
  resolved: 'teal',
  dismissed: 'gray',
};
